"""What the fleet says of the room on a cluster."""

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
