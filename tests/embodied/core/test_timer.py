"""Where time goes: shares, means and counts by section."""

import threading

import pytest

from embodied.core.timer import Timer


class Clock:
    """Time that passes only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_shares_means_and_counts(clock):
    timer = Timer(clock)
    for seconds in (1.0, 2.0):
        with timer.section("train"):
            clock.now += seconds
    with timer.section("wait"):
        clock.now += 0.5
    clock.now += 2.5
    assert timer.stats() == {
        "train/share": pytest.approx(0.5),
        "train/count": 2,
        "train/mean": pytest.approx(1.5),
        "wait/share": pytest.approx(0.5 / 6),
        "wait/count": 1,
        "wait/mean": pytest.approx(0.5),
    }


def test_each_call_is_about_the_time_since_the_last(clock):
    timer = Timer(clock)
    assert timer.stats() == {}
    with timer.section("train"):
        clock.now += 1
    timer.stats()
    clock.now += 1
    assert timer.stats() == {"train/share": 0, "train/count": 0}


def test_a_section_under_way_counts_up_to_now(clock):
    timer = Timer(clock)
    with timer.section("wait"):
        clock.now += 3
        assert timer.stats()["wait/share"] == 1
        clock.now += 1
        assert timer.stats()["wait/share"] == 1
        clock.now += 1
    clock.now += 1
    assert timer.stats()["wait/share"] == pytest.approx(0.5)


def test_an_error_ends_the_section(clock):
    timer = Timer(clock)

    def fail():
        with timer.section("train"):
            clock.now += 1
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        fail()
    clock.now += 1
    assert timer.stats()["train/share"] == pytest.approx(0.5)


def test_threads_add_up(clock):
    timer = Timer(clock)
    inside, leave = threading.Barrier(3), threading.Event()

    def work():
        with timer.section("policy"):
            inside.wait(10)
            leave.wait(10)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait(10)
    clock.now += 2
    leave.set()
    for thread in threads:
        thread.join(10)
    stats = timer.stats()
    assert (stats["policy/share"], stats["policy/count"]) == (2, 2)
