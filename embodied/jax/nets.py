"""Layers as immutable Equinox modules: linear, block-linear, norm, MLP, convolution.

Parameters are float32 and drawn by numpy from a `Generator`, which needs no
compilation. Layers compute in their `dtype`; norms always compute in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from embodied import public_names

from .kernels import products, rows
from .numerics import check_float

public_names.extend(__name__)

NORM_EPS = 1e-4
# Undoes the loss of variance from cutting a normal at two standard deviations.
TRUNCATION = 1.1368


def truncated_normal(
    rng: np.random.Generator, shape: tuple[int, ...], outscale: float = 1.0
) -> Any:
    """Kernel ~ N(0, (1.1368² / fan_in)) cut at two stddevs; fan_in = Π shape[:-1]."""
    values = rng.standard_normal(shape, np.float32)
    outside = np.abs(values) > 2
    while outside.any():
        values[outside] = rng.standard_normal(int(outside.sum()), np.float32)
        outside = np.abs(values) > 2
    scale = outscale * TRUNCATION * np.sqrt(1 / np.prod(shape[:-1]))
    return values * np.float32(scale)


def constant(value: float, size: int) -> Any:
    """A vector of one value, on the host."""
    return np.full(size, value, np.float32)


def rms_norm(
    x: Float[Array, "*B D"],
    scale: Float[Array, "*B D"],
    eps: float = NORM_EPS,
    axes: tuple[int, ...] = (-1,),
) -> Float[Array, "*B D"]:
    """x / sqrt(mean(x²) + ε) · scale, computed in float32.

    There is one scale for all rows, or one each.
    """
    check_float("x", x)
    return rows.rms_norm(x.astype(jnp.float32), scale, eps, axes).astype(x.dtype)


def block_linear(
    x: Float[Array, "*B I"],
    kernel: Float[Array, "G I/G O/G"],
    bias: Float[Array, " O"] | None = None,
) -> Float[Array, "*B O"]:
    """y_g = x_g K_g + b_g for each of G groups of the features."""
    groups, size, _ = kernel.shape
    blocks = jnp.moveaxis(x.reshape(-1, groups, size), 1, 0)
    y = jnp.moveaxis(jnp.matmul(blocks, kernel), 0, 1)
    y = y.reshape((*x.shape[:-1], -1))
    return y if bias is None else y + bias


class Linear(eqx.Module):
    """y = x K + b."""

    kernel: Float[Array, "I O"]
    bias: Float[Array, " O"]
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        size: int,
        units: int,
        outscale: float = 1.0,
        dtype: str = "float32",
    ):
        self.kernel = truncated_normal(rng, (size, units), outscale)
        self.bias = constant(0, units)
        self.dtype = dtype

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        kernel, bias = self.kernel.astype(self.dtype), self.bias.astype(self.dtype)
        return products.linear(x.astype(self.dtype), kernel, bias)

    def split(self) -> tuple[Array, None, Array]:
        """Kernel, that of shared inputs, and bias, in the compute dtype."""
        return self.kernel.astype(self.dtype), None, self.bias.astype(self.dtype)[None]


class BlockLinear(eqx.Module):
    """y_g = x_g K_g + b_g for each group; initialised with the full fan-in.

    Besides its own inputs, each group may get `shared` ones that are the same for all.
    """

    kernel: Float[Array, "G I/G+S O/G"]
    bias: Float[Array, " O"]
    shared: int = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        size: int,
        units: int,
        groups: int,
        dtype: str = "float32",
        shared: int = 0,
    ):
        if size % groups or units % groups:
            raise ValueError(f"{size} and {units} units do not split in {groups}.")
        shape = (groups, size // groups + shared, units // groups)
        self.kernel = truncated_normal(rng, shape)
        self.bias = constant(0, units)
        self.shared, self.dtype = shared, dtype

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        kernel, bias = self.kernel.astype(self.dtype), self.bias.astype(self.dtype)
        return block_linear(x.astype(self.dtype), kernel, bias)

    def blocks(
        self, x: Float[Array, "G B I/G"], shared: Float[Array, "B S"] | None = None
    ) -> Float[Array, "G B O/G"]:
        """The same map of inputs that are already in groups."""
        own, common, bias = self.split()
        y = x.astype(self.dtype) @ own + bias
        if shared is None:
            return y
        return y + to_blocks(shared.astype(self.dtype) @ common, len(own))

    def split(self) -> tuple[Array, Array, Array]:
        """Kernels [G, I/G, O/G] and [S, O], and bias [G, 1, O/G]."""
        kernel, bias = self.kernel.astype(self.dtype), self.bias.astype(self.dtype)
        groups, inputs, _ = kernel.shape
        own, common = jnp.split(kernel, [inputs - self.shared], 1)
        common = jnp.moveaxis(common, 0, 1).reshape(self.shared, bias.size)
        return own, common, bias.reshape(groups, 1, -1)


def to_blocks(x: Float[Array, "B D"], groups: int) -> Float[Array, "G B D/G"]:
    """Split features into groups, which become the first dimension."""
    return jnp.moveaxis(x.reshape(len(x), groups, -1), 1, 0)


def from_blocks(x: Float[Array, "G B K"]) -> Float[Array, "B G*K"]:
    """The inverse of `to_blocks`."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1)


class Norm(eqx.Module):
    """RMSNorm over the last dimension with a learned scale."""

    scale: Float[Array, " D"]

    def __init__(self, size: int):
        self.scale = constant(1, size)

    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        return rms_norm(x, self.scale)

    def blocks(self, x: Float[Array, "G B K"]) -> Float[Array, "G B K"]:
        """The norm over all groups together."""
        scale = to_blocks(jnp.atleast_2d(self.scale), len(x))
        return rms_norm(x, scale, axes=(0, -1))


class Layer(eqx.Module):
    """Linear → RMSNorm → SiLU."""

    linear: Linear
    norm: Norm

    def __init__(
        self, rng: np.random.Generator, size: int, units: int, dtype: str = "float32"
    ):
        self.linear = Linear(rng, size, units, dtype=dtype)
        self.norm = Norm(units)

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        return self.activate(self.linear(x))

    def activate(self, x: Float[Array, "*B O"]) -> Float[Array, "*B O"]:
        """What comes after the linear map."""
        return jax.nn.silu(self.norm(x))


class BlockLayer(eqx.Module):
    """Block-linear → RMSNorm over all groups → SiLU, of inputs in groups."""

    linear: BlockLinear
    norm: Norm

    def __call__(
        self, x: Float[Array, "G B I"], shared: Float[Array, "B S"] | None = None
    ) -> Float[Array, "G B O"]:
        return jax.nn.silu(self.norm.blocks(self.linear.blocks(x, shared)))


class MLP(eqx.Module):
    """A stack of layers of equal width."""

    layers: tuple[Layer, ...]

    def __init__(
        self,
        rng: np.random.Generator,
        size: int,
        units: int,
        layers: int,
        dtype: str = "float32",
    ):
        sizes = [size] + [units] * layers
        self.layers = tuple(
            Layer(rng, size, units, dtype) for size, units in itertools.pairwise(sizes)
        )

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        return self.finish(self.layers[0].linear(x)) if self.layers else x

    def finish(self, x: Float[Array, "*B U"]) -> Float[Array, "*B O"]:
        """What comes after the first linear map."""
        for i, layer in enumerate(self.layers):
            x = layer.activate(layer.linear(x) if i else x)
        return x


def first_maps(mlps: Sequence[MLP], x: Float[Array, "*B I"]) -> list[Array]:
    """What each MLP is to `finish` for the same input."""
    firsts = [mlp.layers[0].linear for mlp in mlps if mlp.layers]
    if not firsts:
        return [x] * len(mlps)
    dtype = firsts[0].dtype
    kernels = [linear.kernel.astype(dtype) for linear in firsts]
    biases = [linear.bias.astype(dtype) for linear in firsts]
    maps = iter(products.linears(x.astype(dtype), kernels, biases))
    return [next(maps) if mlp.layers else x for mlp in mlps]


class Conv(eqx.Module):
    """Kernel and bias of a convolution; `embodied.jax.kernels.conv` applies them."""

    kernel: Float[Array, "K K I O"]
    bias: Float[Array, " O"]

    def __init__(self, rng: np.random.Generator, size: int, units: int, kernel: int):
        self.kernel = truncated_normal(rng, (kernel, kernel, size, units))
        self.bias = constant(0, units)

    def cast(self, dtype: str) -> tuple[Array, Array]:
        """Kernel and bias in the compute dtype."""
        return self.kernel.astype(dtype), self.bias.astype(dtype)
