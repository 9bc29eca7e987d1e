"""The rules of the `Env` contract, each with its name, as something to iterate over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied.core import base, wrappers
from embodied.core.random_agent import draw

MIDWAY = (31, 96)  # Steps at which an episode is abandoned for a new one.

# Names of the rules.
SPACES, VALUES, RANGES = "spaces", "observations", "ranges"
RESETS, ENDS = "resets", "episode ends"

SPECIAL_OBS = {
    base.REWARD: np.float32,
    base.IS_FIRST: np.bool_,
    base.IS_LAST: np.bool_,
    base.IS_TERMINAL: np.bool_,
}


class Breach(NamedTuple):
    """A rule that an environment breaks."""

    rule: str
    text: str


def space_breaches(env: base.Env) -> Iterator[Breach]:
    """What is wrong with the spaces themselves."""
    obs_space, act_space = env.obs_space, env.act_space
    for key, dtype in SPECIAL_OBS.items():
        space = obs_space.get(key)
        if space is None:
            yield Breach(SPACES, f"obs_space lacks '{key}'")
        elif space.dtype != dtype:
            name = np.dtype(dtype).name
            yield Breach(SPACES, f"'{key}' must be {name}, is {space.dtype.name}")
        elif space.shape != ():
            yield Breach(SPACES, f"'{key}' must be a scalar, is {space.shape}")
    if base.RESET not in act_space:
        yield Breach(SPACES, f"act_space lacks '{base.RESET}'")
    elif act_space[base.RESET].dtype != bool:
        yield Breach(SPACES, f"'{base.RESET}' must be bool")
    overlap = sorted(set(obs_space) & set(act_space))
    if overlap:
        yield Breach(SPACES, f"keys in both obs_space and act_space: {overlap}")
    allowed = {*SPECIAL_OBS, base.RESET}
    reserved = sorted(base.RESERVED & ({*obs_space, *act_space} - allowed))
    if reserved:
        yield Breach(SPACES, f"keys {reserved} mean something else here, rename them")


def step_breaches(
    obs: Mapping[str, Any], spaces: base.Spaces, reset: bool
) -> Iterator[Breach]:
    """What is wrong with one observation; `reset` says that it was asked for."""
    missing, extra = sorted(set(spaces) - set(obs)), sorted(set(obs) - set(spaces))
    if missing or extra:
        text = f"observation lacks keys {missing} and has unknown keys {extra}"
        yield Breach(VALUES, text)
    for key in set(spaces) & set(obs):
        try:
            value = np.asarray(obs[key])
            wrappers.check_value(value, spaces[key], f"observation '{key}'")
        except wrappers.RangeError as error:
            yield Breach(RANGES, str(error))
        except ValueError as error:  # Also of lists that are no array.
            yield Breach(VALUES, str(error))
    if not set(SPECIAL_OBS) & set(missing):
        yield from _flag_breaches(obs, reset)


def _flag_breaches(obs: Mapping[str, Any], reset: bool) -> Iterator[Breach]:
    if reset and not obs[base.IS_FIRST]:
        yield Breach(RESETS, "a reset must return is_first")
    if obs[base.IS_FIRST] and obs[base.REWARD] != 0:
        yield Breach(RESETS, "the first reward of an episode must be 0")
    if obs[base.IS_FIRST] and obs[base.IS_TERMINAL]:
        yield Breach(ENDS, "a first step cannot be terminal")
    if obs[base.IS_TERMINAL] and not obs[base.IS_LAST]:
        yield Breach(ENDS, "a terminal step must be last")


class Walk:
    """Steps an environment with random actions and abandons two episodes."""

    def __init__(self, env: base.Env, seed: int = 0):
        self._env = env
        self._rng = np.random.default_rng(seed)
        self._spaces = env.act_space
        self._steps = 0
        self._last = True
        self.reset = False  # Whether the last step was asked to reset.

    def step(self) -> dict[str, Any]:
        self.reset = self._last or self._steps in MIDWAY
        action = {k: draw(self._rng, v, 1)[0] for k, v in self._spaces.items()}
        obs = self._env.step({**action, base.RESET: np.asarray(self.reset)})
        self._last = bool(obs.get(base.IS_LAST, False))
        self._steps += 1
        return obs
