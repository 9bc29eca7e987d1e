"""The RSSM: a block GRU with categorical latents, its prior and its posterior."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from dreamerv3 import rollout
from dreamerv3.rollout import Core, CoreScales, Inputs, Latent, Posterior, Scales
from embodied.jax.distributions import OneHot
from embodied.jax.nets import MLP, BlockLinear, Layer, Linear, Norm
from embodied.jax.products import product


class Hidden(eqx.Module):
    """Block-linear map with a norm over the full vector."""

    linear: BlockLinear
    norm: Norm


class RSSM(eqx.Module):
    """Recurrent state-space model over tokens and actions."""

    dynin: tuple[Layer, Layer, Layer]  # From deter, stoch and action.
    dynhid: tuple[Hidden, ...]
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
        wide = deter + blocks * 3 * hidden
        self.dynhid = tuple(
            Hidden(BlockLinear(rng, size, deter, blocks, dtype), Norm(deter))
            for size in [wide] + [deter] * (dynlayers - 1)
        )
        self.dyngru = BlockLinear(rng, deter, 3 * deter, blocks, dtype)
        self.obs = MLP(rng, deter + tokens, hidden, obslayers, dtype)
        self.obslogit = Linear(rng, hidden, flat, dtype=dtype)
        self.prior = MLP(rng, deter, hidden, imglayers, dtype)
        self.priorlogit = Linear(rng, hidden, flat, dtype=dtype)

    @property
    def static(self) -> rollout.Static:
        """Constants of a step."""
        return rollout.Static(
            self.stoch, self.classes, self.blocks, self.unimix, self.unroll
        )

    def initial(self, *batch: int) -> Latent:
        """The zero state."""
        deter = jnp.zeros((*batch, self.deter), jnp.float32)
        return Latent(deter, jnp.zeros((*batch, self.stoch, self.classes), jnp.float32))

    def observe(
        self,
        start: Latent,
        tokens: Float[Array, "B T E"],
        action: Float[Array, "B T A"],
        reset: Bool[Array, "B T"],
        noise: Float[Array, "B T S"],
    ) -> tuple[Latent, Float[Array, "B T S C"]]:
        """Latents and posterior logits; `action[t]` is the one before `tokens[t]`."""
        given = self.inputs(tokens, action, reset, noise)
        given = jax.tree.map(_swap, given)
        outs = rollout.rollout(self.static, self.kernels(), self.scales(), start, given)
        latent, logit = jax.tree.map(_swap, outs)
        return latent, logit

    def observe_step(
        self,
        latent: Latent,
        tokens: Float[Array, "B E"],
        action: Float[Array, "B A"],
        reset: Bool[Array, " B"],
        noise: Float[Array, "B S"],
    ) -> tuple[Latent, Float[Array, "B S C"]]:
        """One step of `observe`."""
        given = self.inputs(tokens, action, reset, noise)
        latent, logit, _ = rollout.observe_step(
            self.static, self.kernels(), self.scales(), latent, given
        )
        return latent, logit

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
        (kernels, _), scales = self.kernels(), self.scales().core

        def step(latent: Latent, inputs: Any) -> tuple[Latent, Any]:
            noise, given = inputs
            action, outs = policy(latent, given)
            shifts = self._core_shifts(action)
            deter, _ = rollout.core_step(self.blocks, kernels, scales, shifts, latent)
            stoch = OneHot(self.prior_logit(deter), self.unimix).sample(noise)
            return Latent(deter, stoch), (Latent(deter, stoch), outs)

        return jax.lax.scan(step, start, (noise, given))[1]

    def prior_logit(self, deter: Float[Array, "*B D"]) -> Float[Array, "*B S C"]:
        """Logits of the latent predicted without an observation."""
        logit = self.priorlogit(self.prior(deter)).astype(jnp.float32)
        return logit.reshape((*deter.shape[:-1], self.stoch, self.classes))

    def kernels(self) -> tuple[Core, Posterior]:
        """Kernels of all linear maps in a step, split into what depends on time."""
        inside, units = self.deter // self.blocks, self.dynin[0].norm.scale.shape[0]
        first = self.dynhid[0].linear.kernel
        core = Core(
            self.dynin[0].linear.kernel,
            self.dynin[1].linear.kernel,
            _columns(first[:, inside : inside + 2 * units]),
            first[:, :inside],
            tuple(hid.linear.kernel for hid in self.dynhid[1:]),
            self.dyngru.kernel,
        )
        posterior = Posterior(
            self.obs.layers[0].linear.kernel[: self.deter],
            tuple(layer.linear.kernel for layer in self.obs.layers[1:]),
            self.obslogit.kernel,
        )
        return jax.tree.map(lambda x: x.astype(self.dtype), (core, posterior))

    def scales(self) -> Scales:
        """Scales of all norms in a step."""
        core = CoreScales(
            self.dynin[0].norm.scale,
            self.dynin[1].norm.scale,
            tuple(hid.norm.scale for hid in self.dynhid),
        )
        return Scales(core, tuple(layer.norm.scale for layer in self.obs.layers))

    def inputs(
        self,
        tokens: Float[Array, "*B E"],
        action: Float[Array, "*B A"],
        reset: Bool[Array, "*B"],
        noise: Float[Array, "*B S"],
    ) -> Inputs:
        """Project tokens and actions; an episode start zeroes the action as well."""
        keep = 1 - reset.astype(jnp.float32)[..., None]
        core = self._core_shifts(action * keep)
        first = self.obs.layers[0].linear
        kernel = first.kernel[self.deter :].astype(self.dtype)
        shift = product(tokens.astype(self.dtype), kernel)
        shift = shift + first.bias.astype(self.dtype)
        more = tuple(layer.linear.bias for layer in self.obs.layers[1:])
        posterior = Posterior(shift, more, self.obslogit.bias)
        batch = keep.shape[:-1]
        core, posterior = jax.tree.map(
            lambda x: _expand(x.astype(self.dtype), batch), (core, posterior)
        )
        return Inputs(core, posterior, keep, noise)

    def _core_shifts(self, action: Float[Array, "*B A"]) -> Core:
        limit = jnp.maximum(1.0, jnp.abs(action))
        x = self.dynin[2](action / jax.lax.stop_gradient(limit))
        first = self.dynhid[0].linear
        kernel = _columns(first.kernel[:, -x.shape[-1] :]).astype(self.dtype)
        core = Core(
            self.dynin[0].linear.bias,
            self.dynin[1].linear.bias,
            product(x, kernel) + first.bias.astype(self.dtype),
            None,
            tuple(hid.linear.bias for hid in self.dynhid[1:]),
            self.dyngru.bias,
        )
        return jax.tree.map(lambda x: x.astype(self.dtype), core)


def pack(stoch: Float[Array, "*B S C"]) -> Int[Array, "*B S"]:
    """One-hot latents as class numbers, the form in which replay stores them."""
    kind = jnp.uint8 if stoch.shape[-1] <= 256 else jnp.uint16
    return stoch.argmax(-1).astype(kind)


def unpack(index: Int[Array, "*B S"], classes: int) -> Float[Array, "*B S C"]:
    """Class numbers as one-hot latents."""
    return jax.nn.one_hot(index.astype(jnp.int32), classes, dtype=jnp.float32)


def feature(latent: Latent) -> Float[Array, "*B F"]:
    """What the heads see: deter and the flattened stoch."""
    flat = latent.stoch.reshape((*latent.deter.shape[:-1], -1))
    return jnp.concatenate([latent.deter, flat], -1)


def _columns(kernel: Float[Array, "G I O"]) -> Float[Array, "I G*O"]:
    return jnp.moveaxis(kernel, 0, 1).reshape(kernel.shape[1], -1)


def _expand(x: Array, batch: tuple[int, ...]) -> Array:
    """Biases to one shift per step, so that their cotangents come out per step."""
    return jnp.broadcast_to(x, (*batch, x.shape[-1]))


def _swap(x: Array) -> Array:
    return jnp.swapaxes(x, 0, 1)
