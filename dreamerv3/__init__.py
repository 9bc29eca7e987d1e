"""The DreamerV3 agent, its command line, and its use from Python."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dreamerv3.api import train as train
    from dreamerv3.benchmarking.api import benchmark as benchmark
    from dreamerv3.player import Player as Player
    from dreamerv3.player import load as load
    from dreamerv3.recorder import Recorder as Recorder
    from dreamerv3.settings.config import ConfigError as ConfigError

# Imported when first used: programs that need only a part start faster, and machines
# with environments need no JAX.
PUBLIC = {
    "train": "dreamerv3.api",
    "benchmark": "dreamerv3.benchmarking.api",
    "load": "dreamerv3.player",
    "Player": "dreamerv3.player",
    "Recorder": "dreamerv3.recorder",
    "ConfigError": "dreamerv3.settings.config",
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'dreamerv3' has no attribute '{name}'")
    return getattr(importlib.import_module(PUBLIC[name]), name)
