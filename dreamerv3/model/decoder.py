"""The decoder: latents to reconstructions of the observations."""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from elements import Space
from jaxtyping import Array, Float

from dreamerv3.model.encoder import image_shape
from embodied.core.base import SetupError
from embodied.jax import inputs
from embodied.jax.distributions import MSE, Distribution
from embodied.jax.heads import DictHead, vector_outputs
from embodied.jax.kernels.conv import upsample_conv
from embodied.jax.nets import MLP, BlockLinear, Conv, Layer, Linear, Norm


class Canvas(eqx.Module):
    """Latents to the smallest map of an image: [..., H, W, C]."""

    deter: BlockLinear
    stoch: Layer
    project: Linear
    norm: Norm
    shape: tuple[int, int, int] = eqx.field(static=True)

    def __call__(
        self, deter: Float[Array, "N D"], stoch: Float[Array, "N S"]
    ) -> Float[Array, "N H W C"]:
        height, width, channels = self.shape
        groups = self.deter.kernel.shape[0]
        x = self.deter(deter).reshape(-1, groups, height, width, channels // groups)
        x = jnp.moveaxis(x, 1, 3).reshape(-1, *self.shape)
        x = x + self.project(self.stoch(stoch)).reshape(x.shape)
        return jax.nn.silu(self.norm(x))


class Decoder(eqx.Module):
    """MLP for vectors; block-linear canvas and upsampling convolutions for images."""

    vec: DictHead | None
    canvas: Canvas | None
    convs: tuple[Conv, ...]
    norms: tuple[Norm, ...]
    imgout: Conv | None
    images: tuple[tuple[str, int], ...] = eqx.field(static=True)  # Key, channels.
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        spaces: Mapping[str, Space],
        deter: int,
        stoch: int,
        depth: int = 64,
        mults: tuple[int, ...] = (2, 3, 4, 4),
        kernel: int = 5,
        layers: int = 3,
        units: int = 1024,
        bspace: int = 8,
        dtype: str = "float32",
    ):
        vectors = {k: v for k, v in spaces.items() if not inputs.is_image(v)}
        images = {k: v for k, v in spaces.items() if inputs.is_image(v)}
        self.images = tuple((k, v.shape[2]) for k, v in sorted(images.items()))
        self.dtype = dtype
        self.vec = self.canvas = self.imgout = None
        self.convs, self.norms = (), ()
        if vectors:
            mlp = MLP(rng, deter + stoch, units, layers, dtype)
            self.vec = DictHead(mlp, vector_outputs(rng, units, vectors, dtype))
        if images:
            height, width, channels = image_shape(images)
            count = inputs.stage_count(height, width, len(mults))
            depths = [depth * m for m in inputs.stage_mults(tuple(mults), count)]
            shape = (height // 2**count, width // 2**count, depths[-1])
            self.canvas = _canvas(rng, deter, stoch, units, bspace, shape, dtype)
            pairs = list(zip(depths[1:], depths[:-1], strict=True))[::-1]
            self.convs = tuple(Conv(rng, i, o, kernel) for i, o in pairs)
            self.norms = tuple(Norm(o) for _, o in pairs)
            self.imgout = Conv(rng, depths[0], channels, kernel)

    def __call__(
        self, deter: Float[Array, "*B D"], stoch: Float[Array, "*B S C"]
    ) -> dict[str, Distribution]:
        """A distribution per key, given latents with any leading dimensions."""
        batch = deter.shape[:-1]
        flat = stoch.reshape((*batch, -1))
        dists: dict[str, Distribution] = {}
        if self.vec is not None:
            dists |= self.vec(jnp.concatenate([flat, deter.astype(flat.dtype)], -1))
        if self.images:
            dists |= self._paint(deter, flat)
        return dists

    def _paint(self, deter: Array, stoch: Array) -> dict[str, Distribution]:
        assert self.canvas is not None
        assert self.imgout is not None
        batch = deter.shape[:-1]
        deter, stoch = (x.reshape(-1, x.shape[-1]) for x in (deter, stoch))
        x = self.canvas(deter, stoch)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = jax.nn.silu(norm(upsample_conv(x, *conv.cast(self.dtype))))
        x = upsample_conv(x, *self.imgout.cast(self.dtype)).astype(jnp.float32)
        x = jax.nn.sigmoid(x).reshape((*batch, *x.shape[1:]))
        splits = np.cumsum([channels for _, channels in self.images])[:-1]
        parts = jnp.split(x, splits, -1)
        return {k: MSE(p, 3) for (k, _), p in zip(self.images, parts, strict=True)}


def _canvas(
    rng: np.random.Generator,
    deter: int,
    stoch: int,
    units: int,
    groups: int,
    shape: tuple[int, int, int],
    dtype: str,
) -> Canvas:
    size = int(np.prod(shape))
    if shape[2] % groups or deter % groups:
        raise SetupError(
            f"{deter} recurrent units and {shape[2]} channels of the decoder's last "
            f"stage do not split into {groups} groups: change agent.dec.simple.bspace"
        )
    return Canvas(
        BlockLinear(rng, deter, size, groups, dtype),
        Layer(rng, stoch, 2 * units, dtype),
        Linear(rng, 2 * units, size, dtype=dtype),
        Norm(shape[2]),
        shape,
    )


def losses(
    dists: Mapping[str, Distribution], obs: Mapping[str, Array]
) -> dict[str, Float[Array, "*B"]]:
    """Reconstruction loss per key; images are compared in the range 0 to 1."""
    result = {}
    for key, dist in dists.items():
        target = obs[key]
        if isinstance(dist, MSE):
            target = target.astype(jnp.float32) / 255
        result[key] = dist.loss(target)
    return result
