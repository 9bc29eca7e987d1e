"""Seeds become means and bands; scores are related to random and human."""

import numpy as np
import pytest

from dreamerv3.viewing import groups, normalise
from dreamerv3.viewing.store import SCORE, Store


@pytest.fixture
def store(make_run, tmp_path):
    for seed in range(3):
        make_run(f"a{seed}", task="atari_pong", seed=seed).add_episodes(40, offset=seed)
    make_run("b", task="atari_pong", method="other").add_episodes(20)
    make_run("c", task="dummy_disc").add_episodes(20)
    make_run("empty", task="dummy_disc")
    store = Store([str(tmp_path / "logdir")])
    store.read_all()
    return store


def test_groups_by_task_and_method(store):
    found = groups.collect(store.all(), SCORE, bins=10)
    names = [(group.task, group.method, len(group.seeds)) for group in found]
    assert names == [
        ("atari_pong", "dreamerv3", 3),
        ("atari_pong", "other", 1),
        ("dummy_disc", "dreamerv3", 1),
    ]
    pong, other, _ = found
    np.testing.assert_allclose(pong.std, np.std([0, 1, 2]), rtol=1e-5)
    np.testing.assert_allclose(pong.mean[0], np.mean([0, 0.1, 0.2, 0.3]) + 1, rtol=1e-5)
    assert np.isnan(other.mean[-3:]).all()  # It trained half as long.
    np.testing.assert_allclose(pong.final(), pong.seeds[:, -1])


def test_over_time(store):
    found = groups.collect(store.all(), SCORE, "time", bins=10)
    assert found[0].x[-1] < 40
    assert groups.collect(store.all(), "missing") == []


def test_all_atari_games_have_scores():
    known = normalise.baselines()
    assert len(known) == 2 * 57
    assert known["atari_pong"] == (-20.7, 14.6)
    assert normalise.plain("atari_MsPacman") in known
    assert normalise.plain("atari100k_up_n_down") in known
    assert all(human > random for random, human in known.values())


def test_random_is_zero_and_human_is_one(store):
    known = normalise.baselines()
    pong, other, dummy = groups.collect(store.all(), SCORE, bins=10)
    assert normalise.normalised(dummy, known) is None
    level = pong._replace(seeds=np.full((3, 10), -20.7), mean=np.full(10, 14.6))
    level = normalise.normalised(level, known)
    np.testing.assert_allclose(level.seeds, 0, atol=1e-9)
    np.testing.assert_allclose(level.mean, 1)
    (first, second) = normalise.summarise(
        [normalise.normalised(pong, known), normalise.normalised(other, known)]
    )
    assert (first.method, first.tasks, first.runs) == ("dreamerv3", 1, 3)
    expected = (pong.final().mean() + 20.7) / 35.3
    np.testing.assert_allclose([first.mean, first.median], expected)
    assert first.mean > second.mean


def test_interquartile_mean():
    assert normalise.interquartile_mean(np.array([5.0])) == 5
    assert normalise.interquartile_mean(np.array([1.0, 2, 3, 100])) == 2.5
    values = np.random.default_rng(0).normal(size=6)
    middle = np.sort(values)[1:5]  # Of the outer two of them, half.
    expected = (middle * [0.5, 1, 1, 0.5]).sum() / 3
    np.testing.assert_allclose(normalise.interquartile_mean(values), expected)
