"""Turning dictionaries of observations or actions into flat vectors and images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from elements import Space
from jaxtyping import Array, Float

from .heads import classes
from .numerics import symlog


class VectorKey(NamedTuple):
    """How one key enters the flat vector."""

    name: str
    rank: int  # Dimensions of the value, without batch.
    size: int  # Elements of the value.
    classes: int  # Classes of a discrete value; 0 for a continuous one.

    @property
    def width(self) -> int:
        """Features of this key in the flat vector."""
        return self.size * (self.classes or 1)


def is_image(space: Space) -> bool:
    """Whether a space holds an image: uint8 with height, width and channels."""
    return space.dtype == np.uint8 and len(space.shape) == 3


def vector_keys(spaces: Mapping[str, Space]) -> tuple[VectorKey, ...]:
    """The non-image keys in sorted order; raises for what cannot be embedded."""
    keys = []
    for name, space in sorted(spaces.items()):
        if is_image(space):
            continue
        if len(space.shape) > 2:
            raise ValueError(
                f"Space '{name}' has dtype {space.dtype.name} and shape {space.shape}. "
                "Images must be uint8 [height, width, channels]; other values may "
                "have at most two dimensions."
            )
        count = classes(name, space) if space.discrete else 0
        size = int(np.prod(space.shape, dtype=int))
        keys.append(VectorKey(name, len(space.shape), size, count))
    return tuple(keys)


def flatten(
    values: Mapping[str, Array], keys: tuple[VectorKey, ...], squash: bool = False
) -> Float[Array, "*B D"]:
    """One-hot discrete and flat continuous values, concatenated in key order."""
    parts = []
    for key in keys:
        value = values[key.name]
        batch = value.shape[: value.ndim - key.rank]
        if key.classes:
            value = jax.nn.one_hot(
                value.astype(jnp.int32), key.classes, dtype="float32"
            )
        else:
            value = value.astype(jnp.float32)
            value = symlog(value) if squash else value
        parts.append(value.reshape((*batch, key.width)))
    return jnp.concatenate(parts, -1)


def stage_count(height: int, width: int, stages: int) -> int:
    """How often an image is halved so that the smallest map has 4 to 16 pixels a side.

    At most `stages` times if that suffices, else more often.
    """
    count = 0
    small, large = min(height, width), max(height, width)
    while (
        height % 2 ** (count + 1) == 0
        and width % 2 ** (count + 1) == 0
        and small // 2 ** (count + 1) >= 4
        and (count < stages or large // 2**count > 16)
    ):
        count += 1
    if not count or large // 2**count > 16:
        raise ValueError(
            f"Images of {height}x{width} pixels cannot be halved to a map of 4 to 16 "
            "pixels a side. Resize them, for example to 64x64, 96x96 or 128x128."
        )
    return count


def stage_mults(mults: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Channel multiples of `count` stages: the last ones, or the last one repeated."""
    extra = max(0, count - len(mults))
    return (*mults, *mults[-1:] * extra)[-count:]
