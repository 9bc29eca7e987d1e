"""Sends steps from the actor to the replay and, once stored, to the logger."""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from embodied.core import base
from embodied.run.parallel import routing

MAX_PENDING = 64  # Unacknowledged batches before acting blocks.
STEP = "step"  # Key of the number of training steps ever stored.
PARTIAL = "partial"  # Key of whether steps lack the images and values to log they had.
FLAGS = (base.REWARD, base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL, *routing.SPACES)


class Outbox:
    """Sends steps without waiting, and knows how many the replay has stored.

    `add_batch(steps)` returns a future; the replay answers with the number of training
    steps it ever stored, which is the step counter of the run. Of more training steps
    than `limit` the surplus is not sent, so that a run has exactly as many as it was
    asked for. `tran(steps)` passes steps on that are stored, and does not wait.
    """

    def __init__(
        self,
        add_batch: Callable[[base.Batch], Any],
        tran: Callable[[base.Batch], None],
        recorded: tuple[int, ...] = (),
        total: int = 0,
        limit: float = math.inf,
        stopping: Callable[[], bool] = bool,
    ):
        self.total = total
        self._limit = limit
        self._stopping = stopping
        self._coming = 0  # Training steps that are sent and not yet in `total`.
        self._add_batch = add_batch
        self._tran = tran
        self._recorded = recorded  # Environments whose images go to the logger.
        self._pending = 0
        self._flushed = False
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._sent: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._settle, daemon=True)
        self._thread.start()

    def wait_room(self) -> None:
        """Block while too many batches are unacknowledged."""
        with self._changed:
            while self._pending >= MAX_PENDING and not self._error:
                self._changed.wait(1.0)
                if self._stopping():
                    return

    def wait_total(self, amount: int, timeout: float) -> bool:
        """Wait until the replay has so many steps; raises what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._done(amount), timeout)
        if self._error:
            raise self._error
        return self.total >= amount

    def send(self, steps: base.Batch) -> None:
        """Send a batch of steps; batches arrive in this order.

        Ignored after `flush`, since the logger would never receive them.
        """
        with self._changed:
            steps, count = self._within_limit(steps)
            if self._flushed or not len(steps[routing.ENVID]):
                return
            self._pending += 1
            self._coming += count
        try:
            future = self._add_batch(steps)
        except BaseException:
            self._settled(count)
            raise
        self._sent.put((steps, count, future))

    @property
    def pending(self) -> int:
        """Batches on their way."""
        return self._pending

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until everything has arrived; False after `timeout` seconds."""
        with self._changed:
            self._flushed = True
            if not self._changed.wait_for(lambda: not self._pending, timeout):
                return False
        self._sent.put(None)
        self._thread.join()
        if self._error:
            raise self._error
        return True

    def _done(self, amount: int) -> bool:
        return self.total >= amount or self._error is not None

    def _settle(self) -> None:
        while (item := self._sent.get()) is not None:
            steps, count, future = item
            total = self.total
            try:
                total = max(total, future.result())
                for part in self._parts(steps):
                    self._tran({**part, STEP: total})
            except BaseException as error:
                self._error = self._error or error
            self._settled(count, total)

    def _settled(self, count: int, total: int = 0) -> None:
        with self._changed:
            self.total = max(self.total, total)
            self._pending -= 1
            self._coming -= count
            self._changed.notify_all()

    def _within_limit(self, steps: base.Batch) -> tuple[base.Batch, int]:
        """Steps without surplus training steps, and how many are for training."""
        training = ~steps[routing.IS_EVAL]
        count, room = int(training.sum()), self._limit - self.total - self._coming
        if count <= room:
            return steps, count
        keep = ~training | (np.cumsum(training) <= room)
        return {k: v[keep] for k, v in steps.items()}, max(0, int(room))

    def _parts(self, steps: base.Batch) -> list[base.Batch]:
        """What the logger needs: numbers of all, images of recorded environments."""
        scalars = numbers(steps)
        recorded = np.isin(steps[routing.ENVID], self._recorded)
        if not recorded.any():
            return [scalars]
        images = {k: v for k, v in steps.items() if v.dtype == np.uint8 and v.ndim == 4}
        parts = [{k: v[recorded] for k, v in {**scalars, **images}.items()}]
        if not recorded.all():
            parts.append({k: v[~recorded] for k, v in scalars.items()})
        return parts


def numbers(steps: base.Batch) -> base.Batch:
    """Rewards, flags, routing and logged values of steps."""
    return {k: v for k, v in steps.items() if _wanted(k)}


def _wanted(key: str) -> bool:
    return key in FLAGS or base.is_logged(key)
