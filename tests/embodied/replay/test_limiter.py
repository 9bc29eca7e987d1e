"""Who has to wait, and for how long."""

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embodied.replay import LimiterClosedError, SamplesPerInsert


def test_minimum_size_comes_first():
    limiter = SamplesPerInsert(0.5, tolerance=4, minsize=10)
    assert not limiter.sample(timeout=0)
    assert limiter.insert(9)
    assert not limiter.sample(timeout=0)
    assert limiter.insert(1)
    assert limiter.sample(timeout=0)


def test_inserts_wait_for_samples_and_samples_for_inserts():
    limiter = SamplesPerInsert(2.0, tolerance=4, minsize=1)
    assert limiter.insert()
    assert [limiter.insert(timeout=0) for _ in range(3)] == [True, True, False]
    assert [limiter.sample(timeout=0) for _ in range(9)] == [True] * 8 + [False]
    assert limiter.insert(timeout=0)
    assert limiter.sample(timeout=0)


@given(
    ratio=st.floats(0.01, 20),
    tolerance=st.integers(1, 100),
    minsize=st.integers(1, 50),
    moves=st.lists(st.tuples(st.booleans(), st.integers(1, 8)), max_size=200),
)
def test_ratio_holds_within_the_tolerance(ratio, tolerance, minsize, moves):
    limiter = SamplesPerInsert(ratio, tolerance, minsize)
    inserts = samples = 0
    for insert, amount in moves:
        if insert:
            inserts += amount * limiter.insert(amount, timeout=0)
        else:
            samples += amount * limiter.sample(amount, timeout=0)
        ahead = ratio * max(0, inserts - minsize) - samples
        assert -tolerance - 8 < ahead < tolerance + 8 * ratio
        assert not samples or inserts >= minsize
        # Never both sides stuck.
        blocked = not limiter._may_insert() and not limiter._may_sample()
        assert not blocked


@given(
    minsize=st.integers(0, 20),
    moves=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=30),
)
def test_steps_taken_back_never_counted(minsize, moves):
    limiter = SamplesPerInsert(0.5, tolerance=10**6, minsize=minsize)
    plain = SamplesPerInsert(0.5, tolerance=10**6, minsize=minsize)
    for amount, repeated in moves:
        limiter.insert(amount + repeated)
        limiter.take_back(repeated)
        plain.insert(amount)
        assert limiter.save() == plain.save()
    assert limiter.stats()["inserts"] == plain.stats()["inserts"]


def test_without_ratio_only_the_minimum_size_counts():
    limiter = SamplesPerInsert(0, tolerance=0, minsize=2)
    assert limiter.insert(1000, timeout=0)
    assert all(limiter.sample(100, timeout=0) for _ in range(100))
    assert limiter.insert(1000, timeout=0)


def test_save_and_load():
    limiter = SamplesPerInsert(1.0, tolerance=3, minsize=2)
    limiter.insert(5)
    other = SamplesPerInsert(1.0, tolerance=3, minsize=2)
    other.load(limiter.save())
    assert other.save() == limiter.save()
    assert not other.insert(timeout=0)
    assert other.sample(timeout=0)


def test_steps_found_in_the_replay_allow_sampling():
    limiter = SamplesPerInsert(1.0, tolerance=3, minsize=10)
    limiter.found(50)
    assert limiter.sample(timeout=0)
    assert limiter.save()["avail"] == -1


def test_threads_wake_each_other_and_waiting_is_measured():
    limiter = SamplesPerInsert(4.0, tolerance=8, minsize=1)
    done = []

    def insert():
        for _ in range(500):
            limiter.insert(timeout=30)
        done.append("insert")

    def sample():
        for _ in range(1996 // 4):
            limiter.sample(4, timeout=30)
        done.append("sample")

    threads = [threading.Thread(target=x) for x in (insert, sample)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(done) == ["insert", "sample"]
    stats = limiter.stats()
    assert (stats["inserts"], stats["samples"], stats["avail"]) == (500, 1996, 0)
    assert stats["insert_wait"] > 0
    assert stats["sample_wait"] >= 0
    assert limiter.stats()["inserts"] == 0


def test_close_wakes_up_those_who_wait():
    limiter = SamplesPerInsert(1.0, tolerance=1, minsize=10)
    outcomes = []

    def sample():
        try:
            limiter.sample()
        except LimiterClosedError:
            outcomes.append("closed")

    thread = threading.Thread(target=sample)
    thread.start()
    limiter.close()
    thread.join(10)
    assert outcomes == ["closed"]
    with pytest.raises(LimiterClosedError):
        limiter.insert()


@pytest.mark.parametrize("args", [(-1, 1, 1), (1, 0, 1), (1, 1, -1)])
def test_bad_settings(args):
    with pytest.raises(ValueError, match="must"):
        SamplesPerInsert(*args)


def test_nobody_waits_for_the_other_before_there_is_a_sequence():
    sequences = []
    limiter = SamplesPerInsert(1.0, tolerance=2, minsize=3, ready=lambda: sequences)
    assert all(limiter.insert(timeout=0) for _ in range(20))
    assert not limiter.sample(timeout=0)
    sequences.append(1)
    assert [limiter.insert(timeout=0) for _ in range(3)] == [True, True, False]
    assert [limiter.sample(timeout=0) for _ in range(5)] == [True] * 4 + [False]
