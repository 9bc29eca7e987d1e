"""Steps on their way: order, the step counter, backpressure, errors, images."""

from concurrent.futures import Future

import numpy as np
import pytest

from embodied.run.parallel import outbox as outbox_module
from embodied.run.parallel import routing
from embodied.run.parallel.outbox import STEP, Outbox

TIMEOUT = 10  # Seconds until a thread that should go on has failed.


class Ends:
    """Both ends of an outbox: futures to answer, and what the logger was told."""

    def __init__(self):
        self.added = []
        self.futures = []
        self.told = []

    def add_batch(self, steps):
        self.added.append(steps)
        self.futures.append(Future())
        return self.futures[-1]

    def tran(self, steps):
        self.told.append(steps)


@pytest.fixture
def ends():
    return Ends()


@pytest.fixture
def few(monkeypatch):
    """So many batches may be pending."""
    monkeypatch.setattr(outbox_module, "MAX_PENDING", 3)
    return 3


def test_the_logger_is_told_in_order_and_only_what_is_stored(ends, make_steps):
    outbox = Outbox(ends.add_batch, ends.tran)
    for seq in range(4):
        outbox.send(make_steps([0, 1], [seq, seq]))
    assert ends.told == []
    for index in (3, 1, 2, 0):  # The answers come in any order.
        ends.futures[index].set_result(2 * (index + 1))
    outbox.flush()
    assert [s[routing.SEQ].tolist() for s in ends.added] == [[i, i] for i in range(4)]
    assert [s[routing.SEQ].tolist() for s in ends.told] == [[i, i] for i in range(4)]
    assert [s[STEP] for s in ends.told] == [2, 4, 6, 8]
    assert outbox.total == 8


def test_nothing_is_sent_that_the_logger_would_not_hear_of(ends, make_steps):
    outbox = Outbox(ends.add_batch, ends.tran)
    outbox.flush()
    outbox.send(make_steps([0], [0]))
    assert ends.added == []


def test_the_total_never_falls(ends, make_steps):
    outbox = Outbox(ends.add_batch, ends.tran)
    for seq in range(3):
        outbox.send(make_steps([0], [seq]))
    for future, total in zip(ends.futures, (6, 4, 7), strict=True):
        future.set_result(total)
    outbox.flush()
    assert [steps[STEP] for steps in ends.told] == [6, 6, 7]


def test_wait_total(ends, make_steps, start):
    outbox = Outbox(ends.add_batch, ends.tran)
    assert not outbox.wait_total(5, timeout=0)
    for seq in range(2):
        outbox.send(make_steps([0], [seq]))
    ends.futures[0].set_result(4)
    reached = []
    waiter = start(lambda: reached.append(outbox.wait_total(5, timeout=TIMEOUT)))
    ends.futures[1].set_result(5)
    waiter.join(TIMEOUT)
    assert reached == [True]
    assert not outbox.wait_total(6, timeout=0)


def test_acting_waits_while_too_much_is_on_its_way(ends, few, make_steps, watch, start):
    outbox = Outbox(ends.add_batch, ends.tran)
    condition = watch(outbox)
    for seq in range(few - 1):
        outbox.send(make_steps([0], [seq]))
    outbox.wait_room()
    assert not condition.waiting.is_set()
    outbox.send(make_steps([0], [few]))
    waiter = start(outbox.wait_room)
    assert condition.waiting.wait(TIMEOUT)
    assert waiter.is_alive()
    ends.futures[0].set_result(1)
    waiter.join(TIMEOUT)
    assert not waiter.is_alive()


def test_a_stop_ends_the_wait_for_room(ends, few, make_steps, watch, start, ctx):
    outbox = Outbox(ends.add_batch, ends.tran, stopping=ctx.stopping)
    condition = watch(outbox)
    for seq in range(few):
        outbox.send(make_steps([0], [seq]))
    waiter = start(outbox.wait_room)
    assert condition.waiting.wait(TIMEOUT)
    ctx.request_stop()
    with condition:
        condition.notify_all()
    waiter.join(TIMEOUT)
    assert not waiter.is_alive()


def test_an_error_of_the_replay_is_raised_and_nobody_waits(ends, few, make_steps):
    outbox = Outbox(ends.add_batch, ends.tran)
    for seq in range(few + 1):
        outbox.send(make_steps([0], [seq]))
    ends.futures[0].set_exception(ValueError("disk full"))
    with pytest.raises(ValueError, match="disk full"):
        outbox.wait_total(1, TIMEOUT)
    outbox.wait_room()
    for future in ends.futures[1:]:
        future.set_exception(KeyError("a later error"))
    with pytest.raises(ValueError, match="disk full"):
        outbox.flush()
    assert ends.told == []


def test_an_error_of_the_logger_is_raised(ends, make_steps):
    def refuse(steps):
        raise RuntimeError("no logger")

    outbox = Outbox(ends.add_batch, refuse)
    outbox.send(make_steps([0], [0]))
    ends.futures[0].set_result(1)
    with pytest.raises(RuntimeError, match="no logger"):
        outbox.flush()


def test_what_could_not_be_sent_is_not_pending(ends, few, make_steps, watch):
    def refuse(steps):
        raise ConnectionError("closed")

    outbox = Outbox(refuse, ends.tran)
    condition = watch(outbox)
    for seq in range(2 * few):
        with pytest.raises(ConnectionError):
            outbox.send(make_steps([0], [seq]))
    outbox.wait_room()
    assert not condition.waiting.is_set()
    outbox.flush()


def tell(ends, recorded, steps):
    outbox = Outbox(ends.add_batch, ends.tran, recorded)
    outbox.send(steps)
    ends.futures[0].set_result(1)
    outbox.flush()
    return ends.told


@pytest.fixture
def steps(make_steps):
    images = np.arange(4, dtype=np.uint8)[:, None, None, None] * np.ones((4, 2, 2, 3))
    return make_steps(
        [0, 1, 2, 3],
        [10, 11, 12, 13],
        **{
            "image": images.astype(np.uint8),
            "vector": np.zeros((4, 7), np.float32),
            "latent/deter": np.zeros((4, 8), np.float32),
            "log/speed": np.arange(4.0),
        },
    )


SCALARS = {"reward", "is_first", "is_last", "is_terminal", "log/speed", STEP}
SCALARS |= set(routing.SPACES)


def test_images_only_of_recorded_environments(ends, steps):
    with_images, others = tell(ends, (2, 0), steps)
    assert set(with_images) == SCALARS | {"image"}
    assert with_images[routing.ENVID].tolist() == [0, 2]
    assert with_images["image"][:, 0, 0, 0].tolist() == [0, 2]
    assert with_images["log/speed"].tolist() == [0, 2]
    assert set(others) == SCALARS
    assert others[routing.ENVID].tolist() == [1, 3]
    assert others[routing.SEQ].tolist() == [11, 13]


def test_no_images_if_nobody_is_recorded(ends, steps):
    (part,) = tell(ends, (9,), steps)
    assert set(part) == SCALARS
    assert part[routing.ENVID].tolist() == [0, 1, 2, 3]


def test_one_part_if_all_are_recorded(ends, steps):
    (part,) = tell(ends, (0, 1, 2, 3), steps)
    assert set(part) == SCALARS | {"image"}
    assert part[routing.ENVID].tolist() == [0, 1, 2, 3]


def test_surplus_training_steps_are_not_sent(ends, make_steps):
    outbox = Outbox(ends.add_batch, ends.tran, total=10, limit=15)
    outbox.send(make_steps([0, 1, 2], [0] * 3))
    evals = [False, True, False, False]
    outbox.send(make_steps([0, 9, 1, 2], [1] * 4, is_eval=evals))
    outbox.send(make_steps([0, 1], [2] * 2))  # Nothing is left of it.
    outbox.send(make_steps([9], [2], is_eval=True))
    assert [s[routing.ENVID].tolist() for s in ends.added] == [
        [0, 1, 2],
        [0, 9, 1],
        [9],
    ]
    for future, total in zip(ends.futures, (13, 15, 15), strict=True):
        future.set_result(total)
    outbox.flush()
    assert outbox.total == 15
    assert outbox.wait_total(15, timeout=0)


def test_steps_that_the_replay_did_not_count_leave_room(ends, make_steps, start):
    outbox = Outbox(ends.add_batch, ends.tran, limit=4)
    outbox.send(make_steps([0, 1, 2, 3], [0] * 4))
    ends.futures[0].set_result(3)  # One of them it knew already.
    assert outbox.wait_total(3, TIMEOUT)
    outbox.send(make_steps([0, 1], [1] * 2))
    assert [len(s[routing.ENVID]) for s in ends.added] == [4, 1]
