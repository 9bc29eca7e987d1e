"""Calls of many threads, one at a time and in order."""

import collections
import threading

import pytest

from embodied.replay.combining import CombiningLock


def start(function, *args):
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


def test_returns_and_raises_what_the_call_does():
    lock = CombiningLock()
    assert lock.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        lock.run(divmod, 7, 0)
    assert lock.run(int, "11", base=2) == 3


def test_a_call_is_left_to_the_thread_that_is_at_it():
    lock, entered, go_on = CombiningLock(), threading.Event(), threading.Event()
    arrived = threading.Semaphore(0)
    makers, errors = [], []

    class Calls(collections.deque):
        def append(self, call):
            super().append(call)
            arrived.release()

    def block():
        entered.set()
        assert go_on.wait(10)

    def fail():
        makers.append(threading.current_thread())
        raise ValueError("mine")

    def leave():
        try:
            lock.run(fail)
        except ValueError as error:
            errors.append(str(error))

    first = start(lock.run, block)
    assert entered.wait(10)
    lock._calls = Calls()
    others = [start(leave) for _ in range(3)]
    for _ in others:
        assert arrived.acquire(timeout=10)
    go_on.set()
    for thread in [first, *others]:
        thread.join(10)
        assert not thread.is_alive()
    assert errors == ["mine"] * 3
    assert first in makers


@pytest.mark.parametrize("limit", [1, 64])
def test_many_threads_never_at_once_and_none_is_forgotten(limit):
    lock, inside, counts = CombiningLock(), threading.Lock(), []
    lock.ROUND = limit

    def count(value):
        assert inside.acquire(blocking=False), "two calls at once"
        counts.append(value)
        inside.release()
        return value

    results: list[list[int]] = [[] for _ in range(8)]

    def work(index):
        for step in range(500):
            results[index].append(lock.run(count, index * 1000 + step))

    threads = [start(work, index) for index in range(8)]
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert len(counts) == 4000
    for index, found in enumerate(results):
        assert found == list(range(index * 1000, index * 1000 + 500))
        assert [x for x in counts if x // 1000 == index] == found


def test_an_interrupt_reaches_the_thread_and_leaves_nothing_locked():
    lock = CombiningLock()

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lock.run(interrupt)
    assert lock.run(int, "3") == 3
