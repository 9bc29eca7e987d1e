"""What a role knows of its process: stop, completion, beats, waiting for results."""

import threading

import pytest

from embodied.process import context
from embodied.process.context import Context, Heartbeat, StoppedError


@pytest.fixture
def ctx():
    return Context()


class FakeFuture:
    """Is done with `outcome` after so many waits, each of which takes no time."""

    def __init__(self, outcome, waits=0, on_wait=None):
        self._outcome = outcome
        self._left = waits
        self._on_wait = on_wait
        self.timeouts = []

    def done(self):
        return self._left == 0

    def result(self, timeout=None):
        if self._left:
            assert timeout is not None, "would wait forever"
            self.timeouts.append(timeout)
            self._left -= 1
            if self._on_wait:
                self._on_wait()
            if self._left:
                raise TimeoutError
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class CountedBeat:
    """Counts the beats."""

    def __init__(self):
        self.count = 0

    @property
    def value(self):
        return 0.0

    @value.setter
    def value(self, value):
        self.count += 1


def test_a_result_that_is_there_is_returned_at_once(ctx):
    assert ctx.wait(FakeFuture("done")) == "done"


def test_waiting_is_a_sign_of_life():
    shared = CountedBeat()
    ctx = Context(shared)
    future = FakeFuture("done", waits=3)
    assert ctx.wait(future) == "done"
    assert shared.count == len(future.timeouts) == 3
    assert max(future.timeouts) <= 1


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_an_error_is_raised_whenever_it_comes(waits, ctx):
    with pytest.raises(ValueError, match="on purpose"):
        ctx.wait(FakeFuture(ValueError("on purpose"), waits))


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_a_call_that_timed_out_is_not_waited_for_again(waits, ctx):
    future = FakeFuture(TimeoutError("no answer"), waits)
    with pytest.raises(TimeoutError, match="no answer"):
        ctx.wait(future)
    assert len(future.timeouts) == waits


def test_a_stop_ends_the_waiting(ctx):
    future = FakeFuture("never", waits=100, on_wait=ctx.request_stop)
    with pytest.raises(StoppedError):
        ctx.wait(future)
    assert len(future.timeouts) == 1


def test_a_stop_does_not_lose_a_result_that_is_there(ctx):
    ctx.request_stop()
    assert ctx.wait(FakeFuture("done")) == "done"


def test_a_request_to_stop_is_no_completion(ctx):
    assert not ctx.stopping()
    assert not ctx.wait_stop(0)
    ctx.request_stop()
    assert ctx.stopping()
    assert ctx.wait_stop(0)
    assert not ctx.completed()


def test_completion_stops_too(ctx):
    ctx.complete()
    assert ctx.stopping()
    assert ctx.completed()


def test_the_most_silent_part_counts(monkeypatch):
    now = [1.0]
    monkeypatch.setattr(context.time, "monotonic", lambda: now[0])
    shared = Heartbeat()
    ctx = Context(shared)
    ctx.beat()
    assert (shared.value, shared.part) == (1, b"")
    actor, learner = ctx.part("actor"), ctx.part("learner")
    for now[0] in (2.0, 3.0):
        learner.beat()
        ctx.beat()  # Says nothing of its parts.
        assert (shared.value, shared.part) == (1, b"actor")
    actor.beat()
    assert (shared.value, shared.part) == (3, b"actor")
    now[0] = 4.0
    actor.beat()
    assert (shared.value, shared.part) == (3, b"learner")
    learner.close()
    actor.beat()
    assert (shared.value, shared.part) == (4, b"actor")


def test_contexts_are_independent():
    one, other = Context(), Context()
    one.complete()
    assert not other.stopping()


def test_actor_and_learner_of_a_program_share_a_context():
    barrier = threading.Barrier(2)
    assert Context.of(barrier) is Context.of(barrier)
    assert Context.of(barrier) is not Context.of(threading.Barrier(2))


def test_a_part_may_have_something_to_save(ctx):
    part = ctx.part("learner")
    assert not ctx.unsaved()
    part.unsaved = True
    assert ctx.unsaved()
    part.close()
    assert not ctx.unsaved()
