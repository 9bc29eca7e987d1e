"""Checks and completes the steps that replay and logger receive."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from embodied.core import base
from embodied.run.parallel import routing

# Purposes of required keys, for error messages.
PURPOSES = {
    routing.ENVID: "the number of the environment that each step belongs to",
    base.REWARD: "the reward of each step",
    base.IS_FIRST: "whether each step is the first of its episode",
    base.IS_LAST: "whether each step is the last of its episode",
    base.IS_TERMINAL: "whether each step ended its episode, other than by a time limit",
}

KINDS = {
    routing.ENVID: "iu",
    routing.SEQ: "iu",
    routing.IS_EVAL: "b",
}  # Of NumPy dtypes.


class StepsError(ValueError):
    """Rejected steps; the message names the key and what is wrong with it."""


def receive(steps: base.Batch, needed: Sequence[str]) -> base.Batch:
    """Checked steps, with defaults for optional keys.

    `envid` and the `needed` keys are required. Without `is_eval`, steps are for
    training. Without `seq`, they are unnumbered: a call that is repeated counts twice.
    """
    if not isinstance(steps, Mapping):
        raise StepsError(f"steps are a dict of arrays, not {type(steps).__name__}")
    for key in (routing.ENVID, *needed):
        if key not in steps:
            raise StepsError(f"'{key}' is missing: {PURPOSES[key]}")
    shape = np.shape(steps[routing.ENVID])
    if len(shape) != 1:
        raise StepsError(
            f"'{routing.ENVID}' has shape {shape}, not one number per step"
        )
    defaults = {
        key: np.full(shape, value, routing.SPACES[key].dtype)
        for key, value in routing.DEFAULTS.items()
        if key not in steps
    }
    steps = {**steps, **defaults}
    for key in (*needed, *routing.SPACES):
        value = steps[key] = np.asarray(steps[key])
        if value.shape != shape:
            raise StepsError(f"'{key}' has shape {value.shape}, not {shape}")
        if key in KINDS and value.dtype.kind not in KINDS[key]:
            wanted = "bool" if key == routing.IS_EVAL else "integers"
            raise StepsError(f"'{key}' has dtype {value.dtype}, not {wanted}")
    envids = steps[routing.ENVID]
    if np.any((envids < 0) | (envids >= routing.MAX_ENVS)):
        raise StepsError(
            f"'{routing.ENVID}' has numbers outside [0, {routing.MAX_ENVS})"
        )
    return steps


class StepNumbers:
    """Numbers steps on behalf of environments that do not number their own.

    The numbers of an environment begin after `first()`, which is beyond all numbers of
    earlier processes. Each is larger than all that were seen or issued for it since.
    """

    def __init__(self, first: Callable[[], int]):
        self._first = first
        self._last: dict[int, int] = {}  # Largest number, once one was issued.
        self._lock = threading.Lock()

    def fill(self, seqs: np.ndarray, envids: np.ndarray) -> np.ndarray:
        """The numbers of steps, including those that were missing."""
        names = envids.tolist()
        with self._lock:
            numbered = not (seqs == routing.UNNUMBERED).any()
            if numbered and self._last.keys().isdisjoint(names):
                return seqs
            filled = list(map(self._number, seqs.tolist(), names))
        return np.asarray(filled, seqs.dtype)

    def _number(self, seq: int, envid: int) -> int:
        if seq == routing.UNNUMBERED:
            if envid not in self._last:
                self._last[envid] = self._first()
            seq = self._last[envid] + 1
        if envid in self._last:
            self._last[envid] = max(seq, self._last[envid])
        return seq
