"""The distribution that this code came with, and its extras."""

from __future__ import annotations

import contextlib
import importlib.metadata

# The second one is for machines that only run environments. `dreamerv3` itself is the
# name of someone else's package.
DISTRIBUTIONS = ("dreamerv3-distributed", "dreamerv3-distributed-env")


def install_line(extra: str) -> str:
    """The command that installs an extra of the distribution this code came with."""
    return f"pip install '{distribution()}[{extra}]'"


def distribution() -> str:
    """The name of the installed distribution; the first if none is."""
    for name in DISTRIBUTIONS:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            importlib.metadata.distribution(name)
            return name
    return DISTRIBUTIONS[0]


def version() -> str:
    """The version of the installed distribution."""
    try:
        return importlib.metadata.version(distribution())
    except importlib.metadata.PackageNotFoundError:
        return "from source"  # Run without having been installed.
