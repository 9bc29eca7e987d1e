"""Steps on their way from the actor to the replay, and once safe to the logger."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from embodied.core import base
from embodied.run import role
from embodied.run.parallel import wire

MAX_PENDING = 64  # Batches on their way before acting waits for the replay.
STEP = "step"  # Key of the number of training steps ever stored.
FLAGS = (base.REWARD, base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL, *wire.ROUTING)


class Outbox:
    """Sends steps without waiting, and knows how many the replay has stored.

    `add_batch(steps)` and `tran(steps)` return futures; the replay answers with the
    number of training steps it ever stored, which is the step counter of the run.
    """

    def __init__(
        self,
        add_batch: Callable[[base.Batch], Any],
        tran: Callable[[base.Batch], Any],
        recorded: tuple[int, ...] = (),
    ):
        self.total = 0
        self._add_batch = add_batch
        self._tran = tran
        self._recorded = recorded  # Environments whose images go to the logger.
        self._pending = 0
        self._changed = threading.Condition()
        self._error: BaseException | None = None
        self._sent: queue.SimpleQueue = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._settle, daemon=True)
        self._thread.start()

    def wait_room(self) -> None:
        """Wait for the replay if too many steps are on their way."""
        with self._changed:
            while self._pending >= MAX_PENDING and not self._error:
                self._changed.wait(1.0)
                role.beat()
                if role.stopping():
                    return

    def wait_total(self, amount: int, timeout: float) -> bool:
        """Wait until the replay has so many steps; raises what went wrong."""
        with self._changed:
            self._changed.wait_for(lambda: self._done(amount), timeout)
        if self._error:
            raise self._error
        return self.total >= amount

    def send(self, steps: base.Batch) -> None:
        """Send a batch of steps; batches arrive in this order."""
        with self._changed:
            self._pending += 1
        try:
            future = self._add_batch(steps)
        except BaseException:
            with self._changed:
                self._pending -= 1
            raise
        self._sent.put((steps, future))

    def flush(self) -> None:
        """Wait until everything has arrived."""
        self._sent.put(None)
        self._thread.join()
        if self._error:
            raise self._error

    def _done(self, amount: int) -> bool:
        return self.total >= amount or self._error is not None

    def _settle(self) -> None:
        while (item := self._sent.get()) is not None:
            steps, future = item
            try:
                self.total = max(self.total, future.result())
                for part in self._parts(steps):
                    self._tran({**part, STEP: self.total})
            except BaseException as error:
                self._error = self._error or error
            with self._changed:
                self._pending -= 1
                self._changed.notify_all()

    def _parts(self, steps: base.Batch) -> list[base.Batch]:
        """What the logger needs: numbers of all, images of recorded environments."""
        scalars = numbers(steps)
        recorded = np.isin(steps[wire.ENVID], self._recorded)
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
    return key in FLAGS or key.startswith(base.LOG_PREFIX)
