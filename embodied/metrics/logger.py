"""The logger: metrics from any thread to outputs that cannot hold it up."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import elements

from embodied.metrics.background import Background, close_all
from embodied.metrics.summary import kind

DROPPED = "logger/dropped"


class Logger(elements.Logger):
    """A thread-safe `elements.Logger` that validates values and flushes on close.

    `add` keeps metrics with the current step, `write` hands them to all outputs.
    """

    def __init__(self, step: Any, outputs: Sequence[Any], multiplier: int = 1):
        super().__init__(step, outputs, multiplier)
        self._lock = threading.RLock()
        self._closed = False

    def add(self, mapping: Mapping[str, Any], prefix: str | None = None) -> None:
        """Add metrics; raises for a value that no output can show, naming it."""
        for name, value in mapping.items():
            kind(f"{prefix}/{name}" if prefix else name, value)
        with self._lock:
            super().add(mapping, prefix)

    def write(self) -> None:
        """Pass added metrics to the outputs, with the count of dropped ones."""
        with self._lock:
            outputs = [o for o in self.outputs if isinstance(o, Background)]
            missed = {o.name: o.dropped for o in outputs if o.dropped}
            super().add(missed, DROPPED)
            super().write()

    def close(self) -> None:
        """Write pending metrics and wait for the outputs, up to their deadline."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.write()
                close_all(self.outputs)
