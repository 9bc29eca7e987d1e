"""What the fleet does without a cluster: its signals, and the room it asks for."""

import signal
import sys
import types

import pytest

from embodied.cluster import fleet


def node(cores, alive=True):
    return {"Alive": alive, "Resources": {"CPU": cores} if cores else {}}


@pytest.mark.parametrize(
    ("amount", "cpus", "nodes", "text"),
    [
        (4, 1.0, [node(4.0)], ""),
        (4, 0.0, [node(0.0)], ""),
        (5, 0.5, [node(1.0), node(2.0)], ""),
        (5, 1.0, [node(4.0), node(9.0, alive=False)], "room for 4 of 5"),
        (1, 8.0, [node(4.0), node(4.0)], "room for 0 of 1"),  # None has so many.
    ],
)
def test_who_waits_for_a_core_is_told(amount, cpus, nodes, text, capsys):
    fleet.tell_shortage(amount, cpus, nodes)
    told = capsys.readouterr().out
    assert text in told
    assert bool(told) == bool(text)


def test_sigterm_stays_with_the_supervisor(monkeypatch):
    """Schedulers send it to all processes; Ray would end this one before the others."""

    def init(address, logging_level):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)

    before = signal.signal(signal.SIGTERM, lambda number, frame: None)
    try:
        handler = signal.getsignal(signal.SIGTERM)
        monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(init=init))
        fleet.connect("auto")
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)
