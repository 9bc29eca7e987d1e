"""Device meshes (data, fsdp, tensor) and where arrays live on them.

A mesh may span several processes, one a host. Then `data` is split over them and the
other axes stay within one: so each process has all parameters and its rows of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    mesh = Mesh(np.array(devices).reshape(sizes), AXES)
    hosts = _hosts(mesh)
    if mesh.shape["data"] % hosts:
        raise ValueError(
            f"jax.mesh={list(shape)} splits parameters over {hosts} hosts, each of "
            "which needs all of them: the first size must be a multiple of the hosts."
        )
    return mesh


def put(tree: Any, place: Any) -> Any:
    """Move a tree that every process of the mesh has to where `place` says."""
    if all(where.is_fully_addressable for where in jax.tree.leaves(place)):
        return jax.device_put(tree, place, may_alias=False)

    def one(where: NamedSharding, x: Any) -> jax.Array:
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, where, x.__getitem__)

    if isinstance(place, NamedSharding):
        return jax.tree.map(lambda x: one(place, x), tree)
    return jax.tree.map(one, place, tree)


def put_rows(tree: Any, size: int, place: NamedSharding) -> Any:
    """Move the `rows` that this process has of a batch of `size` rows."""

    def one(x: np.ndarray) -> jax.Array:
        shape = (size, *x.shape[1:])
        return jax.make_array_from_process_local_data(place, x, shape)

    return jax.tree.map(one, tree)


def rows(mesh: Mesh, size: int, process: int) -> slice:
    """Which rows of a batch of `size` rows are on the devices of a process."""
    if batched(mesh, size).is_fully_replicated:
        return slice(0, size)
    share = size // _hosts(mesh)
    return slice(process * share, (process + 1) * share)


def local(tree: Any) -> Any:
    """Arrays that are whole in every process, as arrays of this one; no copies."""

    def one(x: jax.Array) -> jax.Array:
        if x.is_fully_addressable:
            return x
        assert isinstance(x.sharding, NamedSharding)
        place = NamedSharding(x.sharding.mesh.local_mesh, x.sharding.spec)
        shards = [shard.data for shard in x.addressable_shards]
        return jax.make_array_from_single_device_arrays(x.shape, place, shards)

    return jax.tree.map(one, tree)


def replicated(mesh: Mesh) -> NamedSharding:
    """A copy on every device."""
    return NamedSharding(mesh, PartitionSpec())


def batched(mesh: Mesh, size: int) -> NamedSharding:
    """Split along the first dimension if its `size` allows, else a copy each."""
    ways = mesh.shape["data"] * mesh.shape["fsdp"]
    return NamedSharding(mesh, PartitionSpec(BATCH if size % ways == 0 else None))


def splits_rows(mesh: Mesh, size: int) -> bool:
    """Whether devices have sequences of their own and the same parameters."""
    return mesh.size > 1 and mesh.shape["data"] == mesh.size and size % mesh.size == 0


def by_rows(
    fn: Callable[..., Any], mesh: Mesh, ins: Sequence[bool], outs: Sequence[bool]
) -> Callable[..., Any]:
    """Run `fn` on every device, for its rows of what is split and all of the rest.

    `ins` and `outs` say which arguments and results are split. All that devices need of
    each other is asked for with `collectives`, so they never wait anywhere else.
    """

    def specs(split: Sequence[bool]) -> tuple[PartitionSpec, ...]:
        return tuple(PartitionSpec(BATCH) if x else PartitionSpec() for x in split)

    return jax.shard_map(
        fn, mesh=mesh, in_specs=specs(ins), out_specs=specs(outs), check_vma=False
    )


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


def _hosts(mesh: Mesh) -> int:
    return len({device.process_index for device in mesh.devices.flat})
