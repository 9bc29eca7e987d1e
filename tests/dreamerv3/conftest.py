"""Spaces, tiny configs and random batches for tests of the agent."""

from __future__ import annotations

import pathlib
import tempfile

import elements
import numpy as np
import pytest
from elements import Space

from dreamerv3.agent import Agent
from dreamerv3.settings import config as settings

FLAGS = {
    "reward": Space(np.float32),
    "is_first": Space(bool),
    "is_last": Space(bool),
    "is_terminal": Space(bool),
}
# The observations and actions of the dummy environment.
OBS = FLAGS | {
    "image": Space(np.uint8, (64, 64, 3)),
    "vector": Space(np.float32, (7,)),
    "token": Space(np.int32, (), 0, 256),
    "count": Space(np.float32),
    "float2d": Space(np.float32, (4, 5)),
    "int2d": Space(np.int32, (2, 3), 0, 4),
    "log/info": Space(np.float32),
}
ACT = {
    "act_disc": Space(np.int32, (), 0, 5),
    "act_cont": Space(np.float32, (6,), -1, 1),
    "reset": Space(bool),
}
SMALL_OBS = FLAGS | {
    "image": Space(np.uint8, (16, 16, 3)),
    "vector": Space(np.float32, (3,)),
    "token": Space(np.int32, (), 0, 5),
}
TINY = {
    "agent.dyn.rssm": {"deter": 32, "hidden": 8, "classes": 4, "stoch": 4},
    r".*\.depth": 4,
    r".*\.units": 8,
    "agent.imag_length": 3,
    "batch_size": 4,
    "batch_length": 6,
    "report_length": 6,
    # Agents of the same shape compile once, also across test runs.
    "jax.cache": str(pathlib.Path(tempfile.gettempdir()) / "dreamerv3-test-cache"),
}


def load_config(*names: str, **updates) -> elements.Config:
    """The agent's config as `make_agent` passes it."""
    blocks = settings.read_blocks()
    config = settings.to_config(blocks.defaults)
    for name in names:
        config = config.update(blocks.presets[name])
    config = config.update(updates)
    top = ("seed", "jax", "batch_size", "batch_length", "report_length")
    top += ("replay_context", "logdir")
    return elements.Config(**config.agent, **{k: config[k] for k in top})


def random_value(rng, space, shape):
    if space.dtype == bool:
        return np.zeros(shape, bool)
    if space.discrete:
        high = 256 if space.dtype == np.uint8 and len(space.shape) == 3 else None
        high = high or int(np.max(space.high))
        return rng.integers(0, high, (*shape, *space.shape)).astype(space.dtype)
    return rng.normal(size=(*shape, *space.shape)).astype(np.float32)


def random_batch(agent, obs_space, act_space, batch, length, seed=0):
    """Sequences as replay serves them, with latents and step ids."""
    rng = np.random.default_rng(seed)
    spaces = {**obs_space, **act_space, **agent.ext_space}
    spaces = {k: v for k, v in spaces.items() if k != "reset" and k[:4] != "log/"}
    data = {k: random_value(rng, v, (batch, length)) for k, v in spaces.items()}
    data["is_first"][:, 0] = True
    data["is_first"][1 % batch, length // 2] = True
    data["is_last"][1 % batch, length // 2 - 1] = True
    data["is_terminal"][1 % batch, length // 2 - 1] = True
    data["stepid"] = rng.integers(0, 255, (batch, length, 20)).astype(np.uint8)
    data["consec"] = np.zeros((batch, length), np.int32)
    return data


def random_obs(obs_space, batch, seed=0, first=False):
    rng = np.random.default_rng(seed)
    obs = {k: random_value(rng, v, (batch,)) for k, v in obs_space.items()}
    obs["is_first"] = np.full(batch, first)
    return obs


class Kit:
    """A tiny agent with what it needs to be fed."""

    obs_space, act_space = SMALL_OBS, ACT
    full_obs_space = OBS
    flags = FLAGS
    batch_size, length = 4, 6
    load_config = staticmethod(load_config)
    config = staticmethod(lambda **kw: load_config(**{**TINY, **kw}))

    def agent(self, obs_space=None, act_space=None, **updates):
        config = load_config(**{**TINY, **updates})
        return Agent(obs_space or self.obs_space, act_space or self.act_space, config)

    def batch(self, agent, seed=0, obs_space=None, act_space=None, size=None):
        length = self.length + agent.model.context
        obs_space, act_space = obs_space or self.obs_space, act_space or self.act_space
        size = size or self.batch_size
        return random_batch(agent, obs_space, act_space, size, length, seed)

    def obs(self, batch=3, seed=0, first=False, obs_space=None):
        return random_obs(obs_space or self.obs_space, batch, seed, first)


@pytest.fixture(scope="session")
def kit():
    return Kit()
