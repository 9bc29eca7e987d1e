"""Versions of file formats: a file of a newer release is rejected by name."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

from embodied.core import base

VERSION = "version"  # The key of JSON files; those of release 0.1 lack it.
# What the content of a damaged file raises where it is taken apart.
DAMAGED = (
    ValueError, KeyError, TypeError, AttributeError, AssertionError, RecursionError,
)  # fmt: skip


class NewerFormatError(base.SetupError):
    """A file was written by a newer release, which this one cannot read."""


def check(what: object, found: Any, known: int, writer: str = "") -> int:
    """The version of a file; raises if it is newer than the one `known` here.

    `what` names the file and `writer` the release that wrote it, if that is recorded.
    Raises `ValueError` if what was found is not a version at all.
    """
    if type(found) is not int or found < 1:
        raise ValueError(f"its version is {found!r}, not a number from 1 to {known}")
    if found > known:
        release = f" ({writer})" if writer else ""
        raise NewerFormatError(
            f"{what} has format {found}, this version reads up to {known}: it was "
            f"written by a newer release{release}; use that release, or choose another "
            "--logdir"
        )
    return found


def read_json(path: str | os.PathLike, known: int) -> dict[str, Any]:
    """The object in a JSON file; raises one of `DAMAGED` if there is none."""
    tree = json.loads(pathlib.Path(path).read_text())
    check(path, tree.get(VERSION, 1), known)
    return tree


def one_line(error: Exception) -> str:
    """The reason why a file cannot be read."""
    return " ".join(f"{type(error).__name__}: {error}".split())
