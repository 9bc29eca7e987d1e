"""The four keys that every observation holds: reward and where an episode stands."""

from __future__ import annotations

from typing import Any

import elements
import numpy as np

from embodied.core import base


def spaces() -> base.Spaces:
    """Spaces of the four keys."""
    return {
        base.REWARD: elements.Space(np.float32),
        base.IS_FIRST: elements.Space(bool),
        base.IS_LAST: elements.Space(bool),
        base.IS_TERMINAL: elements.Space(bool),
    }


def values(
    reward: float = 0.0, first: bool = False, last: bool = False, terminal: bool = False
) -> dict[str, Any]:
    """Values of the four keys."""
    return {
        base.REWARD: np.float32(reward),
        base.IS_FIRST: np.bool_(first),
        base.IS_LAST: np.bool_(last),
        base.IS_TERMINAL: np.bool_(terminal),
    }
