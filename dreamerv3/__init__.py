"""The DreamerV3 agent, its command line, and training from Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dreamerv3.api import train as train

# Imported when first used, since programs that need only a part start faster.
PUBLIC = {"train": "dreamerv3.api"}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'dreamerv3' has no attribute '{name}'")
    return getattr(importlib.import_module(PUBLIC[name]), name)
