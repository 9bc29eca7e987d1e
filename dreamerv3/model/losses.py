"""Losses of the world model, the actor and the critic as pure functions.

Those of imagination share returns between devices that have sequences of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from embodied.jax import collectives
from embodied.jax.distributions import OneHot, TwoHot
from embodied.jax.normalizers import Range, update_range
from embodied.jax.numerics import check_same, lambda_return, replay_return

Metrics = dict[str, Array]
sg = jax.lax.stop_gradient


class KL(NamedTuple):
    """KL losses per step."""

    dyn: Float[Array, "*B"]  # Trains the prior.
    rep: Float[Array, "*B"]  # Trains the posterior.
    raw: Float[Array, "*B"]  # Before free nats.


def kl_losses(
    posterior: Float[Array, "*B S C"],
    prior: Float[Array, "*B S C"],
    unimix: float,
    free_nats: float,
) -> KL:
    """dyn = max(free, KL(sg(q) ‖ p)), rep = max(free, KL(q ‖ sg(p)))."""
    check_same(posterior=posterior, prior=prior)
    raw = OneHot(sg(posterior), unimix).kl(OneHot(prior, unimix))
    rep = OneHot(posterior, unimix).kl(OneHot(sg(prior), unimix))
    return KL(jnp.maximum(raw, free_nats), jnp.maximum(rep, free_nats), raw)


class Imagined(NamedTuple):
    """N imagined sequences of H steps after their start, [T, N] with T = H+1.

    Time comes first, as they are imagined: turning them round would copy all features.
    """

    reward: Float[Array, "T N"]
    cont: Float[Array, "T N"]  # Continue probability; holds the discount.
    value: TwoHot  # Online critic.
    slow: TwoHot  # Slow critic.
    logp: Float[Array, "H N"]  # Log-probability of the actions, over all keys.
    entropy: Mapping[str, Float[Array, "H N"]]  # Policy entropy per action key.


class ImagLoss(NamedTuple):
    """Actor and critic losses of imagined sequences."""

    policy: Float[Array, "H N"]
    value: Float[Array, "H N"]
    ret: Float[Array, "H N"]
    norm: Range
    metrics: Metrics


def imag_loss(
    seq: Imagined,
    norm: Range,
    lam: float = 0.95,
    actent: float = 3e-4,
    slowreg: float = 1.0,
    rate: float = 0.01,
    limit: float = 1.0,
    perclo: float = 5.0,
    perchi: float = 95.0,
) -> ImagLoss:
    """REINFORCE with a normalised advantage, and two-hot regression of the return.

    policy = -w_t (log π(a_t) sg((R_t - v_t) / scale) + η H(π))
    value = w_t (twohot(R_t) + slowreg · twohot(slow_t)),  w = cumprod(cont)
    """
    check_same(reward=seq.reward, cont=seq.cont)
    val, slow = sg(seq.value.pred()), sg(seq.slow.pred())
    weight = sg(jnp.cumprod(seq.cont, 0))
    ret = sg(lambda_return(seq.reward.T, seq.cont.T, val.T, lam)).T
    # Percentiles, spread and extremes need those of all devices.
    rets, vals = collectives.gather(jnp.stack([ret, val[:-1]]))
    norm = update_range(norm, rets, rate, perclo, perchi)
    adv = (ret - val[:-1]) / norm.scale(limit)
    entropy = sum(seq.entropy.values(), jnp.zeros((), jnp.float32))
    policy = -weight[:-1] * (seq.logp * adv + actent * entropy)
    value = (weight * critic_loss(seq.value, _pad(ret, 0), slow, slowreg))[:-1]
    advs, normed = (x / norm.scale(limit) for x in (rets - vals, rets - norm.lo))
    metrics = {
        "adv": advs.mean(),
        "adv_std": advs.std(),
        "adv_mag": jnp.abs(advs).mean(),
        "rew": seq.reward.mean(),
        "con": seq.cont.mean(),
        "ret": normed.mean(),
        "val": val.mean(),
        "tar": rets.mean(),
        "weight": weight.mean(),
        "slowval": slow.mean(),
        "ret_min": normed.min(),
        "ret_max": normed.max(),
        "ret_rate": (jnp.abs(normed) >= 1).mean(dtype=jnp.float32),
    }
    metrics |= {f"ent_{key}": ent.mean() for key, ent in seq.entropy.items()}
    return ImagLoss(policy, value, ret, norm, metrics)


class ReplayLoss(NamedTuple):
    """Critic loss of replayed sequences, [B, T-1]."""

    loss: Float[Array, "B T-1"]
    ret: Float[Array, "B T-1"]


def replay_loss(
    last: Bool[Array, "B T"],
    term: Bool[Array, "B T"],
    reward: Float[Array, "B T"],
    boot: Float[Array, "B T"],
    value: TwoHot,
    slow: TwoHot,
    horizon: int = 333,
    lam: float = 0.95,
    slowreg: float = 1.0,
) -> ReplayLoss:
    """Regress the λ-return of real rewards, masked where an episode ends."""
    ret = sg(replay_return(last, term, reward, boot, 1 - 1 / horizon, lam))
    weight = 1 - last.astype(jnp.float32)[:, :-1]
    loss = critic_loss(value, _pad(ret, 1), sg(slow.pred()), slowreg)[:, :-1]
    return ReplayLoss(weight * loss, ret)


def critic_loss(
    value: TwoHot, ret: Float[Array, "*B"], slow: Float[Array, "*B"], slowreg: float
) -> Float[Array, "*B"]:
    """twohot(ret) + slowreg · twohot(slow), as one cross-entropy."""
    weights = value.encode(ret) + slowreg * value.encode(slow)
    return value.cross_entropy(sg(weights), 1 + slowreg)


def _pad(x: Array, axis: int) -> Array:
    """Repeat the last step, which the caller masks or drops."""
    return jnp.concatenate([x, jax.lax.slice_in_dim(x, -1, None, axis=axis)], axis)
