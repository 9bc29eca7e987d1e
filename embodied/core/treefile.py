"""Stores a tree of arrays and plain values in a directory, without pickle.

`tree.json` is the tree with arrays replaced by references into `arrays.npz`, so that
counters and names are human-readable.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

TREE = "tree.json"
ARRAYS = "arrays.npz"
ARRAY_REF = "__array__"
TUPLE_REF = "__tuple__"
Arrays = dict[str, np.ndarray]


def write(directory: pathlib.Path, tree: Any) -> None:
    """Store dicts, lists, tuples, arrays, numbers, strings, booleans and None."""
    plain, arrays = split(tree, "a")
    (directory / TREE).write_text(json.dumps(plain, indent=1) + "\n")
    if arrays:
        with (directory / ARRAYS).open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)


def read(directory: pathlib.Path) -> Any:
    """The tree that `write` stored."""
    plain = json.loads((directory / TREE).read_text())
    path = directory / ARRAYS
    if not path.exists():
        return join(plain, {})
    with np.load(path, allow_pickle=False) as arrays:
        return join(plain, dict(arrays))


def split(tree: Any, prefix: str = "") -> tuple[Any, Arrays]:
    """The tree as JSON has it, and the arrays it refers to by `prefix` and a number."""
    arrays: Arrays = {}
    return _split(tree, "", arrays, prefix), arrays


def join(plain: Any, arrays: Mapping[str, Any]) -> Any:
    """The inverse of `split`."""
    match plain:
        case {"__array__": str(name)}:
            return np.asarray(arrays[name])
        case {"__tuple__": list(values)}:
            return tuple(join(value, arrays) for value in values)
        case dict():
            return {key: join(value, arrays) for key, value in plain.items()}
        case list():
            return [join(value, arrays) for value in plain]
    return plain


def _split(node: Any, path: str, arrays: Arrays, prefix: str) -> Any:
    match node:
        case dict():
            return {
                _check_key(key, path): _split(value, f"{path}/{key}", arrays, prefix)
                for key, value in node.items()
            }
        case tuple():
            return {TUPLE_REF: _split(list(node), path, arrays, prefix)}
        case list():
            return [
                _split(value, f"{path}/{index}", arrays, prefix)
                for index, value in enumerate(node)
            ]
        case np.ndarray() if node.dtype != object:
            name = f"{prefix}{len(arrays)}"
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
    if key in (ARRAY_REF, TUPLE_REF):
        raise TypeError(f"the key {key!r} at '{path or '/'}' is reserved")
    return key
