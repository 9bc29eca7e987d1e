"""Numbers that environments may use: those which launcher and coordinator issued."""

from __future__ import annotations

import contextlib
import pathlib
import time
from collections.abc import Callable

import numpy as np

from embodied import rpc
from embodied.core import base, runfiles
from embodied.process import incarnations
from embodied.process.context import Context
from embodied.run.parallel import membership, routing
from embodied.run.settings import RunSettings

# How far the clock of another machine may be ahead, in nanoseconds, as environments
# without a launcher count from the clock.
AHEAD = 3600 * 10**9
NOT_ISSUED = -1


class NumberError(rpc.RpcError, ValueError):
    """A step whose numbers were not issued to its sender."""


class Issued:
    """Rejects steps of environments that are not their sender's.

    A process gets the numbers of its environments together with its incarnation, so
    each number has one incarnation that may use it: the newest. Numbers that were not
    issued are for environments that know only the actor's address, which number their
    steps by the clock or not at all; `unissued` are those that a run leaves to them.
    """

    def __init__(
        self,
        read: Callable[[], dict[int, int]] = dict,
        unissued: range = range(routing.MAX_ENVS),
        now: Callable[[], int] = time.time_ns,
    ):
        self._read = read  # Numbers and the incarnations that have them.
        self._unissued = unissued
        self._now = now
        self._holders = np.empty(0, np.int64)  # Incarnations by number.

    def check(self, rows: base.Batch, count: int) -> dict[int, rpc.RpcError]:
        """Errors of rows with the wrong numbers.

        Files are read only if there are such rows, mostly of a process that is new.
        """
        envids, seqs = rows[routing.ENVID][:count], rows[routing.SEQ][:count]
        if self._are_legal(envids, seqs).all():
            return {}
        with contextlib.suppress(OSError):  # Those it knows are right, if not all.
            self._holders = _by_number(self._read())
        wrong = np.flatnonzero(~self._are_legal(envids, seqs)).tolist()
        return {row: self._error(int(envids[row]), int(seqs[row])) for row in wrong}

    def _are_legal(self, envids: np.ndarray, seqs: np.ndarray) -> np.ndarray:
        holders = self._find_holders(envids)
        own = seqs >> routing.INCARNATION_BITS == holders
        free = holders == NOT_ISSUED
        if not free.any():
            return own
        left = (envids >= 0) & (envids < self._unissued.stop)
        return np.where(free, left & (seqs < self._now() + AHEAD), own)

    def _find_holders(self, envids: np.ndarray) -> np.ndarray:
        table = self._holders  # Another thread may replace it.
        known = (envids >= 0) & (envids < len(table))
        if known.all():
            return table[envids]
        holders = np.full(len(envids), NOT_ISSUED, np.int64)
        holders[known] = table[envids[known]]
        return holders

    def _error(self, envid: int, seq: int) -> NumberError:
        (holder,) = self._find_holders(np.array([envid])).tolist()
        if holder != NOT_ISSUED:
            return NumberError(
                f"'{routing.SEQ}' is {seq}, of incarnation "
                f"{seq >> routing.INCARNATION_BITS}, but '{routing.ENVID}' {envid} "
                f"belongs to incarnation {holder}: the number is another "
                "process's; join the run to get one"
            )
        if not 0 <= envid < self._unissued.stop:
            return NumberError(
                f"'{routing.ENVID}' is {envid}, a number that was not issued: join the "
                "run to get one, or start it with --run.remote_envs True and enough "
                "--run.envs"
            )
        return NumberError(
            f"'{routing.SEQ}' is {seq}, which is ahead of the clock: count from "
            "time.time_ns() or less, and check the clocks of both machines"
        )


def of_run(args: RunSettings, ctx: Context) -> Issued:
    """What was issued in a run; without a launcher, environments have any numbers."""
    if not ctx.issued:
        return Issued()
    logdir = pathlib.Path(args.logdir).expanduser()

    def read() -> dict[int, int]:
        own = incarnations.read_holders(logdir / runfiles.ISSUED)
        return membership.read_holders(logdir / runfiles.MEMBERS) | own

    left = args.envs + args.eval_envs if args.remote_envs else 0
    return Issued(read, range(left))


def _by_number(holders: dict[int, int]) -> np.ndarray:
    table = np.full(1 + max(holders, default=-1), NOT_ISSUED, np.int64)
    table[list(holders)] = list(holders.values())
    return table
