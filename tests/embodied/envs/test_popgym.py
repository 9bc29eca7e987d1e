"""POPGym on the real package."""

import numpy as np
import pytest

pytest.importorskip("popgym")

import gymnasium
import popgym  # noqa: F401 - registers its environments

from embodied import envs
from embodied.envs.registry import TaskError
from embodied.testing import check_env

IDS = sorted(key for key in gymnasium.registry if key.startswith("popgym-"))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", IDS)
def test_contract(key):
    name = key.removeprefix("popgym-").removesuffix("-v0")
    check_env(lambda: envs.make(f"popgym_{name}"), steps=60)


def test_there_are_three_difficulties_of_each():
    assert sum(key.endswith("Easy-v0") for key in IDS) >= 14
    assert len(IDS) >= 42


def test_repeat_previous_rewards_memory():
    env = envs.make("popgym_RepeatPreviousEasy", seed=3)
    shown = [int(env.step({"action": 0, "reset": True})["obs"])]
    score = 0.0
    while True:
        action = shown[-4] if len(shown) >= 4 else 0
        obs = env.step({"action": action, "reset": False})
        shown.append(int(obs["obs"]))
        score += obs["reward"]
        if obs["is_last"]:
            break
    assert np.isclose(score, 1.0, atol=0.1)
    assert obs["is_terminal"]


def test_unknown_tasks_name_the_nearest():
    with pytest.raises(TaskError, match="popgym_RepeatPreviousEasy"):
        envs.make("popgym_RepeatPrevious")
