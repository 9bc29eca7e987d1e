"""Imagined sequences: rolling the prior with the policy, and judging the result."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from dreamerv3.model import losses, networks
from dreamerv3.model.latents import Latent
from dreamerv3.model.networks import Networks
from dreamerv3.model.rssm import feature
from embodied.jax import heads, inputs
from embodied.jax.distributions import Binary, TwoHot
from embodied.jax.nets import first_maps

Actions = dict[str, Array]


def imagine(
    params: Networks,
    start: Latent,
    noise: Float[Array, "H N E"],
    keys: tuple[inputs.VectorKey, ...],
) -> tuple[Float[Array, "H+1 N F"], Actions]:
    """Features including the start, and actions [H, N, ...]; no gradients.

    The noise holds first that of the latents, then that of the actions.
    """
    params, start = networks.frozen((params, start))
    latents, choices = jnp.split(noise, [params.dyn.stoch], -1)

    def policy(latent: Latent, noise: Array) -> tuple[Array, Actions]:
        actions = networks.act(params.pol(feature(latent)), noise)
        return inputs.flatten(actions, keys), actions

    later, actions = params.dyn.imagine(start, latents, policy, choices)
    return jnp.concatenate([feature(start)[None], feature(later)]), actions


def replay_actions(
    params: Networks,
    start: Latent,
    noise: Float[Array, "H B S"],
    actions: Float[Array, "H B A"],
) -> Latent:
    """Latents [B, H, ...] imagined under recorded, embedded actions."""

    def policy(latent: Latent, action: Array) -> tuple[Array, None]:
        del latent
        return action, None

    latents, _ = params.dyn.imagine(start, noise, policy, actions)
    return jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), latents)


def judge(
    params: Networks,
    slow: heads.Head,
    feats: Float[Array, "H+1 N F"],
    actions: Actions,
) -> losses.Imagined:
    """What the heads say about imagined sequences; only actor and critic learn."""
    rew, con, slow = networks.frozen((params.rew, params.con, slow))
    # Heads of the same features share their first product. Those that do not learn need
    # no gradients of their kernels, so they have one of their own.
    rew_in, con_in, slow_in = first_maps([rew.mlp, con.mlp, slow.mlp], feats)
    pol_in, val_in = first_maps([params.pol.mlp, params.val.mlp], feats)
    reward, cont = rew.finish(rew_in), con.finish(con_in)
    assert isinstance(reward, TwoHot)
    assert isinstance(cont, Binary)
    dists = params.pol.finish(pol_in[:-1])
    return losses.Imagined(
        reward=reward.pred(),
        cont=cont.prob1(),
        value=params.val.finish(val_in),  # type: ignore[arg-type]
        slow=slow.finish(slow_in),  # type: ignore[arg-type]
        logp=networks.log_prob(dists, actions),
        entropy={key: dist.entropy() for key, dist in sorted(dists.items())},  # type: ignore[attr-defined]
    )
