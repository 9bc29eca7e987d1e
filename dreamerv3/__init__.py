"""The DreamerV3 agent and its command line."""

import importlib
from typing import Any

# Imported when they are used, so that an environment machine does not need JAX.
LAZY = {"load": "dreamerv3.player", "Player": "dreamerv3.player"}


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'dreamerv3' has no attribute '{name}'")
    return getattr(importlib.import_module(LAZY[name]), name)
