"""Spaces of Gymnasium as JSON and back, and values of batches of environments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from gymnasium import Space, spaces

from embodied.core.spacefile import decode_bound, encode_bound


def encode(space: Space) -> dict[str, Any]:
    """A space as plain numbers, texts, lists and dicts."""
    match space:
        case spaces.Dict():  # Keys need not be texts.
            parts = [[key, encode(part)] for key, part in space.spaces.items()]
            return {"kind": "Dict", "parts": parts}
        case spaces.Tuple():
            return {"kind": "Tuple", "parts": [encode(part) for part in space.spaces]}
        case spaces.Discrete():
            n, start = int(space.n), int(space.start)
            dtype = np.dtype(space.dtype).name
            return {"kind": "Discrete", "n": n, "start": start, "dtype": dtype}
        case spaces.MultiDiscrete():
            return {
                "kind": "MultiDiscrete",
                "nvec": space.nvec.tolist(),
                "start": space.start.tolist(),
                "dtype": np.dtype(space.dtype).name,
            }
        case spaces.MultiBinary():
            size = space.n if isinstance(space.n, int) else list(space.shape)
            return {"kind": "MultiBinary", "n": size}
        case spaces.Box():
            return {
                "kind": "Box",
                "dtype": np.dtype(space.dtype).name,
                "shape": list(space.shape),
                "low": encode_bound(space.low),
                "high": encode_bound(space.high),
            }
    raise AssertionError(space)  # The adapter has rejected all others.


def decode(tree: dict[str, Any]) -> Space:
    """The inverse of `encode`."""
    match tree["kind"]:
        case "Dict":
            return spaces.Dict({key: decode(part) for key, part in tree["parts"]})
        case "Tuple":
            return spaces.Tuple([decode(part) for part in tree["parts"]])
        case "Discrete":
            return spaces.Discrete(
                tree["n"], start=tree["start"], dtype=np.dtype(tree["dtype"]).type
            )
        case "MultiDiscrete":
            dtype = np.dtype(tree["dtype"]).type
            return spaces.MultiDiscrete(tree["nvec"], dtype, start=tree["start"])
        case "MultiBinary":
            return spaces.MultiBinary(tree["n"])
        case "Box":
            dtype, shape = np.dtype(tree["dtype"]), tuple(tree["shape"])
            ends = {"low": -np.inf, "high": np.inf}
            low, high = (
                np.broadcast_to(decode_bound(tree[end], infinite), shape).astype(dtype)
                for end, infinite in ends.items()
            )
            return spaces.Box(low, high, shape, dtype.type)
    raise ValueError(f"unknown kind of space '{tree['kind']}'")


def leaves(space: Space, value: Any) -> list[tuple[Space, Any]]:
    """The array spaces with their values; parts that are not there are left out."""
    match space:
        case spaces.Dict():
            pairs = [(s, value[k]) for k, s in space.spaces.items() if k in value]
        case spaces.Tuple():
            pairs = list(zip(space.spaces, value, strict=False))
        case _:
            return [(space, value)]
    return [leaf for part, inner in pairs for leaf in leaves(part, inner)]


def rows(value: Any, size: int) -> list[Any]:
    """The values of each environment of a batch."""
    if isinstance(value, dict):
        parts = {key: rows(part, size) for key, part in value.items()}
        return [{key: part[i] for key, part in parts.items()} for i in range(size)]
    if isinstance(value, tuple):
        return list(zip(*(rows(part, size) for part in value), strict=True))
    return list(value)


def stack(values: Sequence[Any], join: Callable[..., Any] = np.stack) -> Any:
    """The batch of values of single environments."""
    first = values[0]
    if isinstance(first, dict):
        return {key: stack([v[key] for v in values], join) for key in first}
    if isinstance(first, tuple):
        return tuple(stack(part, join) for part in zip(*values, strict=True))
    return join(values)
