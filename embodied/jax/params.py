"""Parameters as flat dictionaries of paths, for counting, saving and loading."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from embodied.core.checkpoint import CheckpointError

SHOWN = 8  # Paths that do not fit in a message.
Tree = Any
Flat = dict[str, np.ndarray]


def path_name(path: tuple[Any, ...]) -> str:
    """`enc/mlp/layers/0/norm/scale` from the entries of a tree path."""
    parts = []
    for entry in path:
        for attr in ("name", "key", "idx"):
            if hasattr(entry, attr):
                parts.append(str(getattr(entry, attr)))
                break
    return "/".join(parts)


def flatten(tree: Tree) -> dict[str, Any]:
    """Leaves by path."""
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {path_name(path): leaf for path, leaf in leaves}


def unflatten(tree: Tree, flat: Mapping[str, Any]) -> Tree:
    """A copy of the tree with the leaves that `flat` holds by path."""

    def one(path: tuple[Any, ...], leaf: Any) -> Any:
        return flat.get(path_name(path), leaf)

    return jax.tree_util.tree_map_with_path(one, tree)


def select(
    saved: Mapping[str, Any],
    current: Mapping[str, Any],
    regex: str | None = None,
    name: Callable[[str], str | None] | None = None,
) -> Flat:
    """The saved leaves to load: all, or those whose `name` starts with a match.

    Raises with the list of paths if one is missing or has another shape.
    """
    chosen = dict(saved)
    if regex is not None and name is not None:
        names = {path: name(path) for path in saved}
        matching = [k for k, v in names.items() if v and re.match(regex, v)]
        chosen = {path: saved[path] for path in matching}
        if not chosen:
            raise CheckpointError(f"No parameter path matches '{regex}'.")
    problems = [f"{k}: not in this model" for k in chosen if k not in current]
    if regex is None:
        problems += [f"{k}: not in the checkpoint" for k in current if k not in saved]
    for key in set(chosen) & set(current):
        found, needed = np.shape(chosen[key]), np.shape(current[key])
        if found != needed:
            problems.append(f"{key}: {found} in the checkpoint, {needed} here")
    if problems:
        remedy = "Take the sizes of the checkpoint's run, or a regex of what fits."
        if all(problem.startswith("opt/") for problem in problems):
            remedy = (
                "The optimiser was another one, as in runs of an earlier version: "
                "start a new run from its parameters with run.from_checkpoint."
            )
        rest = f"\n  and {len(problems) - SHOWN} more" if len(problems) > SHOWN else ""
        lines = "\n  ".join(sorted(problems)[:SHOWN]) + rest
        raise CheckpointError(f"Cannot load:\n  {lines}\n{remedy}")
    return {k: np.asarray(v).astype(current[k].dtype) for k, v in chosen.items()}


def count(tree: Tree) -> int:
    """Number of parameters."""
    return sum(int(np.prod(x.shape, dtype=int)) for x in jax.tree.leaves(tree))


def describe(tree: Tree) -> str:
    """A table of parameters per module, for the start of a run."""
    modules: dict[str, int] = {}
    for path, leaf in flatten(tree).items():
        name = path.split("/", 1)[0]
        modules[name] = modules.get(name, 0) + int(np.prod(leaf.shape, dtype=int))
    rows = [f"  {name:<6}{size:>15,}" for name, size in modules.items()]
    return "\n".join([*rows, f"  {'total':<6}{sum(modules.values()):>15,}"])
