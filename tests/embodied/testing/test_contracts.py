"""The contract suites catch what they are for."""

import numpy as np
import pytest

from embodied.core import base, wrappers
from embodied.core.random_agent import RandomAgent
from embodied.envs.dummy import Dummy
from embodied.testing import ListReplay, check_agent, check_env, check_replay


class Changed(wrappers.Wrapper):
    """Overrides observation values."""

    def __init__(self, change):
        super().__init__(Dummy(length=10))
        self._change = change

    def step(self, action):
        obs = self.env.step(action)
        return {**obs, **self._change(obs)}


BROKEN = {
    "is_first": lambda obs: {"is_first": np.bool_(False)},
    "first reward": lambda obs: {"reward": np.float32(1)},
    "terminal step must be last": lambda obs: {
        "is_terminal": ~obs["is_first"],
        "is_last": np.bool_(False),
    },
    "'vector' is not finite": lambda obs: {"vector": obs["vector"] * np.nan},
}


@pytest.mark.parametrize("message", BROKEN)
def test_env_suite_catches(message):
    with pytest.raises((AssertionError, ValueError), match=message):
        check_env(lambda: Changed(BROKEN[message]))


def test_agent_suite_catches_a_missing_action():
    class Broken(RandomAgent):
        def policy(self, carry, obs, mode="train"):
            carry, action, outs = super().policy(carry, obs, mode)
            return carry, {"act_disc": action["act_disc"]}, outs

    env = Dummy()
    spaces = env.obs_space, env.act_space
    with pytest.raises(AssertionError, match="act_cont"):
        check_agent(lambda: Broken(*spaces), *spaces)


def test_agent_suite_catches_a_lossy_save():
    class Broken(RandomAgent):
        def load(self, data, regex=None):
            pass

    env = Dummy()
    spaces = env.obs_space, env.act_space
    seeds = iter(range(10))
    with pytest.raises(AssertionError, match="at '/rng/state"):
        check_agent(lambda: Broken(*spaces, seed=next(seeds)), *spaces)


def test_replay_suite_passes_the_simple_one():
    check_replay(lambda: ListReplay(4), length=4)


def test_replay_suite_catches_mixed_streams():
    class Broken(ListReplay):
        def add(self, step, worker=0, seq=None):
            return super().add(step, worker // 2, seq)

    with pytest.raises(AssertionError):
        check_replay(lambda: Broken(4), length=4)


def test_replay_suite_catches_stored_log_keys(monkeypatch):
    monkeypatch.setattr(base, "LOG_PREFIX", "other/")
    with pytest.raises(AssertionError, match="log/ keys are not stored"):
        check_replay(lambda: ListReplay(4), length=4)
