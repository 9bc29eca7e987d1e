"""Crafter on the real package."""

import numpy as np
import pytest

pytest.importorskip("crafter")

from embodied import envs
from embodied.testing import check_env

RESET = {"action": 0, "reset": True}


def test_contract():
    assert check_env(lambda: envs.make("crafter_reward", length=20), steps=70) >= 2


def test_spaces_of_the_benchmark():
    env = envs.make("crafter_reward")
    assert env.obs_space["image"].shape == (64, 64, 3)
    assert env.act_space["action"].high == 17
    logged = [key for key in env.obs_space if key.startswith("log/achievement_")]
    assert len(logged) == 22


def rollout(task, steps=100, seed=3):
    env, rng = envs.make(task, seed=seed), np.random.default_rng(0)
    first = env.step(RESET)
    actions = rng.integers(0, 17, steps)
    return [first, *(env.step({"action": a, "reset": False}) for a in actions)]


def test_achievements_are_counted_and_rewarded():
    obs = rollout("crafter_reward")
    unlocked = np.array([o["log/achievements"] for o in obs])
    assert unlocked[0] == 0
    assert unlocked[-1] > 0
    gained = np.flatnonzero(np.diff(unlocked)) + 1
    assert all(obs[index]["reward"] > 0.5 for index in gained)
    counts = [v for k, v in obs[-1].items() if k.startswith("log/achievement_")]
    assert np.count_nonzero(counts) == unlocked[-1]


def test_without_reward_the_world_is_the_same():
    given, hidden = rollout("crafter_reward"), rollout("crafter_noreward")
    np.testing.assert_array_equal(given[-1]["image"], hidden[-1]["image"])
    assert not any(o["reward"] for o in hidden)
    rewards = [[o["log/reward"] for o in obs] for obs in (given, hidden)]
    np.testing.assert_array_equal(*rewards)


def test_a_cut_episode_is_not_terminal_and_a_death_is():
    env = envs.make("crafter_reward", length=20)
    obs = env.step(RESET)
    while not obs["is_last"]:
        obs = env.step({"action": 0, "reset": False})
    assert not obs["is_terminal"]
    env.step(RESET)
    env._env._player.health = 0
    obs = env.step({"action": 0, "reset": False})
    assert obs["is_last"]
    assert obs["is_terminal"]
