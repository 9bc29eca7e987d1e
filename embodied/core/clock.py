"""Clocks that say when something is due: by steps, by ratio, by wall-clock."""

import time
from collections.abc import Callable

from embodied import public_names

public_names.extend(__name__)


class Every:
    """Due once every `every` steps; never if `every` is 0."""

    def __init__(self, every: int):
        assert every >= 0, every
        self._every = every
        self._next = 0

    def __call__(self, step: int) -> bool:
        if not self._every or step < self._next:
            return False
        self._next = (step // self._every + 1) * self._every
        return True

    def save(self) -> int:
        return self._next

    def load(self, data: int) -> None:
        self._next = data


class Ratio:
    """How many times something is due so that it happens `ratio` times per step.

    The first call only sets the origin; earlier steps are not caught up on.
    """

    def __init__(self, ratio: float):
        assert ratio >= 0, ratio
        self._ratio = ratio
        self._origin: int | None = None
        self._done = 0

    def __call__(self, step: int) -> int:
        if self._origin is None:
            self._origin = step
        due = int((step - self._origin) * self._ratio) - self._done
        self._done += due
        return due

    def save(self) -> dict:
        return {"ratio": self._ratio, "origin": self._origin, "done": self._done}

    def load(self, data: dict) -> None:
        """Resume; a changed ratio applies from the saved position on."""
        if data["ratio"] == self._ratio:
            self._origin, self._done = data["origin"], data["done"]


class Seconds:
    """Due once every `every` seconds, first after one full interval."""

    def __init__(self, every: float, now: Callable[[], float] = time.monotonic):
        assert every > 0, every
        self._every = every
        self._now = now
        self._last = now()

    def __call__(self) -> bool:
        now = self._now()
        if now < self._last + self._every:
            return False
        self._last = now
        return True
