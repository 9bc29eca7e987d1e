"""Limits of the system that a run raises for itself."""

from __future__ import annotations

import resource


def raise_descriptors() -> None:
    """Let this process, and those that it starts, open as many files as allowed.

    The usual soft limit of 1,024 is for programs that use `select`.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
