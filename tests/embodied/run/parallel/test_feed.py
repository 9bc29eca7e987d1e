"""Steps on their way to the logger: bounded, in order, complete after any failure."""

import threading
from concurrent.futures import Future

import numpy as np
import pytest

from embodied import rpc
from embodied.run.parallel import feed as feed_module
from embodied.run.parallel import routing
from embodied.run.parallel.feed import StepFeed, copied, flush, size

WAIT = 20.0  # Seconds until a thread that should continue has failed.


class Ends:
    """A replay that stores, and a logger that counts each step once unless it hangs."""

    def __init__(self, make_steps):
        self.lock = threading.Lock()
        self.make_steps = make_steps
        self.stored = 0
        self.logged = []  # Numbers, in the order of arrival.
        self.partial = 0
        self.most = 8  # Steps in an answer of the replay.
        self.hung = []  # Calls that a logger which hangs has not answered.
        self.hangs = False
        self.failures = 0  # Calls of the logger that are yet to fail.

    def tran(self, steps):
        future = Future()
        with self.lock:
            if self.hangs:
                self.hung.append((steps, future))
            elif self.failures:
                self.failures -= 1
                future.set_exception(TimeoutError("the logger is away"))
            else:
                self._log(steps)
                future.set_result(None)
        return future

    def wake(self):
        with self.lock:
            self.hangs = False
            for steps, future in self.hung:
                self._log(steps)
                future.set_result(None)
            self.hung.clear()

    def seen(self):
        return done(max(self.logged, default=-1))

    def unlogged(self, seen):
        last = min(self.stored, seen + 1 + self.most)
        found = [self.steps(seq) for seq in range(seen + 1, last)]
        self.partial += len(found)
        return done({"steps": found, "complete": last == self.stored})

    def steps(self, seq):
        return self.make_steps([0], [seq])

    def store(self, feed):
        """Store the next step and pass it on."""
        self.stored += 1
        feed.put(self.steps(self.stored - 1))

    def _log(self, steps):
        (seq,) = steps[routing.SEQ].tolist()
        if seq > max(self.logged, default=-1):
            self.logged.append(seq)


def done(value):
    future = Future()
    future.set_result(value)
    return future


@pytest.fixture
def ends(make_steps):
    return Ends(make_steps)


@pytest.fixture
def start_feed(ends):
    made = []

    def start():
        made.append(StepFeed(ends.tran, ends.seen, ends.unlogged))
        return made[-1]

    yield start
    for feed in made:
        feed.close()
        ends.wake()
        feed._thread.join(WAIT)
        assert not feed._thread.is_alive()


@pytest.fixture
def few(ends, monkeypatch):
    """So many steps may be on their way."""
    monkeypatch.setattr(feed_module, "MAX_BYTES", 5 * size(ends.steps(0)))
    return 5


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(feed_module, "RETRY", 0.01)


def test_steps_are_passed_on_as_they_are(ends, start_feed):
    feed = start_feed()
    assert feed.flush(WAIT)
    for _ in range(100):
        ends.store(feed)
    assert feed.flush(WAIT)
    assert ends.logged == list(range(100))
    assert not ends.partial


def test_a_feed_begins_with_what_another_one_left(ends, start_feed):
    ends.stored, ends.logged = 30, list(range(11))
    feed = start_feed()
    assert feed.flush(WAIT)
    ends.store(feed)
    assert feed.flush(WAIT)
    assert ends.logged == list(range(31))
    assert ends.partial == 19


def test_a_logger_that_hangs_stops_nothing_and_gets_everything(ends, few, start_feed):
    feed = start_feed()
    assert feed.flush(WAIT)
    ends.hangs = True
    for _ in range(100):
        ends.store(feed)  # Returns at once.
    assert not feed.flush(0)
    assert feed._nbytes <= few * size(ends.steps(0))
    ends.wake()
    assert feed.flush(WAIT)
    ends.store(feed)
    assert feed.flush(WAIT)
    assert ends.logged == list(range(101))


def test_steps_that_do_not_arrive_are_taken_from_the_replay(
    ends, start_feed, soon, capsys
):
    feed = start_feed()
    assert feed.flush(WAIT)
    ends.failures = 3
    for _ in range(20):
        ends.store(feed)
    assert feed.flush(WAIT)
    assert ends.logged == list(range(20))
    assert capsys.readouterr().out.count("the logger is away") == 1


def test_steps_while_the_feed_catches_up_are_not_missed(ends, start_feed):
    """The replay may have answered before it stored them."""
    asked, answer = threading.Event(), Future()

    def unlogged(seen):
        asked.set()
        return answer

    ends.stored, ends.unlogged = 3, unlogged
    feed = start_feed()
    assert asked.wait(WAIT)
    ends.store(feed)
    answer.set_result({"steps": [ends.steps(seq) for seq in range(3)], "complete": 1})
    assert feed.flush(WAIT)
    assert ends.logged == [0, 1, 2, 3]


def test_a_batch_larger_than_the_bound_is_passed_on(ends, start_feed, monkeypatch):
    monkeypatch.setattr(feed_module, "MAX_BYTES", 10)
    feed = start_feed()
    assert feed.flush(WAIT)
    ends.store(feed)
    assert feed.flush(WAIT)
    assert (ends.logged, ends.partial) == ([0], 0)


def test_what_is_queued_keeps_no_other_memory():
    batch = np.zeros((10, 1000), np.float32)
    steps = copied({"reward": batch[:, 0], "step": 7})
    assert steps["reward"].base is None
    assert steps["step"] == 7


def test_an_error_of_the_program_is_raised(ends, start_feed):
    def unlogged(seen):
        raise KeyError("a mistake")

    ends.unlogged = unlogged
    feed = start_feed()
    with pytest.raises(KeyError, match="a mistake"):
        feed.flush(WAIT)
    with pytest.raises(KeyError, match="a mistake"):
        ends.store(feed)


def test_a_logger_without_room_is_not_waited_for():
    def reject(steps):
        future = Future()
        future.set_exception(rpc.RemoteError("tran", "DiskFullError", "no room", ""))
        return future

    feed = StepFeed(reject, answered({}), answered({"steps": [{}], "complete": True}))
    assert not flush(feed, lambda: 60.0)
    assert feed.is_rejected()
    feed.close()


def answered(value):
    """A call that returns a value at once."""

    def call(*args):
        future = Future()
        future.set_result(value)
        return future

    return call
