"""A trained agent to act with: no replay, no servers, no training.

agent = dreamerv3.load("logdir/demo")
env = agent.make_env()
action = agent.reset()
while True:
    obs = env.step(action)
    action = agent.act(obs)

In the original environment of Gymnasium, or in a vector of them:

obs, _ = env.reset()
state = None
while True:
    action, state = agent.predict(obs, state)
    obs, *_ = env.step(action)
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from dreamerv3 import environments, main
from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, rules
from dreamerv3.settings import logdir as directory
from dreamerv3.settings.schema import Settings
from embodied.core import base, runfiles, spacefile
from embodied.core.checkpoint import CheckpointError, read_item
from embodied.envs import original
from embodied.run import restore

# One device that runs the policy, wherever and however the agent was trained.
ALONE = {
    "launcher": "local",  # A cluster need not be there.
    "jax.platform": "auto",  # What this machine has.
    "jax.policy_devices": (0,),
    "jax.train_devices": (0,),
    "jax.mesh": (-1, 1, 1),
    "jax.mock_devices": 0,
    "jax.prealloc": False,
}
# Of every environment; the policy does without them.
GIVEN = (base.REWARD, base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL)


class Player:
    """Acts in one environment or a batch of them and keeps the latents itself."""

    def __init__(self, agent: base.Agent, config: Settings, step: int):
        self.agent, self.config = agent, config
        self.step = step  # Environment steps that the agent was trained for.
        self.obs_space, self.act_space = agent.obs_space, agent.act_space
        self._carry: base.Carry = None
        self._size = 0  # Environments whose latents the carry holds.

    def reset(self, envs: int | None = None) -> base.Batch:
        """Forget all latents; returns the action that starts new episodes.

        It is one action, or a batch of `envs`.
        """
        self._carry, self._size = None, 0
        shape = () if envs is None else (envs,)
        action = {
            key: np.zeros((*shape, *space.shape), space.dtype)
            for key, space in self.act_space.items()
        }
        return {**action, base.RESET: np.ones(shape, bool)[()]}

    def act(self, obs: base.Step) -> base.Batch:
        """Actions for an observation, or for a batch of them with a leading dimension.

        Latents start anew where `is_first` is true. Without that key they do at the
        first call after `reset`. Actions are within `act_space`, and say `reset` where
        `is_last` is true.
        """
        if not isinstance(obs, Mapping):
            raise ValueError(
                f"an observation is a dictionary with the keys {self._keys()}, "
                f"not {type(obs).__name__}"
            )
        single = not self._batched(obs)
        batch = {k: self._array(k, v) for k, v in obs.items()}
        batch = {k: v[None] if single else v for k, v in batch.items()}
        size = len(next(iter(batch.values())))
        first = np.full(size, self._carry is None)
        batch = {base.IS_FIRST: first, **batch}
        if self._carry is None:
            self._carry, self._size = self.agent.init_policy(size), size
        if size != self._size:
            raise ValueError(
                f"there are {size} observations, but the latents are those of "
                f"{self._size} environments: call reset() before their number changes"
            )
        self._carry, action, _ = self.agent.policy(self._carry, batch, "eval")
        action = {k: _clip(v, self.act_space[k]) for k, v in action.items()}
        last = np.asarray(batch.get(base.IS_LAST, np.zeros(size, bool)))
        action = {**action, base.RESET: last}
        return {k: v[0] for k, v in action.items()} if single else action

    def predict(
        self,
        obs: Any,
        state: base.Carry = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[Any, base.Carry]:
        """Action and next state for an observation of the original environment.

        Takes what `gymnasium.make` or, as a batch, `gymnasium.make_vec` gives, and
        returns what they take. `state` is that of the call before; without it, and
        where `episode_start` is true, latents start anew. `deterministic` takes the
        most likely action. Raises `ValueError` for what the space excludes.
        """
        batch, single = self.original.encode_batch(obs)
        size = len(next(iter(batch.values())))
        first = _starts(episode_start, size) if state else np.ones(size, bool)
        carry, held = state or (self.agent.init_policy(size), size)
        if size != held:
            raise ValueError(
                f"there are {size} observations, but the state is that of {held} "
                "environments: give state=None before their number changes"
            )
        batch = {**batch, base.IS_FIRST: first}
        mode: base.Mode = "greedy" if deterministic else "eval"
        carry, action, _ = self.agent.policy(carry, batch, mode)
        return self.original.decode_batch(action, single), (carry, size)

    @functools.cached_property
    def original(self) -> original.Original:
        """The spaces of the Gymnasium environment, and the conversion to ours."""
        tree = original.read(self.config.logdir) or self._ask_original()
        if tree["render"]:
            raise original.OriginalError(
                f"the agent of {self.config.task} sees rendered images, which "
                "observations of the environment lack: use agent.act with "
                "agent.make_env()"
            )
        env = environments.wrap_env(original.rebuild(tree))
        ours = self.obs_space, self.act_space
        found = spacefile.differences(ours, (env.obs_space, env.act_space))
        if found:
            raise original.OriginalError(
                f"the environment of {self.config.task} has changed since training: "
                f"{'; '.join(map(str, found))}"
            )
        return original.Original(env)

    def _ask_original(self) -> dict[str, Any]:
        """The description that runs of older versions lack, from the task."""
        task = self.config.task
        try:
            env = self.make_env()
        except Exception as error:
            raise original.OriginalError(
                f"{self.config.logdir} has no {runfiles.ORIGINAL}, and task '{task}' "
                f"cannot be made here: {error}; load it where it can be made"
            ) from None
        try:
            tree = original.describe(env)
        finally:
            env.close()
        if tree is None:
            raise original.OriginalError(
                f"task '{task}' is not an environment of Gymnasium: use agent.act with "
                "observations of agent.make_env()"
            )
        return tree

    def make_env(self, index: int = 0, **overrides: Any) -> base.Env:
        """The environment it was trained in, with options of its suite changed."""
        return environments.make_env(self.config, index, "eval", **overrides)

    def _batched(self, obs: base.Step) -> bool:
        """Whether observations have a leading dimension; all must agree."""
        ranks = {}
        missing = [key for key in self._keys() if key not in obs]
        if missing:
            raise ValueError(f"the observation lacks {missing}; it has {sorted(obs)}")
        for key, space in self.obs_space.items():
            if key not in obs:
                continue
            shape = np.shape(obs[key])
            extra = len(shape) - len(space.shape)
            if extra not in (0, 1) or shape[extra:] != tuple(space.shape):
                raise ValueError(
                    f"observation '{key}' has shape {shape}; give "
                    f"{space.shape} for one environment or one dimension more for many"
                )
            ranks[key] = bool(extra)
        if len(set(ranks.values())) != 1:
            raise ValueError(f"some observations are batched and some are not: {ranks}")
        return next(iter(ranks.values()))

    def _keys(self) -> list[str]:
        """What an observation must have."""
        return [key for key in sorted(self.obs_space) if key not in GIVEN]

    def _array(self, key: str, value: Any) -> np.ndarray:
        """The value in the type that the agent was trained with."""
        value = np.asarray(value)
        if key not in self.obs_space or value.dtype == self.obs_space[key].dtype:
            return value
        dtype = self.obs_space[key].dtype
        fits = np.can_cast(value.dtype, dtype, "same_kind")
        if not fits and (value.astype(dtype) != value).any():
            raise ValueError(
                f"observation '{key}' has type {value.dtype}, and its values do not "
                f"fit into {dtype}, with which the agent was trained"
            )
        return value.astype(dtype)


def _starts(episode_start: Any, size: int) -> np.ndarray:
    """Where episodes start; a single truth value stands for all."""
    starts = np.asarray(False if episode_start is None else episode_start)
    if starts.shape not in ((), (size,)) or starts.dtype.kind not in "biuf":
        raise ValueError(
            f"episode_start has shape {starts.shape}: give one truth value, or one "
            f"for each of {size} observations"
        )
    return np.broadcast_to(starts.astype(bool), (size,)).copy()


def _clip(action: np.ndarray, space: elements.Space) -> np.ndarray:
    """Into the bounds, which the normal distribution of a policy exceeds."""
    if space.dtype.kind != "f":
        return action
    low, high = (np.asarray(x, action.dtype) for x in (space.low, space.high))
    return np.clip(action, low, high)  # Of doubles it would make doubles.


def load(logdir: str | pathlib.Path, **overrides: Any) -> Player:
    """The agent of a log directory, from its newest complete checkpoint.

    Overrides are settings by key, for example `load(path, **{"jax.platform": "cpu"})`.
    Nothing is unpickled, and the environment's packages are not needed.
    """
    path = pathlib.Path(logdir).expanduser()
    config = read_config(path, overrides)
    source = restore.find_agent(path)
    spaces = spacefile.read(path) or main.ask_spaces(config)
    agent = main.make_agent(config, *spaces, quiet=True)
    agent.load(restore.read_agent(agent, source), regex=".*")  # Its parameters.
    return Player(agent, config, read_item(source, "learner")["step"])


def read_config(path: pathlib.Path, overrides: dict[str, Any]) -> Settings:
    """The settings saved in a log directory, for one process that only acts."""
    saved = directory.load(path)
    if not saved:
        raise CheckpointError(
            f"there is no {runfiles.CONFIG} in {path}: give the log directory of a run"
        )
    problems: list[settings.Problem] = []
    values = settings.read_blocks().defaults
    for layer in (saved, ALONE, {"logdir": str(path)}, overrides):
        values = settings.layer(values, layer, problems)
    wrong = rules.check(values, flags.SCRIPTS)
    problems += [problem for problem in wrong if problem.key in overrides]
    if problems:
        raise settings.ConfigError(problems)
    return settings.to_config(values)
