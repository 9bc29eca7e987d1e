"""LaProp with adaptive gradient clipping, as Optax transformations.

Small tensors are updated together, as rows of one matrix: a model has a hundred of
them, and every separate operation costs time to compile and to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

Tree = Any
LANES = 1024  # Numbers per row; what a tensor leaves of its last one is zero.
# Tensors with more elements stay on their own. On a mesh that splits parameters, those
# of `sharding.MIN_SHARD` to this many are gathered for their update.
MAX_PACKED = 2**17


class Packed(eqx.Module):
    """The tensors of a tree, the small ones as rows of one matrix."""

    rows: Float[Array, "R L"]
    large: tuple[Array, ...]  # Of their own shapes.
    counts: tuple[int, ...] = eqx.field(static=True)  # Rows of each small tensor.

    def norms(self) -> Float[Array, " N"]:
        """Euclidean norm of each tensor, the small ones first."""
        own = np.arange(len(self.counts))[:, None] == self._owners()
        # No product with zeros and ones: what overflows in one tensor stays there.
        small = jnp.where(own, jnp.square(self.rows).sum(1), 0.0).sum(1)
        large = [jnp.square(x).sum()[None] for x in self.large]
        return jnp.sqrt(jnp.concatenate([small, *large]))

    def scale(self, factors: Float[Array, " N"]) -> Packed:
        """Each tensor times its factor."""
        rows = self.rows * factors[self._owners()][:, None]
        others = factors[len(self.counts) :]
        large = tuple(x * f for x, f in zip(self.large, others, strict=True))
        return Packed(rows, large, self.counts)

    def _owners(self) -> np.ndarray:
        """The small tensor of each row."""
        return np.repeat(np.arange(len(self.counts)), self.counts)


class ClipState(NamedTuple):
    """Norms over all tensors at the last update, for metrics."""

    grads: Float[Array, ""]
    params: Float[Array, ""]


class LaPropState(NamedTuple):
    """State of `scale_by_laprop`."""

    step: Int[Array, ""]  # Updates so far.
    mu: Packed  # Momentum of the scaled gradients.
    nu: Packed  # Running mean of the squared gradients.


def adaptive_clip(clip: float, pmin: float = 1e-3) -> optax.GradientTransformation:
    """g · min(1, clip · max(pmin, ‖w‖) / ‖g‖) for each tensor; 0 is off."""

    def init(params: Packed) -> ClipState:
        del params
        return ClipState(jnp.zeros(()), jnp.zeros(()))

    def update(
        grads: Packed, state: ClipState, params: Packed
    ) -> tuple[Packed, ClipState]:
        del state
        gnorms, pnorms = grads.norms(), params.norms()
        if clip:
            bound = clip * jnp.maximum(pmin, pnorms)
            grads = grads.scale(jnp.minimum(1.0, bound / jnp.maximum(gnorms, 1e-30)))
        return grads, ClipState(jnp.linalg.norm(gnorms), jnp.linalg.norm(pnorms))

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


def on_packed(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Run a transformation on packed tensors."""

    def init(params: Tree) -> Any:
        return inner.init(pack(jax.tree.leaves(params)))

    def update(grads: Tree, state: Any, params: Tree) -> tuple[Tree, Any]:
        leaves, structure = jax.tree.flatten(grads)
        args = (pack(leaves), state, pack(jax.tree.leaves(params)))
        updates, state = inner.update(*args)
        return jax.tree.unflatten(structure, _unpack(updates, leaves)), state

    return optax.GradientTransformation(init, update)


def pack(leaves: Sequence[Array]) -> Packed:
    """Tensors in the form in which their statistics are kept."""
    small = [x for x in leaves if x.size <= MAX_PACKED]
    counts = tuple(_row_count(x) for x in small)
    parts: list[Any] = [np.zeros(0, np.float32)]  # Perhaps there are no others.
    for x, count in zip(small, counts, strict=True):
        parts += [x.reshape(-1), np.zeros(count * LANES - x.size, np.float32)]
    rows = jnp.concatenate(parts).reshape(-1, LANES)
    return Packed(rows, tuple(x for x in leaves if x.size > MAX_PACKED), counts)


def _unpack(values: Packed, leaves: Sequence[Array]) -> list[Array]:
    """Tensors of the same shapes as `leaves`."""
    result, large, start = [], iter(values.large), 0
    for leaf in leaves:
        if leaf.size > MAX_PACKED:
            result.append(next(large))
            continue
        rows = values.rows[start : start + _row_count(leaf)]
        result.append(rows.reshape(-1)[: leaf.size].reshape(leaf.shape))
        start += len(rows)
    return result


def _row_count(tensor: Array) -> int:
    return -(-tensor.size // LANES)


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
    return on_packed(
        optax.chain(
            adaptive_clip(agc),
            scale_by_laprop(beta1, beta2, eps),
            optax.scale_by_learning_rate(schedule),
        )
    )
