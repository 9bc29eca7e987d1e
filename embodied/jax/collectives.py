"""Collectives between devices that share a batch in `sharding.by_rows`.

There a function sees only the sequences of its own device. Anywhere else it sees all of
them, and what is here returns what it is given.
"""

from __future__ import annotations

from typing import Any

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from .kernels.dispatch import fast_on_cpu, on_own_rows
from .sharding import BATCH

Tree = Any


def mean(tree: Tree) -> Tree:
    """The mean over devices of every array; all have one dtype."""
    return _mean(tree) if on_own_rows() else tree


def _fast_mean(tree: Tree) -> Tree:
    """As one array: on a CPU XLA exchanges one by one, 7 ms for 100 gradients."""
    assert len({x.dtype for x in jax.tree.leaves(tree)}) == 1
    flat, restore = ravel_pytree(tree)
    return restore(jax.lax.pmean(flat, BATCH))


@fast_on_cpu(_fast_mean)
def _mean(tree: Tree) -> Tree:
    return jax.lax.pmean(tree, BATCH)


def gather(x: Float[Array, "*B N"]) -> Float[Array, "*B M"]:
    """The last dimension of all devices, one after the other."""
    if not on_own_rows():
        return x
    return jax.lax.all_gather(x, BATCH, axis=x.ndim - 1, tiled=True)
