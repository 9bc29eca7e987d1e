"""The Behaviour Suite for Reinforcement Learning: 23 experiments of many settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import bsuite
import elements
import numpy as np
from bsuite import sweep
from bsuite.logging import csv_logging

from embodied.core import base
from embodied.envs.dm_env import DmEnv
from embodied.envs.registry import TaskError


class BSuite(DmEnv):
    """Task `experiment/setting`, for example `catch/0`.

    What an experiment measures, such as the total regret, is logged as `log/NAME`.
    With `record`, a directory, the results are also written there in the suite's own
    CSV format for its analysis. Where a setting has a seed, it is kept.
    """

    def __init__(self, name: str, seed: int = 0, record: str = ""):
        if name not in sweep.SWEEP:
            experiments = sorted({key.split("/")[0] for key in sweep.SWEEP})
            remedy = (
                f"give experiment/setting, as catch/0, of: {', '.join(experiments)}"
            )
            raise TaskError(f"bsuite_{name}", "there is no such setting", remedy)
        settings = dict(sweep.SETTINGS[name])
        if settings.get("seed", 0) is None:
            settings["seed"] = seed
        try:
            env = bsuite.load(name.split("/")[0], settings)
        except OSError as error:
            remedy = "connect to the internet for the first run, or choose another one"
            rule = f"its data set could not be fetched ({error})"
            raise TaskError(f"bsuite_{name}", rule, remedy) from None
        if record:
            env = csv_logging.wrap_environment(env, name, record, overwrite=True)
        super().__init__(env)
        self._measures = tuple(env.bsuite_info())

    @property
    def obs_space(self) -> base.Spaces:
        logs = {_log(name): elements.Space(np.float32) for name in self._measures}
        return {**super().obs_space, **logs}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = super().step(action)
        info = self._env.bsuite_info()
        return {**obs, **{_log(name): np.float32(info[name]) for name in info}}


def _log(measure: str) -> str:
    return f"{base.LOG_PREFIX}{measure}"
