"""Device meshes (data, fsdp, tensor) and where arrays live on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

AXES = ("data", "fsdp", "tensor")
BATCH = ("data", "fsdp")  # Sequences are split over both.
MIN_SHARD = 2**14  # Parameters with fewer elements are replicated.


def make_mesh(devices: Sequence[jax.Device], shape: Sequence[int]) -> Mesh:
    """Arrange devices along (data, fsdp, tensor); one entry may be -1."""
    sizes = np.array(shape)
    if len(sizes) != 3 or (sizes == 0).any() or (sizes < 0).sum() > 1:
        raise ValueError(f"jax.mesh must be three sizes, one may be -1: {shape}.")
    fixed = int(np.prod(sizes[sizes > 0]))
    if len(devices) % fixed or (not (sizes < 0).any() and fixed != len(devices)):
        raise ValueError(f"Cannot arrange {len(devices)} devices as a mesh of {shape}.")
    return Mesh(np.array(devices).reshape(sizes), AXES)


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batched(mesh: Mesh, size: int) -> NamedSharding:
    """Split along the first dimension if its `size` allows, else a copy each."""
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    return NamedSharding(mesh, PartitionSpec(BATCH if size % ways == 0 else None))


def param_spec(shape: tuple[int, ...], fsdp: int, tensor: int) -> PartitionSpec:
    """Output units over `tensor`, the largest other dimension over `fsdp`."""
    spec: list[str | None] = [None] * len(shape)
    if int(np.prod(shape, dtype=int)) < MIN_SHARD:
        return PartitionSpec()
    if tensor > 1 and shape[-1] % tensor == 0:
        spec[-1] = "tensor"
    free = [i for i, n in enumerate(shape) if spec[i] is None and n % fsdp == 0]
    if fsdp > 1 and free:
        spec[max(free, key=lambda i: shape[i])] = "fsdp"
    return PartitionSpec(*spec)


def params(mesh: Mesh, tree: Any) -> Any:
    """The sharding of each leaf of a tree of parameters or their statistics."""

    def one(x: Any) -> NamedSharding:
        spec = param_spec(np.shape(x), mesh.shape["fsdp"], mesh.shape["tensor"])
        return NamedSharding(mesh, spec)

    return jax.tree.map(one, tree)
