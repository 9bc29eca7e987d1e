"""What loggers hand to outputs: a step, a name and a value of one of five kinds."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

Summary = tuple[int, str, Any]  # Step, name, value.
Kind = Literal["scalar", "histogram", "image", "video", "text"]

KINDS: tuple[Kind, ...] = ("scalar", "histogram", "image", "image", "video")  # By rank.


def kind(name: str, value: Any) -> Kind:
    """How a value is shown; what cannot be shown is refused by name."""
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
