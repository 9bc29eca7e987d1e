"""LaProp with adaptive gradient clipping, as Optax transformations."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

Tree = Any


class LaPropState(NamedTuple):
    """State of `scale_by_laprop`."""

    count: Int[Array, ""]  # Updates so far.
    mu: Tree  # Momentum of the scaled gradients, like the parameters.
    nu: Tree  # Running mean of the squared gradients, like the parameters.


def clip_agc(
    grad: Float[Array, "*S"], param: Float[Array, "*S"], clip: float, pmin: float
) -> Float[Array, "*S"]:
    """g · min(1, clip · max(pmin, ‖w‖) / ‖g‖), per tensor."""
    bound = clip * jnp.maximum(pmin, jnp.linalg.norm(param.reshape(-1)))
    norm = jnp.linalg.norm(grad.reshape(-1))
    return grad * jnp.minimum(1.0, bound / jnp.maximum(norm, 1e-30))


def adaptive_clip(clip: float, pmin: float = 1e-3) -> optax.GradientTransformation:
    """Clip each gradient to a multiple of the norm of its parameter; 0 is off."""

    def update(grads: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        def one(grad: Array, param: Array) -> Array:
            return clip_agc(grad, param, clip, pmin)

        return jax.tree.map(one, grads, params), state

    def init(params: Tree) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    return optax.GradientTransformation(init, update) if clip else optax.identity()


def scale_by_laprop(
    beta1: float, beta2: float, eps: float
) -> optax.GradientTransformation:
    """RMS scaling, then momentum, both bias-corrected (LaProp, arXiv:2002.04839).

    ν ← β₂ ν + (1 - β₂) g²,  u = g / (sqrt(ν / (1 - β₂ᵗ)) + ε)
    μ ← β₁ μ + (1 - β₁) u,   update = μ / (1 - β₁ᵗ)
    """

    def init(params: Tree) -> LaPropState:
        zeros = jax.tree.map(jnp.zeros_like, params)
        more = jax.tree.map(jnp.zeros_like, params)  # Donated buffers are not shared.
        return LaPropState(jnp.zeros((), jnp.int32), zeros, more)

    def update(
        grads: Tree, state: LaPropState, params: Tree = None
    ) -> tuple[Tree, LaPropState]:
        del params
        count = state.count + 1
        fix1 = 1 / (1 - beta1 ** count.astype(jnp.float32))
        fix2 = 1 / (1 - beta2 ** count.astype(jnp.float32))

        def second(nu: Array, g: Array) -> Array:
            return beta2 * nu + (1 - beta2) * jnp.square(g)

        def first(mu: Array, nu: Array, g: Array) -> Array:
            return beta1 * mu + (1 - beta1) * g / (jnp.sqrt(nu * fix2) + eps)

        nu = jax.tree.map(second, state.nu, grads)
        mu = jax.tree.map(first, state.mu, nu, grads)
        updates = jax.tree.map(lambda m: m * fix1, mu)
        return updates, LaPropState(count, mu, nu)

    return optax.GradientTransformation(init, update)


def laprop(
    lr: float,
    agc: float = 0.3,
    eps: float = 1e-20,
    beta1: float = 0.9,
    beta2: float = 0.999,
    warmup: int = 1000,
) -> optax.GradientTransformation:
    """AGC, LaProp, and a learning rate that grows linearly over `warmup` updates."""
    schedule = optax.linear_schedule(0.0, lr, warmup) if warmup else lr
    return optax.chain(
        adaptive_clip(agc),
        scale_by_laprop(beta1, beta2, eps),
        optax.scale_by_learning_rate(schedule),
    )
