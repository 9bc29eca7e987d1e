"""Calls of many threads, one at a time."""

import itertools
import threading

import pytest

from embodied.replay.turns import Turns

TIMEOUT = 30


class Gate:
    """A call that a test can keep from returning."""

    def __init__(self):
        self.entered, self.leave = threading.Event(), threading.Event()

    def __call__(self):
        self.entered.set()
        assert self.leave.wait(TIMEOUT)
        return "gate"


class Caller(threading.Thread):
    """Runs one call and keeps what came of it."""

    def __init__(self, turns, function, *args):
        super().__init__()
        self.turns, self.call = turns, (function, *args)
        self.result = self.error = None
        self.start()

    def run(self):
        try:
            self.result = self.turns.run(*self.call)
        except BaseException as error:
            self.error = error


def queue_up(turns, callers, function, *args):
    """Start one more caller and return once it is in the queue."""
    before = len(turns._calls)
    callers.append(Caller(turns, function, *args))
    while len(turns._calls) == before:
        assert callers[-1].is_alive()
        turns._guard.acquire()
        turns._guard.release()


def join(callers):
    for caller in callers:
        caller.join(TIMEOUT)
        assert not caller.is_alive()


def test_calls_keep_their_order_and_get_their_own_results():
    turns, gate, done = Turns(), Gate(), []
    first = Caller(turns, gate)
    assert gate.entered.wait(TIMEOUT)
    callers = []
    for index in range(5):
        queue_up(turns, callers, lambda x: (done.append(x), 10 * x)[1], index)
    assert done == []
    gate.leave.set()
    join([first, *callers])
    assert done == [0, 1, 2, 3, 4]
    assert [x.result for x in (first, *callers)] == ["gate", 0, 10, 20, 30, 40]


def test_who_works_for_others_returns_even_if_more_keep_coming():
    turns, gates, callers = Turns(), [Gate(), Gate(), Gate()], []
    first = Caller(turns, gates[0])
    for gate, following in itertools.pairwise(gates):
        assert gate.entered.wait(TIMEOUT)
        queue_up(turns, callers, following)
        gate.leave.set()
    assert gates[2].entered.wait(TIMEOUT)
    join([first, callers[0]])
    gates[2].leave.set()
    join(callers)


def test_an_error_reaches_its_caller_and_nobody_else():
    turns, gate, callers = Turns(), Gate(), []
    first = Caller(turns, gate)
    assert gate.entered.wait(TIMEOUT)
    queue_up(turns, callers, int, "1")
    queue_up(turns, callers, int, "x")
    queue_up(turns, callers, int, "2")
    gate.leave.set()
    join([first, *callers])
    assert [x.result for x in callers] == [1, None, 2]
    assert [type(x.error) for x in callers] == [type(None), ValueError, type(None)]
    assert turns.run(int, "3") == 3


def interrupt():
    raise KeyboardInterrupt


def test_an_interrupt_of_the_thread_at_work_leaves_nobody_waiting():
    turns, gate, callers = Turns(), Gate(), []
    first = Caller(turns, gate)
    assert gate.entered.wait(TIMEOUT)
    queue_up(turns, callers, interrupt)
    queue_up(turns, callers, int, "1")
    gate.leave.set()
    join([first, *callers])
    assert callers[1].result == 1
    with pytest.raises(KeyboardInterrupt):
        turns.run(interrupt)
    assert turns.run(int, "2") == 2


class Interrupted:
    """A lock whose waiter is interrupted."""

    def __init__(self, lead):
        self._lead = lead

    def acquire(self):
        self._lead()
        raise KeyboardInterrupt

    def release(self):
        pass


@pytest.mark.parametrize("chosen", [False, True])
def test_who_is_interrupted_while_waiting_passes_its_turn_on(monkeypatch, chosen):
    from embodied.replay import turns as module

    turns, gate = Turns(), Gate()
    first = Caller(turns, gate)
    assert gate.entered.wait(TIMEOUT)

    def before():
        if chosen:  # It is this thread's turn already when the interrupt arrives.
            gate.leave.set()
            first.join(TIMEOUT)

    class Call(module._Call):
        def __init__(self, *args):
            super().__init__(*args)
            self.wake = Interrupted(before)

    with monkeypatch.context() as patch:
        patch.setattr(module, "_Call", Call)
        with pytest.raises(KeyboardInterrupt):
            turns.run(pytest.fail, "must not run")
    gate.leave.set()
    first.join(TIMEOUT)
    assert turns.run(int, "4") == 4


def test_many_threads_never_run_at_once():
    turns, inside, total = Turns(), [0], [0]

    def work():
        assert inside[0] == 0
        inside[0] += 1
        total[0] += 1
        inside[0] -= 1

    def repeat():
        for _ in range(500):
            turns.run(work)

    threads = [Caller(Turns(), repeat) for _ in range(6)]  # Each calls `turns`.
    join(threads)
    assert [x.error for x in threads] == [None] * 6
    assert total[0] == 3000
