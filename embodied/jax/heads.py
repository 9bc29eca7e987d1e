"""Heads: an MLP and one output per key, each returning a distribution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import equinox as eqx
import numpy as np
from elements import Space
from jaxtyping import Array, Float

from embodied import public_names

from . import distributions as dists
from .nets import MLP, Linear

public_names.extend(__name__)

Kind = Literal["twohot", "binary", "categorical", "normal", "symlog_mse"]


class Output(eqx.Module):
    """Linear map of features to the parameters of one distribution.

    `linears` holds one map, or the two of mean and standard deviation for `normal`.
    """

    linears: tuple[Linear, ...]
    kind: Kind = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)  # Shape of the event.
    classes: int = eqx.field(static=True)  # Classes or bins; 1 for other kinds.
    bounds: tuple[float, float] = eqx.field(static=True)  # Of the standard deviation.
    unimix: float = eqx.field(static=True)  # Uniform share of a categorical.

    def __init__(
        self,
        rng: np.random.Generator,
        size: int,
        kind: Kind,
        shape: tuple[int, ...] = (),
        classes: int = 1,
        outscale: float = 1.0,
        bounds: tuple[float, float] = (0.1, 1.0),
        unimix: float = 0.0,
        dtype: str = "float32",
    ):
        units = int(np.prod(shape, dtype=int)) * classes
        self.linears = tuple(
            Linear(rng, size, units, outscale, dtype)
            for _ in range(2 if kind == "normal" else 1)
        )
        self.kind, self.shape, self.classes = kind, tuple(shape), classes
        self.bounds, self.unimix = bounds, unimix

    def __call__(self, x: Float[Array, "*B D"]) -> dists.Distribution:
        dims = len(self.shape)
        outs = [linear(x) for linear in self.linears]
        last = (self.classes,) if self.kind in ("twohot", "categorical") else ()
        outs = [y.reshape((*x.shape[:-1], *self.shape, *last)) for y in outs]
        if self.kind == "twohot":
            return dists.TwoHot(outs[0])
        if self.kind == "binary":
            return dists.Binary(outs[0])
        if self.kind == "categorical":
            return dists.Categorical(outs[0], dims, self.unimix)
        if self.kind == "symlog_mse":
            return dists.SymlogMSE(outs[0], dims)
        return dists.BoundedNormal(outs[0], outs[1], *self.bounds, dims)


class Head(eqx.Module):
    """MLP with a single output."""

    mlp: MLP
    out: Output

    def __call__(self, x: Float[Array, "*B D"]) -> dists.Distribution:
        return self.out(self.mlp(x))

    def finish(self, x: Float[Array, "*B U"]) -> dists.Distribution:
        """The distribution, given what `nets.first_maps` made for the MLP."""
        return self.out(self.mlp.finish(x))


class DictHead(eqx.Module):
    """MLP shared by one output per key."""

    mlp: MLP
    outs: dict[str, Output]

    def __call__(self, x: Float[Array, "*B D"]) -> dict[str, dists.Distribution]:
        return self._outputs(self.mlp(x))

    def finish(self, x: Float[Array, "*B U"]) -> dict[str, dists.Distribution]:
        """The distributions, given what `nets.first_maps` made for the MLP."""
        return self._outputs(self.mlp.finish(x))

    def _outputs(self, x: Float[Array, "*B U"]) -> dict[str, dists.Distribution]:
        return {key: out(x) for key, out in sorted(self.outs.items())}


def classes(key: str, space: Space) -> int:
    """Number of classes of a discrete space, the same for all its elements."""
    counts = np.unique(np.asarray(space.classes, np.int64))
    lows = np.unique(np.asarray(space.low, np.int64))
    if len(counts) != 1 or lows.tolist() != [0]:
        raise ValueError(
            f"Space '{key}' must count classes from 0, as many for each of its "
            f"elements; it goes from {space.low} to {space.high}."
        )
    if not 1 < counts[0] <= 65536:
        raise ValueError(
            f"Space '{key}' has {counts[0]} classes; give it bounds, for example "
            f"Space(np.int32, (), 0, 10)."
        )
    return int(counts[0])


def vector_outputs(
    rng: np.random.Generator, size: int, spaces: Mapping[str, Space], dtype: str
) -> dict[str, Output]:
    """Outputs that reconstruct vector spaces: categorical or squared symlog error."""
    outs = {}
    for key, space in sorted(spaces.items()):
        kind: Kind = "categorical" if space.discrete else "symlog_mse"
        count = classes(key, space) if space.discrete else 1
        outs[key] = Output(rng, size, kind, space.shape, count, dtype=dtype)
    return outs


def action_outputs(
    rng: np.random.Generator,
    size: int,
    spaces: Mapping[str, Space],
    outscale: float,
    bounds: tuple[float, float],
    unimix: float,
    dtype: str,
) -> dict[str, Output]:
    """Outputs of a policy: categorical or bounded normal per action key."""
    outs = {}
    for key, space in sorted(spaces.items()):
        kind: Kind = "categorical" if space.discrete else "normal"
        count = classes(key, space) if space.discrete else 1
        outs[key] = Output(
            rng, size, kind, space.shape, count, outscale, bounds, unimix, dtype
        )
    return outs
