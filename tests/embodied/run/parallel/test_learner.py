"""The learner's view of the replay: look-ahead, retries, patience, beats."""

from collections import deque
from functools import partial

import numpy as np
import pytest

from embodied.process.context import Context, StoppedError
from embodied.run.parallel import learner as learner_module
from embodied.run.parallel.learner import RemoteReplay, parallel_stream


class FakeFuture:
    """Is there with its outcome, or pending until the wait stops the role."""

    def __init__(self, outcome, on_wait=None):
        self._outcome = outcome
        self._on_wait = on_wait

    def done(self):
        return self._outcome is not None

    def result(self, timeout=None):
        if self._outcome is None:
            self._on_wait()
            raise TimeoutError
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


class FakeClient:
    """Answers calls with outcomes in order."""

    def __init__(self, outcomes=(), on_wait=None):
        self.outcomes = deque(outcomes)
        self.on_wait = on_wait
        self.calls = []
        self.draws = []

    def call(self, method, args=(), timeout=None):
        self.calls.append((method, timeout))
        self.draws += args
        return FakeFuture(self.outcomes.popleft(), self.on_wait)

    def update(self, arrays):
        self.calls.append(("update", arrays))
        return FakeFuture(True)

    def length(self, mode):
        return FakeFuture({"train": 5, "eval": 7}[mode])

    def total(self):
        return FakeFuture(123)


def batch(number):
    return {"x": np.full(1, number)}


def numbers(stream, amount):
    return [next(stream)["x"].item() for _ in range(amount)]


def test_two_batches_are_asked_for_ahead_and_come_in_order():
    client = FakeClient(map(batch, range(10)))
    stream = parallel_stream(RemoteReplay(client, "train"), "train")
    assert client.calls == []
    assert numbers(stream, 1) == [0]
    assert [method for method, _ in client.calls] == ["sample_batch_train"] * 3
    assert numbers(stream, 4) == [1, 2, 3, 4]
    assert len(client.calls) == 7


def test_draws_are_numbered_by_learner():
    clients = [FakeClient(map(batch, range(10))) for _ in range(2)]
    for client in clients:
        numbers(parallel_stream(RemoteReplay(client, "train"), "train"), 2)
    one, two = (client.draws for client in clients)
    assert [number for _, number in one] == [1, 2, 3, 4]
    assert len({learner for learner, _ in one}) == 1
    assert one[0][0] != two[0][0]


@pytest.mark.parametrize("mode", ["report", "eval"])
def test_reports_are_on_data_of_now(mode):
    client = FakeClient(map(batch, range(10)))
    stream = parallel_stream(RemoteReplay(client, mode), mode)
    assert stream.lookahead == 0
    assert numbers(stream, 2) == [0, 1]
    assert [method for method, _ in client.calls] == [f"sample_batch_{mode}"] * 2


def test_calls_have_deadlines_and_a_batch_that_is_held_back_is_asked_for_again():
    client = FakeClient([{}, {}, batch(1), {}, batch(2), batch(3), batch(4), batch(5)])
    stream = parallel_stream(RemoteReplay(client, "train"), "train")
    assert numbers(stream, 3) == [1, 2, 3]
    assert max(timeout for _, timeout in client.calls) <= 60


def test_an_unanswered_call_is_made_again_but_not_for_ever():
    late = [TimeoutError("no answer")] * (learner_module.ATTEMPTS - 1)
    client = FakeClient([*late, *map(batch, range(5))])
    assert numbers(parallel_stream(RemoteReplay(client, "report"), "report"), 1) == [0]
    client = FakeClient([*late, TimeoutError("no answer"), batch(0)])
    with pytest.raises(TimeoutError, match="no answer"):
        next(parallel_stream(RemoteReplay(client, "report"), "report"))


def test_waiting_for_a_batch_is_a_sign_of_life_and_ends_with_a_stop():
    ctx, beats = Context(), []
    client = FakeClient([None] * 3, ctx.request_stop)
    wait = partial(ctx.wait, beat=partial(beats.append, 1))
    replay = RemoteReplay(client, "train", wait)
    with pytest.raises(StoppedError):
        next(parallel_stream(replay, "train"))
    assert beats
    replay.patient = True
    assert replay.wait(FakeFuture(batch(9)))["x"] == 9


def test_the_replay_as_the_learner_sees_it():
    client = FakeClient()
    assert len(RemoteReplay(client, "train")) == 5
    assert len(RemoteReplay(client, "eval")) == 7
    assert RemoteReplay(client, "train").total == 123
    RemoteReplay(client, "train").update({"stepid": np.zeros(2)})
    assert client.calls[0][0] == "update"
