"""Streams: contents, errors, and going on after a restore."""

import threading

import numpy as np
import pytest

from embodied import streams
from embodied.core import base
from embodied.testing import check_stream


class Count(base.Stream):
    """Sequences [B, T] that count up, with a position to save."""

    def __init__(self, batch=2, length=7):
        self._shape = (batch, length)
        self._next = 0

    def __next__(self):
        start = self._next
        self._next += 1
        steps = np.arange(self._shape[1]) + 100 * start
        return {"value": np.broadcast_to(steps, self._shape)}

    def save(self):
        return self._next

    def load(self, data):
        self._next = data


def double(batch, times=2):
    return {key: times * value for key, value in batch.items()}


def mixer():
    return streams.Mixer({"a": Count(), "b": Count()}, {"a": 1, "b": 3}, seed=1)


MAKERS = {
    "map": lambda: streams.Map(Count(), double, 3),
    "zip": lambda: streams.Zip([Count(), Count()]),
    "mixer": mixer,
    "consec": lambda: streams.Consec(Count(), length=2, consec=3, prefix=1),
    "prefetch": lambda: streams.Prefetch(Count(), amount=2),
    "prefetched consec": lambda: streams.Prefetch(MAKERS["consec"]()),
}


@pytest.mark.parametrize("name", MAKERS)
def test_contract(name):
    check_stream(MAKERS[name])


def test_stateless_calls_its_function():
    calls = iter(range(10))
    stream = streams.Stateless(lambda base: base + next(calls), 100)
    assert [next(stream), next(stream)] == [100, 101]
    assert stream.save() is None


def test_consec_cuts_context_and_chunks():
    stream = streams.Consec(Count(), length=2, consec=3, prefix=1)
    chunks = [next(stream) for _ in range(4)]
    values = [chunk["value"][0].tolist() for chunk in chunks]
    assert values == [[0, 1, 2], [2, 3, 4], [4, 5, 6], [100, 101, 102]]
    assert [chunk["consec"].tolist() for chunk in chunks] == [
        [0, 0],
        [1, 1],
        [2, 2],
        [0, 0],
    ]


def test_consec_refuses_a_wrong_length_by_key():
    with pytest.raises(ValueError, match=r"'value' have 7 steps.*need 5"):
        next(streams.Consec(Count(), length=2, consec=2, prefix=1))
    with pytest.raises(ValueError, match=r"'value' have 7 steps.*need 9"):
        next(streams.Consec(Count(), length=4, consec=2, prefix=1, strict=False))
    short = streams.Consec(Count(), length=2, consec=2, prefix=1, strict=False)
    assert next(short)["value"].shape == (2, 3)


def test_consec_makes_contiguous_arrays():
    stream = streams.Consec(Count(), length=2, consec=3, prefix=1, contiguous=True)
    assert next(stream)["value"].flags.c_contiguous


def test_mixer_draws_by_weight():
    first = streams.Stateless(lambda: "a")
    second = streams.Stateless(lambda: "b")
    stream = streams.Mixer({"a": first, "b": second}, {"a": 0.25, "b": 0.75})
    drawn = [next(stream) for _ in range(2000)]
    assert 400 < drawn.count("a") < 600


def test_mixer_refuses_bad_weights():
    with pytest.raises(ValueError, match="weights"):
        streams.Mixer({"a": Count()}, {"b": 1})
    with pytest.raises(ValueError, match="not all zero"):
        streams.Mixer({"a": Count()}, {"a": 0})


def test_prefetch_runs_ahead_by_its_amount():
    produced = threading.Semaphore(0)
    source = streams.Stateless(produced.release)
    stream = streams.Prefetch(source, amount=3)
    for _ in range(3):
        assert produced.acquire(timeout=10)
    stream.close()
    assert not produced.acquire(blocking=False)


def test_prefetch_raises_the_error_of_its_source():
    values = iter([1, 2])
    stream = streams.Prefetch(streams.Stateless(lambda: 10 // (2 - next(values))))
    assert next(stream) == 10
    with pytest.raises(ZeroDivisionError):
        next(stream)
    with pytest.raises(ZeroDivisionError):
        next(stream)


def test_prefetch_ends_when_closed():
    stream = streams.Prefetch(Count(), amount=1)
    next(stream)
    stream.close()
    remaining = list(stream)
    assert len(remaining) <= 1
