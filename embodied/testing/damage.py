"""Damages files as power cuts, full disks and failing hardware do."""

from __future__ import annotations

import pathlib

import numpy as np

KINDS = ("empty", "truncated", "garbage")


def damage(path: pathlib.Path, kind: str) -> None:
    """Empty a file, cut it in half, or replace every byte by a random one."""
    content = path.read_bytes()
    match kind:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "garbage":
            path.write_bytes(np.random.default_rng(0).bytes(len(content)))
        case _:
            raise ValueError(f"unknown kind of damage '{kind}', known are {KINDS}")
