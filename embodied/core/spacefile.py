"""Observation and action spaces in a JSON file, to act or learn without the env."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import elements
import numpy as np

from embodied.core import base

FILE = "spaces.json"


def write(
    directory: str | os.PathLike, obs_space: base.Spaces, act_space: base.Spaces
) -> None:
    """Keep the spaces in a directory."""
    tree = encode(obs_space, act_space)
    path = pathlib.Path(directory) / FILE
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(tree, indent=1) + "\n")
    temporary.rename(path)


def read(directory: str | os.PathLike) -> tuple[base.Spaces, base.Spaces] | None:
    """The spaces kept in a directory, observations first, or nothing."""
    path = pathlib.Path(directory) / FILE
    if not path.exists():
        return None
    tree = json.loads(path.read_text())
    obs_space, act_space = (
        {key: _decode(space) for key, space in tree[kind].items()}
        for kind in ("obs", "act")
    )
    return obs_space, act_space


def encode(obs_space: base.Spaces, act_space: base.Spaces) -> dict[str, Any]:
    """Spaces as plain numbers, texts, lists and dicts."""
    kinds = {"obs": obs_space, "act": act_space}
    return {
        kind: {key: _encode(space) for key, space in spaces.items()}
        for kind, spaces in kinds.items()
    }


def _encode(space: elements.Space) -> dict[str, Any]:
    return {
        "dtype": np.dtype(space.dtype).name,
        "shape": list(space.shape),
        "low": _bound(space.low),
        "high": _bound(space.high),
    }


def _decode(data: dict[str, Any]) -> elements.Space:
    dtype = np.dtype(data["dtype"])
    if dtype.kind == "b":
        return elements.Space(bool, tuple(data["shape"]))
    low, high = _unbound(data["low"], -np.inf), _unbound(data["high"], np.inf)
    return elements.Space(dtype.type, tuple(data["shape"]), low, high)


def _bound(value: Any) -> Any:
    """One number if all are the same; JSON has no infinity, so that is null."""
    array = np.asarray(value)
    if array.size and (array == array.flat[0]).all():
        array = array.flat[0]
    return _finite(array.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if np.isfinite(value) else None


def _unbound(value: Any, infinite: float) -> np.ndarray:
    if isinstance(value, list):
        return np.array([_unbound(each, infinite) for each in value])
    return np.array(infinite if value is None else value)
