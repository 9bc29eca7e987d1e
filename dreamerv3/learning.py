"""What DreamerV3 computes: the loss of a batch, the train step and the policy step.

All functions are pure; `Learner` only holds the config and the spaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from elements import Space
from jaxtyping import Array, Float

from dreamerv3 import decoder, imagination, losses, model
from dreamerv3.losses import sg
from dreamerv3.model import Actor, Networks
from dreamerv3.rollout import Latent
from dreamerv3.rssm import feature, pack, unpack
from embodied.core.base import IS_FIRST, IS_LAST, IS_TERMINAL, REWARD
from embodied.jax import batches, collectives, heads, inputs, noise
from embodied.jax.normalizers import Range, init_range, moving_average
from embodied.jax.optimizer import laprop

DETER, STOCH = "dyn/deter", "dyn/stoch"
# What randomness is for; each gets its own key.
TRAIN, REPORT, POLICY, OBSERVE, IMAGINE, OPENLOOP = range(6)
Metrics = dict[str, Array]


class State(NamedTuple):
    """Everything that training changes."""

    params: Networks
    slow: heads.Head  # Moving average of the value head.
    opt: Any  # Optax state.
    norm: Range  # Of the imagined returns.
    step: Array  # Updates so far, int32.


class Carry(NamedTuple):
    """Recurrent state between steps or chunks, and the action taken last."""

    latent: Latent
    action: Float[Array, "B A"]  # Embedded.


class Sequence(NamedTuple):
    """A batch after its replay context was consumed."""

    obs: dict[str, Array]  # [B, T, ...]
    action: dict[str, Array]  # [B, T, ...]
    prevact: Float[Array, "B T A"]  # Embedded action before each step.
    start: Latent  # [B, ...]


class Aux(NamedTuple):
    """By-products of the loss."""

    losses: dict[str, Array]  # Scalars, before scaling.
    latent: Latent  # [B, T, ...]
    norm: Range
    metrics: Metrics


class Learner:
    """Pure functions of parameters and batches for one config."""

    def __init__(
        self,
        obs_space: Mapping[str, Space],
        act_space: Mapping[str, Space],
        config: Any,
        dtype: str,
    ):
        self.obs_space, self.act_space = dict(obs_space), dict(act_space)
        self.config, self.dtype = config, dtype
        self.context = int(config.replay_context)
        self.actions = inputs.vector_keys(act_space)
        self.action_size = sum(key.size for key in self.actions)
        self.opt = laprop(**config.opt)

    def init(self, seed: int) -> State:
        """State before the first update; drawn on the host, so nothing compiles."""
        rng = np.random.default_rng([seed, 0xD3])
        params = model.build(
            rng, self.obs_space, self.act_space, self.config, self.dtype
        )
        opt = jax.eval_shape(self.opt.init, params)
        opt = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), opt)
        slow = jax.tree.map(np.copy, params.val)
        norm = jax.tree.map(np.asarray, init_range())
        return State(params, slow, opt, norm, np.zeros((), np.int32))  # type: ignore

    def act(
        self,
        params: Actor,
        carry: Carry,
        obs: dict[str, Array],
        u: Array,
        greedy: bool,
    ) -> tuple[Carry, dict[str, Array], dict[str, Array]]:
        """One policy step: carry, actions and the latents for the replay."""
        tokens = params.enc(obs)
        stoch, rest = jnp.split(u, [params.dyn.stoch], -1)
        latent, _ = params.dyn.observe_step(
            carry.latent, tokens, carry.action, obs[IS_FIRST], stoch
        )
        actions = model.act(params.pol(feature(latent)), rest, greedy)
        carry = Carry(latent, inputs.flatten(actions, self.actions))
        return carry, actions, entries(latent)

    def train(
        self, state: State, carry: Carry, data: dict[str, Array], key: Array
    ) -> tuple[State, Carry, dict[str, Array], Metrics]:
        """One update: state, carry, latents for the replay and metrics."""
        key = noise.fold(noise.fold(key, TRAIN), state.step)
        seq = self.sequence(carry, data)
        grads, aux = jax.grad(self.loss, has_aux=True)(
            state.params, state, seq, data[batches.ROWS], key
        )
        grads, metrics = collectives.mean((grads, self.metrics(aux)))
        updates, opt = self.opt.update(grads, state.opt, state.params)
        params = optax.apply_updates(state.params, updates)
        every = (state.step % self.config.slowvalue.every == 0).astype(jnp.float32)
        slow = moving_average(
            state.slow, params.val, self.config.slowvalue.rate * every
        )
        metrics |= {
            "opt/grad_norm": opt[0].grads,
            "opt/param_norm": opt[0].params,
            "opt/updates": (state.step + 1).astype(jnp.float32),
        }
        state = State(params, slow, opt, aux.norm, state.step + 1)
        return state, self.last(seq, aux), entries(aux.latent), metrics

    def last(self, seq: Sequence, aux: Aux) -> Carry:
        """The carry after a sequence."""
        action = {k: v[:, -1] for k, v in seq.action.items()}
        latent = jax.tree.map(lambda x: x[:, -1], aux.latent)
        return Carry(latent, inputs.flatten(action, self.actions))

    def metrics(self, aux: Aux) -> Metrics:
        """Metrics of a loss evaluation."""
        scaled = {k: self.scale(k) * v for k, v in aux.losses.items()}
        total = {"loss/total": sum(scaled.values(), jnp.zeros(()))}
        return {f"loss/{k}": v for k, v in aux.losses.items()} | total | aux.metrics

    def scale(self, name: str) -> float:
        """Weight of a loss; those of decoded keys share one."""
        scales = self.config.loss_scales
        return float(scales[name] if name in scales else scales["rec"])

    def sequence(self, carry: Carry, data: dict[str, Array]) -> Sequence:
        """Start from the replay context, or from the carry in a later chunk."""
        flags = (REWARD, IS_FIRST, IS_LAST, IS_TERMINAL)
        obs = {k: data[k][:, self.context :] for k in (*self.obs_space, *flags)}
        full = {k: data[k] for k in self.act_space}
        action = {k: v[:, self.context :] for k, v in full.items()}
        if self.context:
            classes = self.config.dyn.rssm.classes
            latent = Latent(
                data[DETER][:, self.context - 1].astype(jnp.float32),
                unpack(data[STOCH][:, self.context - 1], classes),
            )
            before = {k: v[:, self.context - 1] for k, v in full.items()}
            fresh = Carry(latent, inputs.flatten(before, self.actions))
            first = data[batches.CONSEC] == 0
            carry = jax.tree.map(lambda a, b: _where(first, a, b), fresh, carry)
        embed = inputs.flatten(action, self.actions)
        prevact = jnp.concatenate([carry.action[:, None], embed[:, :-1]], 1)
        return Sequence(obs, action, prevact, carry.latent)

    def loss(
        self, params: Networks, state: State, seq: Sequence, rows: Array, key: Array
    ) -> tuple[Array, Aux]:
        """The scaled sum of all losses."""
        terms, latent, metrics = self.world_loss(params, seq, rows, key)
        more, norm, extra = self.behavior_loss(params, state, seq, latent, rows, key)
        terms = {k: v.mean() for k, v in (terms | more).items()}
        total = sum((self.scale(k) * v for k, v in terms.items()), jnp.zeros(()))
        return total, Aux(terms, latent, norm, metrics | extra)

    def world_loss(
        self, params: Networks, seq: Sequence, rows: Array, key: Array
    ) -> tuple[dict[str, Array], Latent, Metrics]:
        """KL, reward, continue and reconstruction losses [B, T]."""
        steps, rssm = seq.prevact.shape[1], params.dyn
        u = noise.uniform(noise.fold(key, OBSERVE), rows, (steps, rssm.stoch))
        obs = seq.obs
        tokens = params.enc(obs)
        latent, posterior = rssm.observe(
            seq.start, tokens, seq.prevact, obs[IS_FIRST], u
        )
        prior = rssm.prior_logit(latent.deter)
        kl = losses.kl_losses(
            posterior, prior, rssm.unimix, self.config.dyn.rssm.free_nats
        )
        feat = feature(latent)
        cont = 1 - obs[IS_TERMINAL].astype(jnp.float32)
        terms = {
            "dyn": kl.dyn,
            "rep": kl.rep,
            "rew": params.rew(feat).loss(obs[REWARD].astype(jnp.float32)),
            "con": params.con(feat).loss(cont * (1 - 1 / self.config.horizon)),
        }
        terms |= decoder.losses(params.dec(*latent), obs)
        return terms, latent, {"kl": kl.raw.mean()}

    def behavior_loss(
        self,
        params: Networks,
        state: State,
        seq: Sequence,
        latent: Latent,
        rows: Array,
        key: Array,
    ) -> tuple[dict[str, Array], Range, Metrics]:
        """Actor and critic losses on imagined and critic loss on replayed steps."""
        batch, steps = seq.prevact.shape[:2]
        starts = min(self.config.imag_starts or steps, steps)
        begin = jax.tree.map(lambda x: sg(x[:, steps - starts :]), latent)
        u = self.imag_noise(params, rows, starts, key)
        begin = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), begin)
        feats, actions = imagination.imagine(params, begin, u, self.actions)
        imagined = imagination.judge(params, state.slow, feats, actions)
        options = dict(self.config.imag_loss) | dict(self.config.retnorm)
        imag = losses.imag_loss(imagined, state.norm, **options)
        obs = {k: v[:, steps - starts :] for k, v in seq.obs.items()}
        feat = feature(latent)[:, steps - starts :]
        repl = losses.replay_loss(
            obs[IS_LAST],
            obs[IS_TERMINAL],
            obs[REWARD].astype(jnp.float32),
            imag.ret[0].reshape(batch, starts),
            params.val(feat),  # type: ignore[arg-type]
            model.frozen(state.slow)(sg(feat)),
            horizon=self.config.horizon,
            **self.config.repl_loss,
        )
        terms = {"policy": imag.policy, "value": imag.value, "repval": repl.loss}
        return terms, imag.norm, imag.metrics

    def gradient_norms(
        self, state: State, seq: Sequence, rows: Array, key: Array
    ) -> Metrics:
        """Norm of the gradient of each scaled loss."""

        def terms(params: Networks) -> dict[str, Array]:
            aux = self.loss(params, state, seq, rows, key)[1]
            return {k: self.scale(k) * v for k, v in aux.losses.items()}

        values, pullback = jax.vjp(terms, state.params)
        norms = {}
        for name in values:
            one = {k: jnp.float32(k == name) for k in values}
            norms[f"gradnorm/{name}"] = optax.tree.norm(pullback(one)[0])
        return norms

    def imag_noise(
        self, params: Networks, rows: Array, starts: int, key: Array
    ) -> Float[Array, "H N E"]:
        """Noise of the latents and actions of all imagined sequences."""
        shape = (starts, self.config.imag_length, params.dyn.stoch + self.action_size)
        u = noise.uniform(noise.fold(key, IMAGINE), rows, shape)
        return jnp.moveaxis(u.reshape(-1, *shape[1:]), 1, 0)


def entries(latent: Latent) -> dict[str, Array]:
    """Latents in the form in which replay stores them."""
    return {DETER: latent.deter, STOCH: pack(latent.stoch)}


def _where(mask: Array, a: Array, b: Array) -> Array:
    """Choose per sequence."""
    return jnp.where(mask.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)
