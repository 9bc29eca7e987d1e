"""DreamerV3's networks in one module, and how they are built from the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from elements import Space
from jaxtyping import Array, Float

from dreamerv3.model.decoder import Decoder
from dreamerv3.model.encoder import Encoder
from dreamerv3.model.rssm import RSSM
from dreamerv3.settings.schema import HeadSettings, ModelSettings, PolicySettings
from embodied.jax import heads, inputs
from embodied.jax.distributions import Policy
from embodied.jax.nets import MLP


class Networks(eqx.Module):
    """All trained parameters."""

    enc: Encoder
    dyn: RSSM
    dec: Decoder
    rew: heads.Head
    con: heads.Head
    pol: heads.DictHead
    val: heads.Head


class Actor(eqx.Module):
    """The part of the networks that chooses actions."""

    enc: Encoder
    dyn: RSSM
    pol: heads.DictHead


def build(
    rng: np.random.Generator,
    obs_space: Mapping[str, Space],
    act_space: Mapping[str, Space],
    config: ModelSettings,
    dtype: str,
) -> Networks:
    """Networks for these spaces with freshly drawn parameters."""
    enc = Encoder(rng, obs_space, **config.enc.simple, dtype=dtype)
    options = dict(config.dyn.rssm)
    options.pop("free_nats")
    actions = sum(key.width for key in inputs.vector_keys(act_space))
    dyn = RSSM(rng, enc.size, actions, **options, dtype=dtype)
    flat = dyn.stoch * dyn.classes
    dec = Decoder(rng, obs_space, dyn.deter, flat, **config.dec.simple, dtype=dtype)
    size = dyn.deter + flat
    return Networks(
        enc=enc,
        dyn=dyn,
        dec=dec,
        rew=_scalar_head(
            rng, size, "twohot", config.rewhead, config.rewhead.bins, dtype
        ),
        con=_scalar_head(rng, size, "binary", config.conhead, 1, dtype),
        pol=_policy_head(rng, size, act_space, config.policy, dtype),
        val=_scalar_head(rng, size, "twohot", config.value, config.value.bins, dtype),
    )


def _scalar_head(
    rng: np.random.Generator,
    size: int,
    kind: heads.Kind,
    options: HeadSettings,
    bins: int,
    dtype: str,
) -> heads.Head:
    mlp = MLP(rng, size, options.units, options.layers, dtype)
    size = options.units if options.layers else size
    out = heads.Output(rng, size, kind, (), bins, options.outscale, dtype=dtype)
    return heads.Head(mlp, out)


def _policy_head(
    rng: np.random.Generator,
    size: int,
    spaces: Mapping[str, Space],
    options: PolicySettings,
    dtype: str,
) -> heads.DictHead:
    mlp = MLP(rng, size, options.units, options.layers, dtype)
    bounds = (options.minstd, options.maxstd)
    size = options.units if options.layers else size
    outs = heads.action_outputs(
        rng, size, spaces, options.outscale, bounds, options.unimix, dtype
    )
    return heads.DictHead(mlp, outs)


def act(
    dists: Mapping[str, Any], noise: Float[Array, "*B N"], greedy: bool = False
) -> dict[str, Array]:
    """Actions by key, sampled from slices of the noise or the most likely ones."""
    actions, start = {}, 0
    for key, dist in sorted(dists.items()):
        assert isinstance(dist, Policy)
        pred = dist.pred()
        shape = pred.shape[noise.ndim - 1 :]
        size = int(np.prod(shape, dtype=int))
        part = noise[..., start : start + size].reshape(pred.shape)
        actions[key] = pred if greedy else dist.sample(part)
        start += size
    return actions


def log_prob(dists: Mapping[str, Any], actions: Mapping[str, Array]) -> Array:
    """Log-probability of the actions, summed over the keys."""
    parts = [dist.logp(actions[key]) for key, dist in sorted(dists.items())]
    return jnp.sum(jnp.stack(parts), 0)


def frozen(tree: Any) -> Any:
    """The same tree without gradients."""
    return jax.tree.map(jax.lax.stop_gradient, tree)
