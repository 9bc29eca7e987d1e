"""What loggers hand to outputs: a step, a name and a value of one of five kinds."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

import elements
import numpy as np

Summary = tuple[int, str, Any]  # Step, name, value.
Kind = Literal["scalar", "histogram", "image", "video", "text"]


class Output(Protocol):
    """Where metrics go: called with the summaries of each write, in order.

    It may have `save() -> data` and `load(data)` to roll back later writes, and
    `close()` to finish.
    """

    def __call__(self, summaries: Sequence[Summary], /) -> None: ...


KINDS: tuple[Kind, ...] = ("scalar", "histogram", "image", "image", "video")  # By rank.


def kind(name: str, value: Any) -> Kind:
    """How a value is shown; raises with the name if it cannot be."""
    if isinstance(value, str):
        return "text"
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":
        told = type(value).__name__ if array.dtype.kind == "O" else array.dtype
        raise TypeError(f"metric '{name}' is neither numbers nor text but {told}")
    if array.ndim >= len(KINDS):
        raise TypeError(
            f"metric '{name}' has shape {array.shape}; give a number, a vector for a "
            "histogram, [H, W] or [H, W, C] for an image, [T, H, W, C] for a video"
        )
    if array.ndim and not array.size:
        raise TypeError(f"metric '{name}' has shape {array.shape}, nothing to show")
    return KINDS[array.ndim]


def is_scalar(value: Any) -> bool:
    """Whether a metric is one number."""
    return not isinstance(value, str) and np.ndim(value) == 0


def read_id(path: pathlib.Path, digits: int) -> str:
    """The id of a run at a service, or nothing if there is no file or it is damaged."""
    if not path.exists():
        return ""
    found = path.read_text(errors="replace").strip()
    if re.fullmatch(rf"[0-9a-f]{{{digits}}}", found):
        return found
    text = f"{path} is damaged: the metrics continue as a new run of that service."
    elements.print(text, color="yellow", flush=True)
    return ""


def size(summary: Summary) -> int:
    """About how many bytes of memory a summary takes."""
    _, name, value = summary
    return (
        100
        + len(name)
        + (len(value) if isinstance(value, str) else np.asarray(value).nbytes)
    )


def group(summaries: Iterable[Summary]) -> list[tuple[int, dict[str, Any]]]:
    """Metrics by step, in order; a name that comes twice at a step starts anew."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for step, name, value in summaries:
        if not rows or rows[-1][0] != step or name in rows[-1][1]:
            rows.append((int(step), {}))
        rows[-1][1][name] = value
    return rows
