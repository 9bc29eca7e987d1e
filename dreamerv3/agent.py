"""The DreamerV3 agent: world model, actor and critic behind the `Agent` contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from elements import Space

from dreamerv3 import report
from dreamerv3.learning import (
    DETER,
    OPENLOOP,
    POLICY,
    REPORT,
    STOCH,
    Carry,
    Learner,
    State,
)
from dreamerv3.model import Actor
from dreamerv3.rollout import Latent
from embodied.core import base
from embodied.jax import agent, batches, devices, noise, params

FLAGS = (base.REWARD, base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL)
Tree = Any


class Dreamer(agent.Model):
    """DreamerV3 as the functions that the facade runs."""

    def __init__(
        self,
        obs_space: Mapping[str, Space],
        act_space: Mapping[str, Space],
        config: Any,
        dtype: str,
    ):
        seen = {k: v for k, v in obs_space.items() if k not in FLAGS}
        if not seen:
            raise ValueError(f"There is nothing to observe but {sorted(obs_space)}.")
        self.learner = Learner(seen, act_space, config, dtype)
        self.config, self.obs_space = config, dict(obs_space)
        self.context = int(config.replay_context)
        rssm = config.dyn.rssm
        kind = np.uint8 if rssm.classes <= 256 else np.uint16
        self.latents = {
            DETER: Space(np.float32, rssm.deter),
            STOCH: Space(kind, rssm.stoch, 0, rssm.classes),
        }
        self.ext_space = self.latents if self.context else {}
        self.policy_keys = (*sorted(seen), base.IS_FIRST)
        self.batch_keys = (*sorted(seen), *FLAGS, *sorted(act_space), *self.ext_space)

    def init(self, seed: int) -> State:
        return self.learner.init(seed)

    def actor(self, state: State) -> Actor:
        return Actor(state.params.enc, state.params.dyn, state.params.pol)

    def carry(self, batch_size: int) -> Carry:
        rssm = self.config.dyn.rssm
        width = sum(key.width for key in self.learner.actions)
        deter = np.zeros((batch_size, rssm.deter), np.float32)
        stoch = np.zeros((batch_size, rssm.stoch, rssm.classes), np.float32)
        action = np.zeros((batch_size, width), np.float32)
        return Carry(Latent(deter, stoch), action)  # type: ignore[arg-type]

    def policy(
        self, actor: Actor, carry: Carry, obs: Tree, key: Any, greedy: bool
    ) -> tuple[Carry, Tree, Tree]:
        size = actor.dyn.stoch + self.learner.action_size
        rows = jnp.arange(carry.action.shape[0], dtype=jnp.uint32)
        u = noise.uniform(noise.fold(key, POLICY), rows, (size,))
        carry, actions, entries = self.learner.act(actor, carry, obs, u, greedy)
        return carry, actions, entries if self.context else {}

    def train(
        self, state: State, carry: Carry, data: Tree, key: Any
    ) -> tuple[State, Carry, Tree, Tree]:
        state, carry, entries, metrics = self.learner.train(state, carry, data, key)
        return state, carry, entries if self.context else {}, metrics

    def report(
        self, state: State, carry: Carry, data: Tree, key: Any
    ) -> tuple[Carry, Tree]:
        """Held-out losses, open-loop predictions and optional gradient norms."""
        learner = self.learner
        key = noise.fold(noise.fold(key, REPORT), state.step)
        seq, rows = learner.sequence(carry, data), data[batches.ROWS]
        _, aux = learner.loss(state.params, state, seq, rows, key)
        metrics = learner.metrics(aux)
        if self.config.report_gradnorms:
            metrics |= learner.gradient_norms(state, seq, rows, key)
        few, steps = min(report.SEQUENCES, len(rows)), seq.prevact.shape[1]
        shape = (steps, state.params.dyn.stoch)
        u = noise.uniform(noise.fold(key, OPENLOOP), rows[:few], shape)
        obs = {k: v[:few] for k, v in seq.obs.items()}
        start = jax.tree.map(lambda x: x[:few], seq.start)
        dists = report.open_loop(state.params, start, obs, seq.prevact[:few], u)
        metrics |= report.summarize(dists, obs, steps // 2)
        return learner.last(seq, aux), metrics

    def param_name(self, path: str) -> str | None:
        """Trained parameters by their path; the slow critic goes with the critic."""
        kind, _, rest = path.partition("/")
        return {"params": rest, "slow": f"val/{rest}"}.get(kind)


class Agent(agent.Agent):
    """DreamerV3 for any mix of image, vector and discrete spaces."""

    def __init__(
        self,
        obs_space: Mapping[str, Space],
        act_space: Mapping[str, Space],
        config: Any,
    ):
        devices.setup(config.jax)
        dtype = devices.compute_dtype(config.jax.compute_dtype)
        self.obs_space, self.act_space = dict(obs_space), dict(act_space)
        seen = {k: v for k, v in obs_space.items() if not k.startswith(base.LOG_PREFIX)}
        actions = {k: v for k, v in act_space.items() if k != base.RESET}
        super().__init__(Dreamer(seen, actions, config, dtype), config)
        self.dtype = dtype

    def describe(self) -> str:
        """Number of parameters of each module."""
        table = params.describe(self.state.params)
        return f"Parameters ({self.dtype} compute):\n{table}"
