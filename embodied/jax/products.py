"""Products with kernels, in a form whose gradient XLA runs fast on a CPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .numerics import on_one_cpu


@jax.custom_vjp
def product(
    x: Float[Array, "*B I"], kernel: Float[Array, "I O"]
) -> Float[Array, "*B O"]:
    """x K."""
    return x @ kernel


def _product_forward(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return x @ kernel, (x, kernel)


def _product_backward(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    x, kernel = residuals
    return dy @ kernel.T, kernel_grad(x, dy)


product.defvjp(_product_forward, _product_backward)


def kernel_grad(
    x: Float[Array, "*B I"], dy: Float[Array, "*B O"]
) -> Float[Array, "I O"]:
    """Σ xᵀ dy over all leading dimensions.

    What JAX makes of it by itself takes up to three times as long on a CPU: XLA turns
    `dy` round in memory and then multiplies by it the other way round. Other devices
    may have split one of the leading dimensions, so there they stay as they are.
    """
    if not on_one_cpu():
        return jnp.einsum("...i,...o->io", x, dy)
    x, dy = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
    if dy.shape[1] >= x.shape[1]:
        return x.T @ dy
    # Without the barrier XLA would exchange the factors again.
    return jax.lax.optimization_barrier(dy.T @ x).T
