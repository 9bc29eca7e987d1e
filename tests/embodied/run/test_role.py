"""What a role knows of its process: stop, completion, beats, waiting for results."""

import pytest

from embodied.run import role

pytestmark = pytest.mark.usefixtures("fresh_role")


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


def test_a_result_that_is_there_is_returned_at_once():
    assert role.await_result(FakeFuture("done")) == "done"


def test_waiting_is_a_sign_of_life():
    shared = CountedBeat()
    role.attach(shared)
    future = FakeFuture("done", waits=3)
    assert role.await_result(future) == "done"
    assert shared.count == len(future.timeouts) == 3
    assert max(future.timeouts) <= 1


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_an_error_is_raised_whenever_it_comes(waits):
    with pytest.raises(ValueError, match="on purpose"):
        role.await_result(FakeFuture(ValueError("on purpose"), waits))


@pytest.mark.parametrize("waits", [0, 1, 2])
def test_a_call_that_timed_out_is_not_waited_for_again(waits):
    future = FakeFuture(TimeoutError("no answer"), waits)
    with pytest.raises(TimeoutError, match="no answer"):
        role.await_result(future)
    assert len(future.timeouts) == waits


def test_a_stop_ends_the_waiting():
    future = FakeFuture("never", waits=100, on_wait=role.request_stop)
    with pytest.raises(role.StoppedError):
        role.await_result(future)
    assert len(future.timeouts) == 1


def test_a_stop_does_not_lose_a_result_that_is_there():
    role.request_stop()
    assert role.await_result(FakeFuture("done")) == "done"


def test_a_request_to_stop_is_no_completion():
    assert not role.stopping()
    assert not role.wait_stop(0)
    role.request_stop()
    assert role.stopping()
    assert role.wait_stop(0)
    assert not role.completed()


def test_completion_stops_too():
    role.complete()
    assert role.stopping()
    assert role.completed()


def test_the_most_silent_part_counts(monkeypatch):
    now = [1.0]
    monkeypatch.setattr(role.time, "monotonic", lambda: now[0])
    shared = role.Beat()
    role.attach(shared)
    role.beat()
    assert (shared.value, shared.part) == (1, b"")
    actor, learner = role.Part("actor"), role.Part("learner")
    for now[0] in (2.0, 3.0):
        learner.beat()
        role.beat()  # Says nothing of its parts.
        assert (shared.value, shared.part) == (1, b"actor")
    actor.beat()
    assert (shared.value, shared.part) == (3, b"actor")
    now[0] = 4.0
    actor.beat()
    assert (shared.value, shared.part) == (3, b"learner")
    learner.close()
    actor.beat()
    assert (shared.value, shared.part) == (4, b"actor")


def test_a_new_supervisor_begins_anew():
    role.complete()
    role.Part("actor")
    shared = role.Beat()
    role.attach(shared)
    assert not role.stopping()
    assert not role.completed()
    role.beat()
    assert shared.value > 0
