"""The random agent and the numpy test agent."""

import elements
import numpy as np
import pytest

from embodied.core.random_agent import RandomAgent, draw
from embodied.envs.dummy import Dummy
from embodied.testing import NumpyAgent, check_agent


@pytest.mark.parametrize("cls", [RandomAgent, NumpyAgent])
def test_contract(cls):
    env = Dummy()
    spaces = env.obs_space, env.act_space
    check_agent(lambda: cls(*spaces), *spaces)


def test_draws_cover_the_space():
    rng = np.random.default_rng(0)
    discrete = draw(rng, elements.Space(np.int32, (2,), 1, 4), 500)
    assert set(discrete.ravel().tolist()) == {1, 2, 3}
    bounded = draw(rng, elements.Space(np.float32, (), -3, 5), 500)
    assert -3 <= bounded.min() < -2
    assert 4 < bounded.max() <= 5
    free = draw(rng, elements.Space(np.float32), 500)
    assert np.abs(free).max() <= 1
    assert set(draw(rng, elements.Space(bool), 100).tolist()) == {False, True}


def test_same_seed_same_actions():
    env = Dummy()
    obs = {"is_first": np.ones(3, bool)}
    first, second, third = (
        RandomAgent(env.obs_space, env.act_space, seed).policy((), obs)[1]
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first["act_cont"], second["act_cont"])
    assert not np.array_equal(first["act_cont"], third["act_cont"])
