"""Several environments of one process behind one call.

A suite whose simulator steps many environments at once implements `BatchEnv`; all
others are stepped one after the other by `SequentialEnvs`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from embodied.core import base


class BatchEnv(abc.ABC):
    """Environments that are stepped together; each keeps the contract of `Env`.

    Spaces are those of one environment. Leaves of actions and observations have a
    leading dimension of `len(self)`, and dtypes are those an agent takes.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of environments."""

    @property
    @abc.abstractmethod
    def obs_space(self) -> base.Spaces:
        """Spaces of one observation by key."""

    @property
    @abc.abstractmethod
    def act_space(self) -> base.Spaces:
        """Spaces of one action by key, including the boolean `reset`."""

    @abc.abstractmethod
    def step(self, action: base.Batch) -> base.Batch:
        """Apply one action (or reset) each and return the next observations."""

    def close(self) -> None:
        """Release what the environments hold. Safe to call more than once."""


class SequentialEnvs(BatchEnv):
    """Independent environments, stepped one after the other."""

    def __init__(self, envs: Sequence[base.Env]):
        assert envs, "there is nothing to step"
        self._envs = list(envs)

    def __len__(self) -> int:
        return len(self._envs)

    @property
    def obs_space(self) -> base.Spaces:
        return self._envs[0].obs_space

    @property
    def act_space(self) -> base.Spaces:
        return self._envs[0].act_space

    def step(self, action: base.Batch) -> base.Batch:
        rows = [
            env.step({key: value[index] for key, value in action.items()})
            for index, env in enumerate(self._envs)
        ]
        return {key: np.stack([row[key] for row in rows]) for key in rows[0]}

    def close(self) -> None:
        for env in self._envs:
            env.close()


class SingleEnv(base.Env):
    """One environment of a simulator that steps batches."""

    def __init__(self, batch: BatchEnv):
        assert len(batch) == 1, len(batch)
        self._batch = batch

    @property
    def obs_space(self) -> base.Spaces:
        return self._batch.obs_space

    @property
    def act_space(self) -> base.Spaces:
        return self._batch.act_space

    def step(self, action: Any) -> dict[str, Any]:
        batch = {key: np.asarray(value)[None] for key, value in action.items()}
        return {key: value[0] for key, value in self._batch.step(batch).items()}

    def close(self) -> None:
        self._batch.close()


def make_batch(make: Callable[[int], base.Env], indices: Sequence[int]) -> BatchEnv:
    """Environments of these indices.

    A factory may have a method `together(indices)` that returns them as one `BatchEnv`
    or, if its task does not allow that, None.
    """
    together = getattr(make, "together", None)
    batch = together(indices) if together else None
    if batch is None:
        return SequentialEnvs([make(index) for index in indices])
    return batch
