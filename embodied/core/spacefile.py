"""Spaces of observations and actions in a JSON file, and whether they are the same.

The file lets an agent act or learn without the environment.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied.core import base, files, formats, runfiles

VERSION = 1  # Of the file.
Pair = tuple[base.Spaces, base.Spaces]  # Of observations and of actions.


class SpacesError(base.SetupError):
    """The file is damaged; the message names it and the remedy."""


class Difference(NamedTuple):
    """A key whose space differs, with a description of both."""

    name: str  # For example: observation 'image'.
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.name}: {self.new} instead of {self.old}"


def write(
    directory: str | os.PathLike, obs_space: base.Spaces, act_space: base.Spaces
) -> None:
    """Write the spaces to a directory."""
    tree = {formats.VERSION: VERSION, **encode(obs_space, act_space)}
    path = pathlib.Path(directory) / runfiles.SPACES
    files.write_text(path, json.dumps(tree, indent=1) + "\n", durable=True)


def read(directory: str | os.PathLike) -> Pair | None:
    """The spaces stored in a directory, or None."""
    path = pathlib.Path(directory) / runfiles.SPACES
    if not path.exists():
        return None
    try:
        return decode(formats.read_json(path, VERSION))
    except formats.DAMAGED as error:
        raise SpacesError(
            f"{path} is damaged ({formats.one_line(error)}): resume the run, which "
            "writes it again, or write it with dreamerv3 check-env TASK --spaces "
            f"{path.parent}"
        ) from error


def encode(obs_space: base.Spaces, act_space: base.Spaces) -> dict[str, Any]:
    """Spaces as plain numbers, texts, lists and dicts."""
    kinds = {"obs": obs_space, "act": act_space}
    return {
        kind: {key: encode_space(space) for key, space in spaces.items()}
        for kind, spaces in kinds.items()
    }


def decode(tree: Mapping[str, Any]) -> Pair:
    """The inverse of `encode`."""
    obs_space, act_space = (
        {key: _decode(space) for key, space in tree[kind].items()}
        for kind in ("obs", "act")
    )
    return obs_space, act_space


def differences(old: Pair, new: Pair) -> list[Difference]:
    """Keys whose spaces are incompatible for one agent, ignoring `log/` keys.

    Bounds matter for actions and discrete values, but not for continuous observations.
    """
    found = []
    for kind, before, after in zip(("observation", "action"), old, new, strict=True):
        for key in sorted({*before, *after}):
            a, b = before.get(key), after.get(key)
            if not base.is_logged(key) and not _same(a, b, bounded=kind == "action"):
                found.append(Difference(f"{kind} '{key}'", describe(a), describe(b)))
    return found


def describe(space: base.Space | None) -> str:
    """A short description of a space."""
    if space is None:
        return "no such key"
    shape = f"[{', '.join(map(str, space.shape))}]" if space.shape else ""
    text = f"{np.dtype(space.dtype).name}{shape}"
    if space.dtype == bool or not np.isfinite([space.low, space.high]).any():
        return text
    return f"{text} from {_shown(space.low)} to {_shown(space.high)}"


def _same(a: base.Space | None, b: base.Space | None, bounded: bool) -> bool:
    """Whether both exist and fit, with bounds up to rounding where they matter."""
    if a is None or b is None or (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    ends = ((a.low, b.low), (a.high, b.high))
    if a.discrete:
        return all(np.array_equal(left, right) for left, right in ends)
    near = all(np.allclose(left, right, rtol=1e-6) for left, right in ends)
    return near or not bounded


def _shown(bound: np.ndarray) -> str:
    """One number if all are the same."""
    values = np.unique(bound)
    return f"{values[0]:.12g}" if len(values) == 1 else np.array2string(bound)


def encode_space(space: base.Space) -> dict[str, Any]:
    """A space as plain numbers, texts and lists; an infinite bound is None."""
    return {
        "dtype": np.dtype(space.dtype).name,
        "shape": list(space.shape),
        "low": encode_bound(space.low),
        "high": encode_bound(space.high),
    }


def _decode(data: dict[str, Any]) -> elements.Space:
    dtype = np.dtype(data["dtype"])
    if dtype.kind == "b":
        return elements.Space(bool, tuple(data["shape"]))
    low = decode_bound(data["low"], -np.inf)
    high = decode_bound(data["high"], np.inf)
    return elements.Space(dtype.type, tuple(data["shape"]), low, high)


def encode_bound(value: Any) -> Any:
    """One number if all are the same; JSON has no infinity, so that is null."""
    array = np.asarray(value)
    if array.size and (array == array.flat[0]).all():
        array = array.flat[0]
    return _finite(array.tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if np.isfinite(value) else None


def decode_bound(value: Any, infinite: float) -> np.ndarray:
    """The inverse of `encode_bound`; `infinite` is what null stands for."""
    if isinstance(value, list):
        return np.array([decode_bound(each, infinite) for each in value])
    return np.array(infinite if value is None else value)
