"""Caches the last reply to each environment, for requests that are sent again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from embodied.core import base

# Seconds after which a silent environment is evicted. Exceeds the longest time that
# the agent may take to reply.
FORGET_AFTER = 3600.0


class Answer(NamedTuple):
    """The reply to the newest step of an environment."""

    seq: int
    reply: base.Batch  # Of a batch with other environments.
    row: int


class LastAnswers:
    """Distinguishes new steps from repeated ones by sequence number.

    Clients resend a step after a reconnect. The policy must not advance twice, so a
    repeated step gets its cached reply. An environment whose current episode began
    under an earlier actor has to reset.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        stored: Mapping[int, int] | None = None,
    ):
        """With the last number of each environment that earlier actors `stored`."""
        self._now = now
        self._stored = dict(stored or {})
        self._answers: dict[int, Answer] = {}
        self._heard: dict[int, float] = {}  # Environment to the time of its last step.
        self._next_forget = now() + FORGET_AFTER

    def find_new(
        self, envids: Sequence[int], seqs: Sequence[int], first: Sequence[bool]
    ) -> np.ndarray:
        """Mask of rows that the policy must see: new, and of a known episode."""
        self._heard.update(dict.fromkeys(envids, self._now()))
        newest = {k: self._answers[k].seq for k in envids if k in self._answers}
        rows = np.empty(len(envids), bool)
        for row, (envid, seq) in enumerate(zip(envids, seqs, strict=True)):
            known = newest.get(envid)
            if known is None:
                # A stored step has the action of an earlier actor, which was lost.
                rows[row] = first[row] and seq > self._stored.get(envid, -1)
            else:
                rows[row] = seq > known
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
        """Replies to all rows: `reply` for new ones, cached replies for the rest.

        A row without a cached reply has to reset.
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
