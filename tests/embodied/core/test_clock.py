"""Clocks."""

import pytest

from embodied.core.clock import Every, Ratio, Seconds


def test_every_is_due_once_per_interval():
    every = Every(10)
    due = [step for step in range(0, 35) if every(step)]
    assert due == [0, 10, 20, 30]


def test_every_catches_up_without_repeats():
    every = Every(10)
    assert [every(step) for step in (0, 25, 27, 30)] == [True, True, False, True]


def test_every_zero_is_never_due():
    assert not any(Every(0)(step) for step in range(5))


def test_every_restores():
    every, other = Every(10), Every(10)
    every(0)
    other.load(every.save())
    assert [other(9), other(10)] == [False, True]


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0, 2.5])
def test_ratio_counts_exactly(ratio):
    clock = Ratio(ratio)
    total = sum(clock(step) for step in range(100, 1101, 10))
    assert total == int(1000 * ratio)


def test_ratio_goes_on_after_restore():
    clock = Ratio(0.25)
    before = sum(clock(step) for step in range(0, 51))
    other = Ratio(0.25)
    other.load(clock.save())
    after = sum(other(step) for step in range(51, 101))
    assert before + after == 25


def test_ratio_that_changed_starts_counting_anew():
    clock, other = Ratio(1.0), Ratio(2.0)
    clock(0)
    clock(100)
    other.load(clock.save())
    assert other(100) == 0
    assert other(110) == 20


def test_seconds_follows_its_clock():
    times = iter([0.0, 5.0, 10.0, 12.0, 25.0, 26.0])
    clock = Seconds(10, now=lambda: next(times))
    assert [clock() for _ in range(5)] == [False, True, False, True, False]
