"""Batches on their way to the devices: how far ahead they are read."""

import itertools
import threading

import pytest

from embodied.jax.batches import device_stream


class Source:
    """Counts; tells when so many were read."""

    def __init__(self, notify_at=0, lookahead=None):
        self._count = itertools.count()
        self._notify_at = notify_at
        self.reached = threading.Event()
        if lookahead is not None:
            self.lookahead = lookahead

    def __iter__(self):
        return self

    def __next__(self):
        number = next(self._count)
        if number == self._notify_at:
            self.reached.set()
        return number


def put(number):
    return {"number": number}


@pytest.mark.parametrize("depth", [0, -1])
def test_in_line(depth):
    source = Source()
    stream = device_stream(source, put, depth)
    assert not source.reached.is_set()
    assert [next(stream)["number"] for _ in range(3)] == [0, 1, 2]


def test_a_thread_reads_ahead():
    source = Source(notify_at=1)
    stream = device_stream(source, put, 2)
    assert source.reached.wait(10)
    assert [next(stream)["number"] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_a_source_that_is_about_now_is_not_read_ahead():
    source = Source(lookahead=0)
    stream = device_stream(source, put, 2)
    assert not source.reached.is_set()
    assert next(stream)["number"] == 0
