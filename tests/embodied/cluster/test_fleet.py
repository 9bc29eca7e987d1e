"""What the fleet does without a cluster: its signals, and the room it asks for."""

import signal
import sys
import types

import pytest

from embodied import rpc
from embodied.cluster import fleet
from embodied.run.parallel import member, run_keys
from embodied.run.parallel.env import env_roles
from embodied.run.settings import RunSettings


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


def test_tasks_join_with_the_numbers_of_the_run(tmp_path):
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    address = "tcp://10.0.0.5:7000"
    args = {"logdir": str(tmp_path), "envs": 3, "eval_envs": 1, "envs_per_process": 2}
    args = RunSettings.of(args)
    keys = rpc.load_client(tmp_path / "keys", run_keys.ENV)
    invitation = member.Invitation(address, keys)
    roles = fleet.joined_roles(env_roles("train", "eval", args), invitation)
    given = [role.args for role in roles]
    assert [make for make, *_ in given] == ["train", "train", "eval"]
    assert {each for _, each, *_ in given} == {invitation}
    entries = [entry for *_, entry, _ in given]
    assert [entry.numbers for entry in entries] == [(0, 1), (2,), (3,)]
    assert [entry.envs for entry in entries] == [2, 1, 1]
    assert [is_eval for *_, is_eval in given] == [False, False, True]
    again = fleet.joined_roles(env_roles("train", "eval", args), invitation)
    names = {entry.name for entry in entries}
    assert names.isdisjoint(role.args[2].name for role in again)  # Both may run.
