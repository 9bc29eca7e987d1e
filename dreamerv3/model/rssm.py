"""The RSSM: a block GRU with categorical latents, its prior and its posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from dreamerv3.model.latents import Latent
from embodied.jax.distributions import OneHot
from embodied.jax.kernels.scan import arranged, scan
from embodied.jax.nets import (
    MLP,
    BlockLayer,
    BlockLinear,
    Layer,
    Linear,
    Norm,
    from_blocks,
    to_blocks,
)


class RSSM(eqx.Module):
    """Recurrent state-space model over tokens and actions."""

    dynin: tuple[Layer, Layer, Layer]  # From deter, stoch and action.
    dynhid: tuple[BlockLayer, ...]
    dyngru: BlockLinear
    obs: MLP
    obslogit: Linear
    prior: MLP
    priorlogit: Linear
    deter: int = eqx.field(static=True)
    stoch: int = eqx.field(static=True)
    classes: int = eqx.field(static=True)
    blocks: int = eqx.field(static=True)
    unimix: float = eqx.field(static=True)
    unroll: int = eqx.field(static=True)
    dtype: str = eqx.field(static=True)

    def __init__(
        self,
        rng: np.random.Generator,
        tokens: int,
        actions: int,
        deter: int = 8192,
        hidden: int = 1024,
        stoch: int = 32,
        classes: int = 64,
        blocks: int = 8,
        unimix: float = 0.01,
        imglayers: int = 2,
        obslayers: int = 1,
        dynlayers: int = 1,
        unroll: int = 1,
        dtype: str = "float32",
    ):
        if min(imglayers, obslayers, dynlayers) < 1:
            raise ValueError("imglayers, obslayers and dynlayers must be at least 1.")
        self.deter, self.stoch, self.classes = deter, stoch, classes
        self.blocks, self.unimix, self.unroll = blocks, unimix, unroll
        self.dtype = dtype
        flat = stoch * classes
        sizes = (deter, flat, actions)
        self.dynin = tuple(Layer(rng, size, hidden, dtype) for size in sizes)  # type: ignore[assignment]
        hid = [BlockLinear(rng, deter, deter, blocks, dtype, shared=3 * hidden)]
        for _ in range(dynlayers - 1):
            hid.append(BlockLinear(rng, deter, deter, blocks, dtype))
        self.dynhid = tuple(BlockLayer(linear, Norm(deter)) for linear in hid)
        self.dyngru = BlockLinear(rng, deter, 3 * deter, blocks, dtype)
        self.obs = MLP(rng, deter + tokens, hidden, obslayers, dtype)
        self.obslogit = Linear(rng, hidden, flat, dtype=dtype)
        self.prior = MLP(rng, deter, hidden, imglayers, dtype)
        self.priorlogit = Linear(rng, hidden, flat, dtype=dtype)

    def observe(
        self,
        start: Latent,
        tokens: Float[Array, "B T E"],
        action: Float[Array, "B T A"],
        reset: Bool[Array, "B T"],
        noise: Float[Array, "B T S"],
    ) -> tuple[Latent, Float[Array, "B T S C"]]:
        """Latents and posterior logits; `action[t]` is the one before `tokens[t]`."""
        inputs = jax.tree.map(_swap, (tokens, action, reset, noise))
        # The same as jax.lax.scan, with a faster gradient.
        return jax.tree.map(_swap, scan(_observe, self, start, inputs, self.unroll))

    def observe_step(
        self,
        latent: Latent,
        tokens: Float[Array, "B E"],
        action: Float[Array, "B A"],
        reset: Bool[Array, " B"],
        noise: Float[Array, "B S"],
    ) -> tuple[Latent, Float[Array, "B S C"]]:
        """One step of `observe`: next latent and posterior logits."""
        keep = 1 - reset.astype(jnp.float32)[:, None]
        latent = Latent(latent.deter * keep, latent.stoch * keep[..., None])
        deter = self.core(latent, action * keep)
        logit = self.posterior_logit(deter, tokens)
        stoch = OneHot(logit, self.unimix).sample(noise)
        return Latent(deter, stoch), logit

    def imagine(
        self,
        start: Latent,
        noise: Float[Array, "H N S"],
        policy: Callable[[Latent, Any], tuple[Float[Array, "N A"], Any]],
        given: Any,
    ) -> tuple[Latent, Any]:
        """Roll the prior forward: latents [H, N, ...] and what the policy returns.

        `policy(latent, given[t])` returns the embedded action and any outputs.
        """
        rssm = arranged(self)  # The same network, prepared to be used in a loop.

        def step(latent: Latent, inputs: Any) -> tuple[Latent, Any]:
            noise, given = inputs
            action, outs = policy(latent, given)
            deter = rssm.core(latent, action)
            stoch = OneHot(rssm.prior_logit(deter), self.unimix).sample(noise)
            return Latent(deter, stoch), (Latent(deter, stoch), outs)

        return jax.lax.scan(step, start, (noise, given))[1]

    def core(self, latent: Latent, action: Float[Array, "B A"]) -> Float[Array, "B D"]:
        """Block GRU: the next deterministic state.

        deter' = u · tanh(r · cand) + (1 - u) · deter,  r = sigmoid(reset),
        u = sigmoid(update - 1)
        """
        limit = jnp.maximum(1.0, jnp.abs(action))
        action = action / jax.lax.stop_gradient(limit)
        stoch = latent.stoch.reshape(len(action), -1)
        pairs = zip(self.dynin, (latent.deter, stoch, action), strict=True)
        x = jnp.concatenate([layer(value) for layer, value in pairs], -1)
        deter = to_blocks(latent.deter, self.blocks)  # [G, B, D/G] from here on.
        hidden = self.dynhid[0](deter, x)
        for layer in self.dynhid[1:]:
            hidden = layer(hidden)
        gates = self.dyngru.blocks(hidden).astype(jnp.float32)
        reset, cand, update = jnp.split(gates, 3, -1)
        cand = jnp.tanh(jax.nn.sigmoid(reset) * cand)
        update = jax.nn.sigmoid(update - 1)
        return from_blocks(update * cand + (1 - update) * deter)

    def prior_logit(self, deter: Float[Array, "*B D"]) -> Float[Array, "*B S C"]:
        """Logits of the latent predicted without an observation."""
        return self._by_latent(self.priorlogit(self.prior(deter)))

    def posterior_logit(
        self, deter: Float[Array, "*B D"], tokens: Float[Array, "*B E"]
    ) -> Float[Array, "*B S C"]:
        """Logits of the latent given an observation."""
        parts = [deter.astype(self.dtype), tokens.astype(self.dtype)]
        return self._by_latent(self.obslogit(self.obs(jnp.concatenate(parts, -1))))

    def _by_latent(self, logit: Float[Array, "*B L"]) -> Float[Array, "*B S C"]:
        shape = (*logit.shape[:-1], self.stoch, self.classes)
        return logit.astype(jnp.float32).reshape(shape)


def _observe(rssm: RSSM, latent: Latent, inputs: Any) -> tuple[Latent, Any]:
    latent, logit = rssm.observe_step(latent, *inputs)
    return latent, (latent, logit)


def feature(latent: Latent) -> Float[Array, "*B F"]:
    """What the heads see: deter and the flattened stoch."""
    flat = latent.stoch.reshape((*latent.deter.shape[:-1], -1))
    return jnp.concatenate([latent.deter, flat], -1)


def _swap(x: Array) -> Array:
    return jnp.swapaxes(x, 0, 1)
