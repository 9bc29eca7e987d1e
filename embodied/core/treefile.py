"""Stores a tree of arrays and plain values in a directory, without pickle.

`tree.json` is the tree with arrays replaced by references into `arrays.npz`, so that
counters and names can be read by eye.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

TREE = "tree.json"
ARRAYS = "arrays.npz"
ARRAY_REF = "__array__"
TUPLE_REF = "__tuple__"


def write(directory: pathlib.Path, tree: Any) -> None:
    """Store dicts, lists, tuples, arrays, numbers, strings, booleans and None."""
    arrays: dict[str, np.ndarray] = {}
    encoded = _encode(tree, "", arrays)
    (directory / TREE).write_text(json.dumps(encoded, indent=1) + "\n")
    if arrays:
        with (directory / ARRAYS).open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)


def read(directory: pathlib.Path) -> Any:
    """The tree that `write` stored."""
    encoded = json.loads((directory / TREE).read_text())
    path = directory / ARRAYS
    if not path.exists():
        return _decode(encoded, {})
    with np.load(path, allow_pickle=False) as arrays:
        return _decode(encoded, dict(arrays))


def _encode(node: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    match node:
        case dict():
            return {
                _check_key(key, path): _encode(value, f"{path}/{key}", arrays)
                for key, value in node.items()
            }
        case tuple():
            return {TUPLE_REF: _encode(list(node), path, arrays)}
        case list():
            return [_encode(v, f"{path}/{i}", arrays) for i, v in enumerate(node)]
        case np.ndarray() if node.dtype != object:
            name = f"a{len(arrays)}"
            arrays[name] = node
            return {ARRAY_REF: name}
        case np.generic():
            return node.item()
        case None | bool() | int() | float() | str():
            return node
    raise TypeError(f"cannot store {type(node).__name__} at '{path or '/'}'")


def _check_key(key: Any, path: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"keys must be strings, got {key!r} at '{path or '/'}'")
    return key


def _decode(node: Any, arrays: dict[str, np.ndarray]) -> Any:
    match node:
        case {"__array__": str(name)}:
            return arrays[name]
        case {"__tuple__": list(values)}:
            return tuple(_decode(value, arrays) for value in values)
        case dict():
            return {key: _decode(value, arrays) for key, value in node.items()}
        case list():
            return [_decode(value, arrays) for value in node]
    return node
