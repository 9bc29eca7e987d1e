"""The encoder: observations to tokens."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from elements import Space
from jaxtyping import Array, Float, UInt8

from embodied.jax import inputs
from embodied.jax.kernels.conv import conv_pool, in_chunks
from embodied.jax.nets import MLP, Conv, Norm


class Encoder(eqx.Module):
    """MLP on vectors and convolutions on images, concatenated."""

    mlp: MLP | None
    convs: tuple[Conv, ...]
    norms: tuple[Norm, ...]
    vectors: tuple[inputs.VectorKey, ...] = eqx.field(static=True)
    images: tuple[str, ...] = eqx.field(static=True)
    squash: bool = eqx.field(static=True)
    dtype: str = eqx.field(static=True)
    size: int = eqx.field(static=True)  # Features per token.

    def __init__(
        self,
        rng: np.random.Generator,
        spaces: Mapping[str, Space],
        depth: int = 64,
        mults: tuple[int, ...] = (2, 3, 4, 4),
        kernel: int = 5,
        layers: int = 3,
        units: int = 1024,
        symlog: bool = True,
        dtype: str = "float32",
    ):
        self.vectors = inputs.vector_keys(spaces)
        self.images = tuple(sorted(k for k, v in spaces.items() if inputs.is_image(v)))
        self.squash, self.dtype = symlog, dtype
        width = sum(key.width for key in self.vectors)
        self.mlp = MLP(rng, width, units, layers, dtype) if width else None
        self.convs, self.norms, self.size = (), (), units if width else 0
        if self.images:
            height, width, channels = image_shape(spaces)
            count = inputs.stage_count(height, width, len(mults))
            depths = [depth * m for m in inputs.stage_mults(tuple(mults), count)]
            pairs = zip([channels, *depths[:-1]], depths, strict=True)
            self.convs = tuple(Conv(rng, i, o, kernel) for i, o in pairs)
            self.norms = tuple(Norm(units) for units in depths)
            self.size += height * width * depths[-1] // 4**count

    def __call__(self, obs: Mapping[str, Array]) -> Float[Array, "*B D"]:
        """Tokens of observations with any leading dimensions."""
        parts = []
        if self.mlp is not None:
            parts.append(self.mlp(inputs.flatten(obs, self.vectors, self.squash)))
        if self.images:
            parts.append(self._convolve(obs))
        return jnp.concatenate(parts, -1)

    def _convolve(self, obs: Mapping[str, Array]) -> Float[Array, "*B D"]:
        images = jnp.concatenate([obs[key] for key in self.images], -1)
        frames = images.reshape((-1, *images.shape[-3:]))
        return in_chunks(self._stages, frames).reshape((*images.shape[:-3], -1))

    def _stages(self, frames: UInt8[Array, "N H W C"]) -> Float[Array, "N h w d"]:
        x = frames.astype(self.dtype) / 255 - 0.5
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = jax.nn.silu(norm(conv_pool(x, *conv.cast(self.dtype))))
        return x


def image_shape(spaces: Mapping[str, Space]) -> tuple[int, int, int]:
    """Common height and width of all images, and the sum of their channels."""
    shapes = {k: v.shape for k, v in sorted(spaces.items()) if inputs.is_image(v)}
    if len({shape[:2] for shape in shapes.values()}) > 1:
        raise ValueError(f"Images must have the same height and width: {shapes}.")
    height, width = next(iter(shapes.values()))[:2]
    return height, width, sum(shape[2] for shape in shapes.values())
