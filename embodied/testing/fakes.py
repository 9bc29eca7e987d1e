"""Small working implementations of the contracts, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core import base, wrappers
from embodied.core.random_agent import draw


class BrokenEnv(wrappers.Wrapper):
    """Raises at step `fail_at` of its life, counted from 1."""

    def __init__(self, env: base.Env, fail_at: int, message: str = "broken on purpose"):
        super().__init__(env)
        self._fail_at = fail_at
        self._message = message
        self._steps = 0

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        self._steps += 1
        if self._steps == self._fail_at:
            raise RuntimeError(self._message)
        return self.env.step(action)


class NumpyAgent(base.Agent):
    """Random actions, a carry that counts, a latent in replay, and one parameter.

    The carry counts the steps of each episode, so that a mixed-up carry shows. The
    latent `count` is that number. Training counts updates and trained steps.
    """

    LATENT = "latent/count"

    def __init__(self, obs_space: base.Spaces, act_space: base.Spaces, seed: int = 0):
        self.obs_space, self.act_space = obs_space, act_space
        self._rng = np.random.default_rng(seed)
        self.updates = 0
        self.trained_steps = 0

    @property
    def ext_space(self) -> base.Spaces:
        return {self.LATENT: elements.Space(np.int32, (), 0, 2**30)}

    def init_policy(self, batch_size: int) -> np.ndarray:
        return np.zeros(batch_size, np.int32)

    def init_train(self, batch_size: int) -> np.ndarray:
        return np.zeros(batch_size, np.int32)

    def init_report(self, batch_size: int) -> np.ndarray:
        return np.zeros(batch_size, np.int32)

    def policy(
        self, carry: np.ndarray, obs: base.Batch, mode: base.Mode = "train"
    ) -> tuple[np.ndarray, base.Batch, base.Batch]:
        carry = np.where(obs[base.IS_FIRST], 0, carry + 1).astype(np.int32)
        spaces = {k: v for k, v in self.act_space.items() if k != base.RESET}
        action = {k: draw(self._rng, v, len(carry)) for k, v in spaces.items()}
        return carry, action, {self.LATENT: carry}

    def train(
        self, carry: np.ndarray, data: base.Batch
    ) -> tuple[np.ndarray, base.Batch, base.Metrics]:
        self.updates += 1
        self.trained_steps += data[base.IS_FIRST].size
        outs = {"replay": {k: data[k] for k in (base.STEPID, self.LATENT) if k in data}}
        return carry + 1, outs, {"loss": 1 / self.updates}

    def report(
        self, carry: np.ndarray, data: base.Batch
    ) -> tuple[np.ndarray, base.Metrics]:
        return carry + 1, {"mean_reward": float(np.mean(data[base.REWARD]))}

    def save(self) -> dict[str, Any]:
        return {
            "rng": self._rng.bit_generator.state,
            "updates": self.updates,
            "trained_steps": self.trained_steps,
        }

    def load(self, data: dict[str, Any], regex: str | None = None) -> None:
        self._rng.bit_generator.state = data["rng"]
        self.updates = data["updates"]
        self.trained_steps = data["trained_steps"]


class ListReplay(base.Replay):
    """Keeps every step of every worker in a list and samples uniformly."""

    def __init__(self, length: int, seed: int = 0):
        self._length = length
        self._rng = np.random.default_rng(seed)
        self.streams: dict[str, list[dict[str, np.ndarray]]] = {}
        self._current: dict[int, str] = {}  # Worker to the name of its stream.
        self._last: dict[int, int] = {}  # Worker to its last sequence number.
        self.updated: list[base.Batch] = []

    def __len__(self) -> int:
        return sum(self._windows(steps) for steps in self.streams.values())

    @property
    def total(self) -> int:
        return sum(map(len, self.streams.values()))

    def add(self, step: base.Step, worker: int = 0, seq: int | None = None) -> bool:
        if seq is not None and not self._follows(worker, seq):
            return False
        stream = self.streams.setdefault(self._current.get(worker, str(worker)), [])
        stored = {
            key: np.array(value) for key, value in step.items() if base.is_stored(key)
        }
        stored[base.STEPID] = np.array([worker, len(stream)], np.int32)
        stream.append(stored)
        return True

    def sample(self, batch: int, mode: base.Mode = "train") -> base.Batch:
        assert len(self), "nothing to sample from"
        sequences = [self._draw() for _ in range(batch)]
        keys = sequences[0][0]
        return {
            key: np.stack([[step[key] for step in steps] for steps in sequences])
            for key in keys
        }

    def update(self, data: base.Batch) -> None:
        self.updated.append(data)

    def stats(self) -> base.Metrics:
        return {"items": len(self)}

    def save(self) -> dict[str, Any]:
        return {"streams": dict(self.streams), "rng": self._rng.bit_generator.state}

    def load(self, data: dict[str, Any]) -> None:
        self.streams = {name: list(steps) for name, steps in data["streams"].items()}
        self._rng.bit_generator.state = data["rng"]

    def _follows(self, worker: int, seq: int) -> bool:
        """Whether a step is new; a gap before it begins a new stream."""
        last = self._last.get(worker)
        if last is not None and seq <= last:
            return False
        if last is not None and seq > last + 1:
            self._current[worker] = f"{worker}/{seq}"
        self._last[worker] = seq
        return True

    def _windows(self, steps: Sequence) -> int:
        return max(0, len(steps) - self._length + 1)

    def _draw(self) -> list[dict[str, np.ndarray]]:
        index = int(self._rng.integers(len(self)))
        for steps in self.streams.values():
            if index < self._windows(steps):
                return steps[index : index + self._length]
            index -= self._windows(steps)
        raise AssertionError("unreachable")


class RecordedOutput:
    """A logger output that keeps what it was given."""

    def __init__(self) -> None:
        self.summaries: list[tuple[int, str, Any]] = []

    def __call__(self, summaries: Sequence[tuple[int, str, Any]]) -> None:
        self.summaries.extend(summaries)

    def values(self, name: str) -> list[Any]:
        """All values of one metric in order."""
        return [value for _, key, value in self.summaries if key == name]
