"""Track: what is seen, and what random and perfect play earn."""

import numpy as np
import pytest

from embodied import envs
from embodied.testing import check_env

LENGTH = 16


def play(env, policy, episodes):
    """Mean score of a policy from positions to moves."""
    scores = []
    for _ in range(episodes):
        obs, score = env.step({"action": 1, "reset": True}), 0.0
        while not obs["is_last"]:
            cells = [int(np.argmax(obs[key])) for key in ("agent", "target")]
            obs = env.step({"action": policy(*cells), "reset": False})
            score += obs["reward"]
        scores.append(score)
    return np.mean(scores)


@pytest.mark.parametrize("discrete", [False, True])
def test_contract(discrete):
    assert check_env(lambda: envs.make("track_7", discrete=discrete)) > 5


def test_perfect_play():
    env = envs.make("track_7", seed=1)
    score = play(env, lambda agent, target: int(np.sign(target - agent)) + 1, 500)
    assert score == pytest.approx(14.57, abs=0.3)


def test_random_play():
    env, rng = envs.make("track_7", seed=1), np.random.default_rng(0)
    score = play(env, lambda agent, target: int(rng.integers(3)), 500)
    assert score == pytest.approx(2.29, abs=0.4)


def test_both_views_show_the_same():
    vectors, numbers = (envs.make("track_7", seed=3, discrete=d) for d in (False, True))
    for step in range(40):
        action = {"action": step % 3, "reset": step % (LENGTH + 1) == 0}
        seen, number = vectors.step(action), numbers.step(action)
        for key in ("agent", "target"):
            assert seen[key].tolist() == np.eye(7)[number[key]].tolist()
        assert seen["reward"] == (number["agent"] == number["target"]) * (
            not seen["is_first"]
        )
