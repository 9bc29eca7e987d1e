"""Stored steps after a number of each worker, in the order in which they were added."""

import numpy as np
import pytest

from embodied.replay import Replay
from embodied.testing.replay_model import make_step

KEYS = ("code", "reward")
OPTIONS = {"memory": {}, "disk": {}, "limited": {"memory": 10_000, "compress": True}}


@pytest.fixture(params=OPTIONS)
def make(request, tmp_path):
    made = []

    def make(capacity=1000):
        directory = None if request.param == "memory" else tmp_path
        options = OPTIONS[request.param]
        made.append(Replay(3, capacity, directory, chunksize=4, **options))
        return made[-1]

    yield make
    for replay in made:
        replay.close()


def fill(replay, steps):
    """Workers 1 and 2 by turns; the numbers of the latter begin at 100."""
    for index in range(steps):
        replay.add(make_step(1, index), 1, index)
        replay.add(make_step(2, index), 2, 100 + index)


def codes(tail):
    assert tail.steps["code"].tolist() == [
        1000 * worker + seq - (100 if worker == 2 else 0)
        for worker, seq in zip(tail.workers.tolist(), tail.seqs.tolist(), strict=True)
    ]
    return tail.steps["code"].tolist()


def test_steps_after_the_number_of_each_worker(make):
    replay = make()
    assert codes(replay.after({}, KEYS, 10)) == []
    fill(replay, 10)
    tail = replay.after({1: 6, 2: 108}, KEYS, 10)
    assert codes(tail) == [1007, 1008, 1009, 2009]
    assert tail.orders.tolist() == [15, 17, 19, 20]
    assert tail.steps["reward"].tolist() == [7, 8, 9, 9]
    assert set(tail.steps) == set(KEYS)
    assert codes(replay.after({1: 9, 2: 109}, KEYS, 10)) == []
    assert codes(replay.after({1: 8}, KEYS, 10, default=108)) == [1009, 2009]


def test_the_oldest_come_first_and_not_more_than_asked_for(make):
    replay = make()
    fill(replay, 10)
    found, seqs = [], {1: -1, 2: -1}
    while len((tail := replay.after(seqs, KEYS, 3)).seqs):
        assert len(tail.seqs) <= 3
        found += tail.orders.tolist()
        seqs |= dict(zip(tail.workers.tolist(), tail.seqs.tolist(), strict=True))
    assert found == list(range(1, 21))


def test_evicted_steps_are_left_out(make):
    replay = make(capacity=4)
    fill(replay, 50)
    orders = replay.after({}, KEYS, 1000).orders
    assert np.all(np.diff(orders) == 1)
    assert orders[-1] == 100
    assert orders[0] > 1
