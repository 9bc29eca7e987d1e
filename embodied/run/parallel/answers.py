"""What the actor last answered to each environment, so that it can answer again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from embodied.core import base

# Seconds after which a silent environment is forgotten. Longer than the agent may keep
# it waiting, as it then counts as silent, too.
FORGET_AFTER = 3600.0


class Answer(NamedTuple):
    """The reply to the newest step of an environment."""

    seq: int
    reply: base.Batch  # Of a batch with other environments.
    row: int


class LastAnswers:
    """Tells new steps of environments from repeated ones, by their sequence numbers.

    A client sends a step again after it lost its connection. The policy must not
    advance twice, so a repeated step gets the answer that it got the first time. An
    environment in the middle of an episode of which the actor knows nothing, since it
    replaced another one, has to start a new episode.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic):
        self._now = now
        self._answers: dict[int, Answer] = {}
        self._heard: dict[int, float] = {}  # Environment to the time of its last step.
        self._next_forget = now() + FORGET_AFTER

    def find_new(
        self, envids: Sequence[int], seqs: Sequence[int], first: Sequence[bool]
    ) -> np.ndarray:
        """Rows for the policy: neither repeated nor of an unknown episode."""
        self._heard.update(dict.fromkeys(envids, self._now()))
        newest = {k: self._answers[k].seq for k in envids if k in self._answers}
        rows = np.empty(len(envids), bool)
        for row, (envid, seq) in enumerate(zip(envids, seqs, strict=True)):
            known = newest.get(envid)
            rows[row] = first[row] if known is None else seq > known
            if rows[row]:
                newest[envid] = seq
        return rows

    def keep(
        self, envids: Sequence[int], seqs: Sequence[int], reply: base.Batch
    ) -> None:
        """Note the answers to new steps, one row each."""
        for row, (envid, seq) in enumerate(zip(envids, seqs, strict=True)):
            self._answers[envid] = Answer(seq, reply, row)

    def complete(
        self,
        envids: Sequence[int],
        seqs: Sequence[int],
        new: np.ndarray,
        reply: base.Batch,
    ) -> base.Batch:
        """Answers to all rows, from those to the new ones and from memory.

        Without a remembered answer, it is to reset the environment.
        """
        full = {
            key: np.zeros((len(envids), *value.shape[1:]), value.dtype)
            for key, value in reply.items()
        }
        for key, value in reply.items():
            full[key][new] = value
        for row in np.flatnonzero(~new).tolist():
            known = self._answers.get(envids[row])
            if known is None or known.seq != seqs[row]:
                full[base.RESET][row] = True
                continue
            for key, value in known.reply.items():
                full[key][row] = value[known.row]
        return full

    def forget_silent(self) -> list[int]:
        """Forget environments that are gone; returns their numbers."""
        now = self._now()
        if now < self._next_forget:
            return []
        self._next_forget = now + FORGET_AFTER
        gone = [k for k, heard in self._heard.items() if heard < now - FORGET_AFTER]
        for envid in gone:
            del self._heard[envid]
            self._answers.pop(envid, None)
        return gone
