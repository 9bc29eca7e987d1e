"""Environments as the agent needs them: by task, seeded and wrapped.

Apart from the rest of training, since machines that only run environments have neither
JAX nor what metrics need.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, rules
from dreamerv3.settings.schema import Settings
from embodied.core import base, batchenv, spacefile, wrappers
from embodied.envs import custom, registry
from embodied.envs.tracebacks import user_traceback


def read_config(task: str, argv: Sequence[str]) -> Settings:
    """The settings of a run on this task, with flags of the user's."""
    problems: list[settings.Problem] = []
    typed = flags.parse(["--task", task, *argv], problems)
    values = flags.layer(settings.read_blocks(), typed, {}, problems)
    problems += rules.check(values, flags.SCRIPTS)
    if problems:
        raise settings.ConfigError(problems)
    return settings.to_config(values)


def make_env(
    config: Settings,
    index: int = 0,
    mode: str = "train",
    factory: Callable[..., Any] | None = None,
    **overrides: Any,
) -> base.Env:
    """Environment `index` of the task, seeded and wrapped for the agent."""
    return wrap_env(make_bare_env(config, index, mode, factory, **overrides))


def make_bare_env(
    config: Settings,
    index: int = 0,
    mode: str = "train",
    factory: Callable[..., Any] | None = None,
    **overrides: Any,
) -> base.Env:
    """Environment `index` of the task, seeded, as its suite gives it."""
    if factory:
        custom.hold(config.task, factory)  # In whatever process this is.
    options = {**config.env.get(registry.suite_of(config.task), {}), **overrides}
    seed = env_seed(config.seed, index, mode)
    return registry.make(config.task, seed, index, **options)


def ask_spaces(config: Settings) -> spacefile.Pair:
    """Spaces of the task's environment, which is tried out."""
    env = make_env(config)
    try_reset(env, config.task)
    env.close()
    return env.obs_space, env.act_space


def try_reset(env: base.Env, task: str) -> None:
    """Raise if the first observation fails or breaks its spaces.

    A run would report this again for each restart of each environment.
    """
    action = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
    try:
        env.step({**action, base.RESET: np.array(True)})
    except Exception as error:
        with contextlib.suppress(Exception):  # What is broken may not close, either.
            env.close()
        if isinstance(error, registry.TaskError):
            raise
        if isinstance(error, wrappers.SpaceError):
            remedy = "fix what it returns"
            if not task.startswith(custom.HELD):  # Only this program knows those.
                remedy = f"dreamerv3 check-env {shlex.quote(task)} tries more steps"
            raise registry.TaskError(task, str(error), remedy) from None
        rule = f"its reset raised:\n{user_traceback(error)}"
        raise registry.TaskError(task, rule, "fix the error in the traceback") from None


class EnvFactory:
    """Makes environment `index`, or several that share one simulator."""

    def __init__(
        self,
        config: Settings,
        mode: str = "train",
        factory: Callable[..., Any] | None = None,
    ):
        self._config, self._mode, self._factory = config, mode, factory

    def __call__(self, index: int) -> base.Env:
        return make_env(self._config, index, self._mode, self._factory)

    def together(self, indices: Sequence[int]) -> batchenv.BatchEnv | None:
        """These environments as one, if the suite of the task can do that."""
        task = self._config.task
        seeds = [env_seed(self._config.seed, index, self._mode) for index in indices]
        options = self._config.env.get(registry.suite_of(task), {})
        return registry.make_together(task, seeds, **options)


def env_seed(seed: int, index: int, mode: str) -> int:
    """A seed of its own for each environment, the same in every run of this config."""
    sequence = np.random.SeedSequence([seed, index, mode == "eval"])
    return int(sequence.generate_state(1)[0] // 2)  # Some simulators take int32.


def wrap_env(env: base.Env) -> base.Env:
    """Bounded actions in [-1, 1], few dtypes, and every value checked."""
    continuous = [
        key
        for key, space in env.act_space.items()
        if not space.discrete and key != base.RESET
    ]
    env = wrappers.CheckValues(env)
    for key in continuous:
        env = wrappers.NormalizeAction(env, key)
    env = wrappers.CheckSpaces(wrappers.UnifyDtypes(env), observations=False)
    for key in continuous:
        env = wrappers.ClipAction(env, key)
    return env
