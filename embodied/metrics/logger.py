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
    """`elements.Logger` for many threads, that checks values and loses none at its end.

    `add` keeps metrics with the current step, `write` hands them to all outputs.
    """

    def __init__(self, step: Any, outputs: Sequence[Any], multiplier: int = 1):
        super().__init__(step, outputs, multiplier)
        self._lock = threading.RLock()
        self._closed = False

    def add(self, mapping: Mapping[str, Any], prefix: str | None = None) -> None:
        """Add metrics; a value that no output could show is refused by its name."""
        for name, value in mapping.items():
            kind(f"{prefix}/{name}" if prefix else name, value)
        with self._lock:
            super().add(mapping, prefix)

    def write(self) -> None:
        """Hand what was added to the outputs, with how much they missed so far."""
        with self._lock:
            outputs = [o for o in self.outputs if isinstance(o, Background)]
            missed = {o.name: o.dropped for o in outputs if o.dropped}
            super().add(missed, DROPPED)
            super().write()

    def close(self) -> None:
        """Write what is left and wait for the outputs, within their deadline."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self.write()
                close_all(self.outputs)
