"""Which items the selectors choose, and how often."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied.replay import (
    Mixture,
    Prioritized,
    Recency,
    Replay,
    Uniform,
    make_selector,
)
from embodied.replay.sumtree import SumTree
from embodied.testing.replay_model import make_step

COUNT = 20_000


def frequencies(selector, head, tail, count=COUNT):
    rng = np.random.default_rng(0)
    ids = selector.sample(rng, head, tail, count)
    assert ids.min() >= head
    assert ids.max() < tail
    return np.bincount(ids - head, minlength=tail - head) / count


def test_uniform():
    assert np.allclose(frequencies(Uniform(), 100, 110), 0.1, atol=0.01)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_recency(exponent):
    got = frequencies(Recency(exponent), 50, 70)[::-1]
    edges = np.arange(21) + 1.0
    power = 1 - exponent
    mass = np.diff(np.log(edges) if power == 0 else edges**power / power)
    assert np.allclose(got, mass / mass.sum(), atol=0.012)


def test_prioritized():
    selector = Prioritized(exponent=0.5, initial=4.0)
    selector.change(1, 11)
    selector.update(np.arange(1, 6), np.array([0.0, 1.0, 9.0, 16.0, np.nan]))
    expect = np.array([0, 1, 3, 4, 2, 2, 2, 2, 2, 2]) / 20
    assert np.allclose(frequencies(selector, 1, 11), expect, atol=0.01)


def test_prioritized_new_items_get_the_highest_priority_so_far():
    selector = Prioritized(exponent=1.0)
    selector.change(1, 3)
    selector.update(np.array([1, 2]), np.array([1.0, 5.0]))
    selector.change(1, 4)
    assert np.allclose(frequencies(selector, 1, 4), [1 / 11, 5 / 11, 5 / 11], atol=0.01)


def test_prioritized_evicts_and_grows():
    selector = Prioritized(exponent=1.0, initial=1.0)
    for tail in range(2, 5000, 7):
        selector.change(max(1, tail - 1500), tail)
    head, tail = selector._head, selector._tail
    selector.update(np.array([head, head - 1]), np.array([1500.0, 1e9]))
    got = frequencies(selector, head, tail)
    assert abs(got[0] - 0.5) < 0.02
    selector.change(tail - 1, tail)
    assert frequencies(selector, tail - 1, tail, 10)[0] == 1


def test_prioritized_zero_on_sample():
    selector = Prioritized(exponent=1.0, zero_on_sample=True)
    selector.change(1, 9)
    rng = np.random.default_rng(0)
    seen = [int(selector.sample(rng, 1, 9, 1)[0]) for _ in range(8)]
    assert sorted(seen) == list(range(1, 9))
    assert 1 <= selector.sample(rng, 1, 9, 1)[0] < 9


def test_mixture_follows_its_fractions():
    priority = Prioritized(exponent=1.0, initial=1.0)
    parts = {"uniform": Uniform(), "priority": priority, "recency": Recency()}
    fracs = {"uniform": 0.5, "priority": 0.5, "recency": 0.0}
    selector = Mixture(parts, fracs)
    assert selector.prioritized
    selector.change(1, 11)
    selector.update(np.arange(1, 11), np.eye(10)[3])
    got = frequencies(selector, 1, 11)
    assert abs(got[3] - 0.55) < 0.02
    assert abs(got[0] - 0.05) < 0.01


def test_mixture_checks_its_fractions():
    with pytest.raises(ValueError, match="sum to 1"):
        Mixture({"a": Uniform()}, {"a": 0.5})
    with pytest.raises(ValueError, match="fractions"):
        Mixture({"a": Uniform()}, {"b": 1.0})


def test_selector_of_the_default_configuration():
    fracs = {"uniform": 1.0, "priority": 0.0, "recency": 0.0}
    priority = {"exponent": 0.8, "initial": np.inf, "zero_on_sample": True}
    selector = make_selector(fracs, priority, {"exponent": 1.0})
    assert not selector.prioritized
    assert np.allclose(frequencies(selector, 1, 11), 0.1, atol=0.01)
    with pytest.raises(ValueError, match="unknown"):
        make_selector({"other": 1.0})


@settings(deadline=None, max_examples=100)
@given(
    leaves=st.integers(1, 40),
    writes=st.lists(st.tuples(st.integers(0, 39), st.floats(0, 1e6)), max_size=30),
    draws=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=20),
)
def test_sum_tree_against_cumulative_sums(leaves, writes, draws):
    tree = SumTree(leaves)
    values = np.zeros(tree.leaves)
    for index, value in writes:
        tree[np.array([index % leaves])] = value
        values[index % leaves] = value
    assert np.allclose(tree.total, values.sum())
    assert (tree[np.arange(tree.leaves)] == values).all()
    if values.sum() > 0:
        found = tree.draw(np.array(draws))
        assert (values[found] > 0).all()
        sums = np.concatenate([[0], np.cumsum(values)])
        target, slack = np.array(draws) * values.sum(), 1e-6 * values.sum()
        assert (sums[found] <= target + slack).all()
        assert (sums[found + 1] >= target - slack).all()


def test_priorities_decide_what_the_replay_serves_also_after_a_restart(tmp_path):
    def open_replay():
        selector = Prioritized(exponent=1.0, initial=1e-6)
        return Replay(4, 100, tmp_path, chunksize=5, selector=selector)

    replay = open_replay()
    for index in range(40):
        replay.add(make_step(1, index), 1)
    batch = replay.sample(500)
    wanted = np.isin(batch["code"], [1013, 1014])
    replay.update({"stepid": batch["stepid"], "priority": wanted.astype(np.float32)})
    for _ in range(2):
        codes = replay.sample(200)["code"]
        assert np.isin(codes, [1013, 1014]).any(1).all()
        # A window that holds both has twice the priority of one that holds one.
        both = (codes == 1013).any(1) & (codes == 1014).any(1)
        assert 0.6 < both.mean() < 0.9
        replay.close()
        replay = open_replay()
    replay.close()


def test_bad_priorities_are_refused():
    replay = Replay(2, 10, selector=Prioritized())
    for index in range(4):
        replay.add(make_step(1, index), 1)
    batch = replay.sample(1)
    with pytest.raises(ValueError, match="finite"):
        replay.update({"stepid": batch["stepid"], "priority": -np.ones((1, 2))})
    replay.close()
