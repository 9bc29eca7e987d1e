"""LaProp with adaptive gradient clipping, as Optax transformations.

Tensors of equal shape are stacked and updated together: a model has many small ones,
and every separate operation costs time to compile and to start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

Tree = Any
Groups = tuple[Array, ...]  # Tensors of equal shape, [N, *shape] each.
MAX_STACKED = 2**17  # Tensors with more elements stay on their own.


class ClipState(NamedTuple):
    """Norms over all tensors at the last update, for metrics."""

    grads: Float[Array, ""]
    params: Float[Array, ""]


class LaPropState(NamedTuple):
    """State of `scale_by_laprop`."""

    step: Int[Array, ""]  # Updates so far.
    mu: Groups  # Momentum of the scaled gradients.
    nu: Groups  # Running mean of the squared gradients.


def clip_agc(
    grad: Float[Array, "N ..."],
    grad_norm: Float[Array, " N"],
    param_norm: Float[Array, " N"],
    clip: float,
    pmin: float,
) -> Float[Array, "N ..."]:
    """g · min(1, clip · max(pmin, ‖w‖) / ‖g‖), per tensor."""
    bound = clip * jnp.maximum(pmin, param_norm)
    factor = jnp.minimum(1.0, bound / jnp.maximum(grad_norm, 1e-30))
    return grad * factor.reshape((-1,) + (1,) * (grad.ndim - 1))


def tensor_norms(x: Float[Array, "N ..."]) -> Float[Array, " N"]:
    """Euclidean norm of each tensor of a group."""
    return jnp.sqrt(jnp.sum(jnp.square(x), tuple(range(1, x.ndim))))


def adaptive_clip(clip: float, pmin: float = 1e-3) -> optax.GradientTransformation:
    """Clip each gradient to a multiple of the norm of its parameter; 0 is off."""

    def init(params: Groups) -> ClipState:
        del params
        return ClipState(jnp.zeros(()), jnp.zeros(()))

    def update(
        grads: Groups, state: ClipState, params: Groups
    ) -> tuple[Groups, ClipState]:
        gnorms, pnorms = ([tensor_norms(x) for x in xs] for xs in (grads, params))
        if clip:
            pairs = zip(grads, gnorms, pnorms, strict=True)
            grads = tuple(clip_agc(*args, clip, pmin) for args in pairs)
        totals = (jnp.linalg.norm(jnp.concatenate(xs)) for xs in (gnorms, pnorms))
        return grads, ClipState(*totals)

    return optax.GradientTransformation(init, update)


def scale_by_laprop(
    beta1: float, beta2: float, eps: float
) -> optax.GradientTransformation:
    """RMS scaling, then momentum, both bias-corrected (LaProp, arXiv:2002.04839).

    nu = β₂ nu + (1 - β₂) g²,  u = g / (sqrt(nu / (1 - β₂ᵗ)) + ε)
    mu = β₁ mu + (1 - β₁) u,   update = mu / (1 - β₁ᵗ)
    """

    def init(params: Tree) -> LaPropState:
        mu, nu = (jax.tree.map(jnp.zeros_like, params) for _ in range(2))
        return LaPropState(jnp.zeros((), jnp.int32), mu, nu)

    def update(
        grads: Tree, state: LaPropState, params: Tree = None
    ) -> tuple[Tree, LaPropState]:
        del params
        count = state.step + 1
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


def by_shape(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Run a transformation on stacks of equally shaped tensors."""

    def init(params: Tree) -> Any:
        return inner.init(_stack(jax.tree.leaves(params)))

    def update(grads: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
        leaves, structure = jax.tree.flatten(grads)
        stacks = (_stack(leaves), state, _stack(jax.tree.leaves(params)))
        updates, state = inner.update(*stacks)
        return jax.tree.unflatten(structure, _unstack(updates, leaves)), state

    return optax.GradientTransformation(init, update)


def _indices(leaves: list[Array]) -> list[list[int]]:
    """Positions of the leaves of each group."""
    groups: dict[Any, list[int]] = {}
    for index, leaf in enumerate(leaves):
        large = int(np.prod(leaf.shape, dtype=int)) > MAX_STACKED
        groups.setdefault((leaf.shape, index if large else -1), []).append(index)
    return list(groups.values())


def _stack(leaves: list[Array]) -> Groups:
    groups = _indices(leaves)
    return tuple(jnp.stack([leaves[i] for i in group]) for group in groups)


def _unstack(groups: Groups, leaves: list[Array]) -> list[Array]:
    result = list(leaves)
    for values, indices in zip(groups, _indices(leaves), strict=True):
        for value, index in zip(values, indices, strict=True):
            result[index] = value
    return result


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
    return by_shape(
        optax.chain(
            adaptive_clip(agc),
            scale_by_laprop(beta1, beta2, eps),
            optax.scale_by_learning_rate(schedule),
        )
    )
