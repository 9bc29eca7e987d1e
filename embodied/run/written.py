"""Rolls the outputs of a logger back to a checkpoint."""

from __future__ import annotations

from typing import Any

import elements


class Written:
    """How far the outputs of a logger have written, as an item of a checkpoint.

    Loading it removes what they wrote later, since the run repeats those steps. Write
    what was added to the logger before saving it.
    """

    def __init__(self, logger: elements.Logger):
        self._outputs = getattr(logger, "outputs", ())  # None of a user's own logger.

    def save(self) -> list[Any]:
        return [o.save() if hasattr(o, "save") else None for o in self._outputs]

    def load(self, data: list[Any]) -> None:
        for output, written in zip(self._outputs, data, strict=False):
            if written is not None and hasattr(output, "load"):
                output.load(written)
