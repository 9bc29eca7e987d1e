"""Norms and softmaxes of rows, in a form that XLA runs fast on a CPU.

XLA reduces rows there in windows, number by number. Folding the second half of each row
onto the first works on vectors: a maximum of 255 numbers takes a fifth of the time, a
sum of squares a half. Gradients are written out, as XLA would reduce in them, too.
"""

from __future__ import annotations

import math
from functools import partial

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .dispatch import fast_on_cpu
from .products import spread

Axes = tuple[int, ...]
FOLDED = 32  # Rows of no more numbers are left to XLA, and so are odd ones.


def row_max(x: Float[Array, "*B C"]) -> Float[Array, "*B"]:
    """The largest number of each row, without a gradient."""
    x = jax.lax.stop_gradient(x)
    while (size := x.shape[-1]) > 1:
        half = (size + 1) // 2  # The middle of an odd row meets itself.
        x = jnp.maximum(x[..., :half], x[..., size - half :])
    return x[..., 0]


def fold_sum(x: Float[Array, "*B C"], least: int) -> Float[Array, "*B D"]:
    """Add the second half of each row to its first while even and above `least`."""
    while (size := x.shape[-1]) > least and size % 2 == 0:
        x = x[..., : size // 2] + x[..., size // 2 :]
    return x


@jax.custom_jvp
def row_sum(x: Float[Array, "*B C"]) -> Float[Array, "*B"]:
    """The sum of each row."""
    return fold_sum(x, FOLDED).sum(-1)


@row_sum.defjvp
def _row_sum_tangent(xs: tuple[Array], ts: tuple[Array]) -> tuple[Array, Array]:
    """Written as one sum, whose gradient is a broadcast and not folded halves."""
    return row_sum(xs[0]), ts[0].sum(-1)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def spread_rows(x: Float[Array, "*B"], size: int) -> Float[Array, "*B C"]:
    """Repeat each number along a row of `size`."""
    return jnp.broadcast_to(x[..., None], (*x.shape, size))


def _spread_rows_forward(x: Array, size: int) -> tuple[Array, None]:
    return spread_rows(x, size), None


def _spread_rows_backward(size: int, _: None, dy: Array) -> tuple[Array]:
    return (row_sum(dy),)


spread_rows.defvjp(_spread_rows_forward, _spread_rows_backward)


@jax.custom_vjp
def _fast_softmax(x: Array) -> Array:
    powers = jnp.exp(x - row_max(x)[..., None])
    return powers / row_sum(powers)[..., None]


def _softmax_forward(x: Array) -> tuple[Array, Array]:
    y = _fast_softmax(x)
    return y, y


def _softmax_backward(y: Array, dy: Array) -> tuple[Array]:
    return (y * (dy - row_sum(y * dy)[..., None]),)


_fast_softmax.defvjp(_softmax_forward, _softmax_backward)


@fast_on_cpu(_fast_softmax)
def softmax(x: Float[Array, "*B C"]) -> Float[Array, "*B C"]:
    """exp(x) / Σ exp(x)."""
    return jax.nn.softmax(x)


@jax.custom_vjp
def _fast_logsumexp(x: Array) -> Array:
    return _logsumexp_forward(x)[0]


def _logsumexp_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    """Also what the gradient is made of: x below its maximum, and the rest of ln Σ."""
    top = row_max(x)
    below = x - top[..., None]
    rest = jnp.log(row_sum(jnp.exp(below)))
    return top + rest, (below, rest)


def _logsumexp_backward(residuals: tuple[Array, Array], dy: Array) -> tuple[Array]:
    below, rest = residuals
    return (dy[..., None] * jnp.exp(below - rest[..., None]),)


_fast_logsumexp.defvjp(_logsumexp_forward, _logsumexp_backward)


@fast_on_cpu(_fast_logsumexp)
def logsumexp(x: Float[Array, "*B C"]) -> Float[Array, "*B"]:
    """ln Σ exp(x)."""
    return jax.nn.logsumexp(x, -1)


def _fast_log_softmax(x: Array) -> Array:
    x = x - row_max(x)[..., None]  # So that nothing is rounded off.
    return x - spread_rows(_fast_logsumexp(x), x.shape[-1])


@fast_on_cpu(_fast_log_softmax)
def log_softmax(x: Float[Array, "*B C"]) -> Float[Array, "*B C"]:
    """x - ln Σ exp(x)."""
    return jax.nn.log_softmax(x)


def _fast_rms_norm(x: Array, scale: Array, eps: float, axes: Axes) -> Array:
    power = row_sum(jnp.square(x)).sum(axes[:-1], keepdims=True)
    power = power / math.prod(x.shape[axis] for axis in axes)
    inverse = spread_rows(jax.lax.rsqrt(power + eps), x.shape[-1])
    scale = spread(scale, x.shape) if scale.ndim == 1 else scale
    return x * (inverse * scale)


@fast_on_cpu(_fast_rms_norm)
def rms_norm(
    x: Float[Array, "*B D"], scale: Float[Array, "*#B D"], eps: float, axes: Axes
) -> Float[Array, "*B D"]:
    """x / sqrt(mean(x²) + ε) · scale, the mean over `axes`, of which the last is -1."""
    power = jnp.square(x).mean(axes, keepdims=True)
    return x * (jax.lax.rsqrt(power + eps) * scale)
