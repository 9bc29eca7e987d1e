"""What DreamerV3 computes: policy step, loss, train step and report.

All functions are pure; `Dreamer` only holds the config and the spaces.
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

from dreamerv3.model import decoder, imagination, latents, losses, networks, report
from dreamerv3.model.latents import Latent
from dreamerv3.model.losses import sg
from dreamerv3.model.networks import Actor, Networks
from dreamerv3.model.rssm import feature
from dreamerv3.settings.schema import AgentSettings
from embodied.core.base import IS_FIRST, IS_LAST, IS_TERMINAL, REWARD
from embodied.jax import agent, batches, collectives, heads, inputs, noise
from embodied.jax.normalizers import Range, init_range, moving_average
from embodied.jax.optimizer import laprop

FLAGS = (REWARD, IS_FIRST, IS_LAST, IS_TERMINAL)
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
    """Recurrent state of each network between steps or chunks, and the last action."""

    enc_carry: tuple[()]  # The encoder has no memory.
    dyn_carry: Latent
    dec_carry: tuple[()]  # Nor has the decoder.
    prevact: dict[str, Array]  # By key of the action space, [B, ...].


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


class Dreamer(agent.Model):
    """DreamerV3 as the functions that the agent compiles, for one config."""

    def __init__(
        self,
        obs_space: Mapping[str, Space],
        act_space: Mapping[str, Space],
        config: AgentSettings,
        dtype: str,
    ):
        self.seen = {k: v for k, v in obs_space.items() if k not in FLAGS}
        if not self.seen:
            raise ValueError(f"There is nothing to observe but {sorted(obs_space)}.")
        self.obs_space, self.act_space = dict(obs_space), dict(act_space)
        self.config, self.dtype = config, dtype
        self.context = int(config.replay_context)
        self.ext_space = latents.spaces(config.dyn.rssm) if self.context else {}
        self.policy_keys = (*sorted(self.seen), IS_FIRST)
        known = (*sorted(self.seen), *FLAGS, *sorted(act_space))
        self.batch_keys = (*known, *self.ext_space)
        self.actions = inputs.vector_keys(act_space)
        self.action_size = sum(key.size for key in self.actions)
        self.opt = laprop(**config.opt)

    def init(self, seed: int) -> State:
        """State before the first update; drawn on the host, so nothing compiles."""
        rng = np.random.default_rng([seed, 0xD3])
        params = networks.build(rng, self.seen, self.act_space, self.config, self.dtype)
        opt = jax.eval_shape(self.opt.init, params)
        opt = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), opt)
        slow = jax.tree.map(np.copy, params.val)
        norm = jax.tree.map(np.asarray, init_range())
        return State(params, slow, opt, norm, np.zeros((), np.int32))  # type: ignore

    def actor(self, state: State) -> Actor:
        return Actor(state.params.enc, state.params.dyn, state.params.pol)

    def carry(self, batch_size: int) -> Carry:
        """A carry of zeros, as numpy arrays."""
        action = {
            key: np.zeros((batch_size, *space.shape), _action_dtype(space))
            for key, space in self.act_space.items()
        }
        return Carry((), latents.zeros(self.config.dyn.rssm, batch_size), (), action)  # type: ignore[arg-type]

    def param_name(self, path: str) -> str | None:
        """Trained parameters by their path; the slow critic goes with the critic."""
        kind, _, rest = path.partition("/")
        return {"params": rest, "slow": f"val/{rest}"}.get(kind)

    def policy(
        self,
        params: Actor,
        carry: Carry,
        obs: dict[str, Array],
        key: Array,
        greedy: bool,
    ) -> tuple[Carry, dict[str, Array], dict[str, Array]]:
        """One policy step: carry, actions and the latents for the replay."""
        rows = jnp.arange(len(obs[IS_FIRST]), dtype=jnp.uint32)
        size = params.dyn.stoch + self.action_size
        u = noise.uniform(noise.fold(key, POLICY), rows, (size,))
        stoch, rest = jnp.split(u, [params.dyn.stoch], -1)
        prevact = inputs.flatten(carry.prevact, self.actions)
        latent, _ = params.dyn.observe_step(
            carry.dyn_carry, params.enc(obs), prevact, obs[IS_FIRST], stoch
        )
        actions = networks.act(params.pol(feature(latent)), rest, greedy)
        return Carry((), latent, (), actions), actions, self.entries(latent)

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
        return state, self.last(seq, aux), self.entries(aux.latent), metrics

    def report(
        self, state: State, carry: Carry, data: dict[str, Array], key: Array
    ) -> tuple[Carry, Metrics]:
        """Held-out losses, open-loop predictions and optional gradient norms."""
        key = noise.fold(noise.fold(key, REPORT), state.step)
        seq, rows = self.sequence(carry, data), data[batches.ROWS]
        _, aux = self.loss(state.params, state, seq, rows, key)
        metrics = self.metrics(aux)
        if self.config.report_gradnorms:

            def terms(params: Networks) -> Metrics:
                aux = self.loss(params, state, seq, rows, key)[1]
                return self.scaled(aux.losses)

            metrics |= report.gradient_norms(terms, state.params)
        shape = (seq.prevact.shape[1], state.params.dyn.stoch)
        u = noise.uniform(noise.fold(key, OPENLOOP), rows, shape)
        args = (seq.start, seq.obs, seq.prevact, u)
        few = jax.tree.map(lambda x: x[: report.SEQUENCES], args)
        dists = report.open_loop(state.params, *few)
        metrics |= report.summarize(dists, few[1], shape[0] // 2)
        return self.last(seq, aux), metrics

    def entries(self, latent: Latent) -> dict[str, Array]:
        """Latents for the replay, if it supplies context."""
        return latents.pack(latent) if self.context else {}

    def last(self, seq: Sequence, aux: Aux) -> Carry:
        """The carry after a sequence."""
        latent, action = jax.tree.map(lambda x: x[:, -1], (aux.latent, seq.action))
        return Carry((), latent, (), action)

    def metrics(self, aux: Aux) -> Metrics:
        """Metrics of a loss evaluation."""
        total = {"loss/total": _sum(self.scaled(aux.losses))}
        return {f"loss/{k}": v for k, v in aux.losses.items()} | total | aux.metrics

    def scaled(self, terms: Metrics) -> Metrics:
        """Losses times their weights; those of decoded keys share one."""
        scales = self.config.loss_scales
        return {k: float(scales.get(k, scales["rec"])) * v for k, v in terms.items()}

    def sequence(self, carry: Carry, data: dict[str, Array]) -> Sequence:
        """Start from the replay context, or from the carry in a later chunk."""
        obs = {k: data[k][:, self.context :] for k in (*self.seen, *FLAGS)}
        full = {k: data[k].astype(_action_dtype(v)) for k, v in self.act_space.items()}
        action = {k: v[:, self.context :] for k, v in full.items()}
        if self.context:
            stored = {k: data[k] for k in self.ext_space} | full
            before = {k: v[:, self.context - 1] for k, v in stored.items()}
            latent = latents.unpack(before, self.config.dyn.rssm.classes)
            fresh = Carry((), latent, (), {k: before[k] for k in full})
            first = data[batches.CONSEC] == 0
            carry = jax.tree.map(lambda a, b: _where(first, a, b), fresh, carry)
        embed = inputs.flatten(action, self.actions)
        prevact = inputs.flatten(carry.prevact, self.actions)
        prevact = jnp.concatenate([prevact[:, None], embed[:, :-1]], 1)
        return Sequence(obs, action, prevact, carry.dyn_carry)

    def loss(
        self, params: Networks, state: State, seq: Sequence, rows: Array, key: Array
    ) -> tuple[Array, Aux]:
        """The scaled sum of all losses."""
        terms, latent, metrics = self.world_loss(params, seq, rows, key)
        more, norm, extra = self.behavior_loss(params, state, seq, latent, rows, key)
        terms = {k: v.mean() for k, v in (terms | more).items()}
        return _sum(self.scaled(terms)), Aux(terms, latent, norm, metrics | extra)

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
            networks.frozen(state.slow)(sg(feat)),
            horizon=self.config.horizon,
            **self.config.repl_loss,
        )
        terms = {"policy": imag.policy, "value": imag.value, "repval": repl.loss}
        return terms, imag.norm, imag.metrics

    def imag_noise(
        self, params: Networks, rows: Array, starts: int, key: Array
    ) -> Float[Array, "H N E"]:
        """Noise of the latents and actions of all imagined sequences."""
        shape = (starts, self.config.imag_length, params.dyn.stoch + self.action_size)
        u = noise.uniform(noise.fold(key, IMAGINE), rows, shape)
        return jnp.moveaxis(u.reshape(-1, *shape[1:]), 1, 0)


def _sum(terms: Metrics) -> Array:
    return sum(terms.values(), jnp.zeros(()))


def _action_dtype(space: Space) -> Any:
    """The dtype of actions in a carry, as policies return them."""
    return jnp.int32 if space.discrete else jnp.float32


def _where(mask: Array, a: Array, b: Array) -> Array:
    """Choose per sequence."""
    return jnp.where(mask.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)
