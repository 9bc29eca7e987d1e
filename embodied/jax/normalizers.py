"""Running statistics as small records with pure updates."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .numerics import percentiles


class Range(NamedTuple):
    """Running percentiles of a quantity."""

    lo: Float[Array, ""]
    hi: Float[Array, ""]

    def scale(self, limit: float) -> Float[Array, ""]:
        """max(limit, hi - lo)."""
        return jnp.maximum(limit, self.hi - self.lo)


def init_range() -> Range:
    """A range that has seen nothing: starts at zero, without debiasing."""
    return Range(jnp.zeros(()), jnp.zeros(()))


def update_range(
    old: Range, x: Float[Array, "*S"], rate: float, perclo: float, perchi: float
) -> Range:
    """lo ← (1 - rate) lo + rate · percentile(x), the same for hi."""
    lo, hi = percentiles(jax.lax.stop_gradient(x), perclo, perchi)
    return Range(old.lo + rate * (lo - old.lo), old.hi + rate * (hi - old.hi))


def moving_average(slow: Any, fast: Any, rate: Float[Array, ""] | float) -> Any:
    """slow ← (1 - rate) slow + rate · fast, for every leaf of two equal trees."""

    def one(s: Array, f: Array) -> Array:
        return (1 - rate) * s + rate * f

    return jax.tree.map(one, slow, fast)
