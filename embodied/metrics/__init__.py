"""The logger and its outputs, one file a backend."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embodied.metrics.background import Background as Background
    from embodied.metrics.jsonl import JSONLOutput as JSONLOutput
    from embodied.metrics.logger import Logger as Logger
    from embodied.metrics.media import MediaOutput as MediaOutput
    from embodied.metrics.scope import ScopeOutput as ScopeOutput
    from embodied.metrics.status import Status as Status
    from embodied.metrics.terminal import LiveOutput as LiveOutput
    from embodied.metrics.terminal import TerminalOutput as TerminalOutput

# Imported when first used: machines with environments have no packages for videos.
PUBLIC = {
    "Background": "background",
    "JSONLOutput": "jsonl",
    "Logger": "logger",
    "MediaOutput": "media",
    "ScopeOutput": "scope",
    "Status": "status",
    "LiveOutput": "terminal",
    "TerminalOutput": "terminal",
}


def __getattr__(name: str) -> Any:
    if name not in PUBLIC:
        raise AttributeError(f"module 'embodied.metrics' has no attribute '{name}'")
    return getattr(importlib.import_module(f"embodied.metrics.{PUBLIC[name]}"), name)
