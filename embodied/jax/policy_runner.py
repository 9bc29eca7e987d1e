"""Runs the policy of an agent: its copy of the parameters, its compiled functions."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from embodied.core import base
from embodied.jax import devices, noise, sharding
from embodied.jax.batches import check_finite, narrow
from embodied.jax.settings import AgentSettings

Tree = Any


class PolicyRunner:
    """Chooses actions with parameters that the learner publishes without blocking."""

    def __init__(self, model: Any, config: AgentSettings, actor: Tree):
        self.model, self.config = model, config
        chosen = devices.pick(config.jax.policy_devices, "policy_devices")
        self.mesh = sharding.make_mesh(chosen, (-1, 1, 1))
        self.everywhere = sharding.replicated(self.mesh)
        self.devices = self.everywhere.device_set
        leaves, self.structure = jax.tree.flatten(actor)
        self.params = jax.device_put(leaves, self.everywhere, may_alias=False)
        self.offered: deque[list[Any]] = deque(maxlen=3)  # Handed over, oldest first.
        self.lock = threading.Lock()  # Held to exchange parameters.
        self.key = noise.make_key(config.seed)
        self.calls = itertools.count()
        self.compiled: dict[Any, Any] = {}
        self.copy = jax.jit(_copy, out_shardings=self.everywhere)
        self.checked = [k for k, v in model.obs_space.items() if v.dtype.kind == "f"]
        self.checked = [k for k in self.checked if k in model.policy_keys]

    def offer(self, actor: Tree) -> None:
        """Queue a copy of the learner's parameters; returns at once."""
        leaves = [self._near(x) for x in jax.tree.leaves(sharding.local(actor))]
        if any(x.devices() != self.devices for x in leaves):
            leaves = jax.device_put(leaves, self.everywhere)
        fresh = self.copy(leaves)  # The learner's own go into its next update.
        with self.lock:
            self.offered.append(fresh)

    def _near(self, x: jax.Array) -> jax.Array:
        """The array on the policy's only device, if it is whole there; no copy."""
        if x.is_fully_replicated and self.mesh.size == 1:
            for i in range(len(x.sharding.addressable_devices)):
                if (data := x.addressable_data(i)).devices() == self.devices:
                    return data
        return x

    def newest(self, wait: bool) -> list[Any]:
        """The last parameters that were offered, or the last that are ready."""
        with self.lock:
            while self.offered and (wait or _ready(self.offered[0])):
                self.params = self.offered.popleft()
            return self.params

    def put(self, tree: Tree, size: int) -> Tree:
        """Move a carry with leading dimension `size` to the policy's devices."""
        return jax.device_put(tree, sharding.batched(self.mesh, size), may_alias=False)

    def step(
        self, carry: Tree, obs: base.Batch, mode: base.Mode
    ) -> tuple[Tree, base.Batch, base.Batch]:
        """One policy step with the newest parameters, waiting for them if need be."""
        inputs, size = self.inputs(obs)
        params = self.newest(wait=True)
        args = (params, carry, inputs, *self.randomness())
        fn = self.function(self._step, args, size, self.greedy(mode))
        carry, actions, outs = fn(*args)
        return carry, *self.outputs(actions, outs, size)

    def inputs(self, obs: base.Batch) -> tuple[dict[str, np.ndarray], int]:
        """The observations the model needs, as numpy arrays, and how many there are."""
        missing = [key for key in self.model.policy_keys if key not in obs]
        if missing:
            raise KeyError(f"The observation has no {missing}; it has {sorted(obs)}.")
        inputs = {k: narrow(np.asarray(obs[k])) for k in self.model.policy_keys}
        if self.config.finite_check:
            for key in self.checked:
                check_finite("observation", key, inputs[key])
        return inputs, len(inputs[base.IS_FIRST])

    def outputs(
        self, actions: Tree, outs: Tree, size: int
    ) -> tuple[base.Batch, base.Batch]:
        """Actions and outputs on the host, without padding."""
        for value in (*actions.values(), *outs.values()):
            value.copy_to_host_async()
        acts = {k: np.asarray(v)[:size] for k, v in actions.items()}
        if self.config.finite_check:
            for key, value in acts.items():
                if value.dtype.kind == "f":
                    check_finite("action", key, value)
        return acts, {k: np.asarray(v)[:size] for k, v in outs.items()}

    def randomness(self) -> tuple[np.ndarray, np.ndarray]:
        """Seed and number of this call."""
        return self.key, np.uint32(next(self.calls))  # type: ignore[return-value]

    def greedy(self, mode: base.Mode) -> bool:
        """Whether to take the most likely actions in this mode."""
        chosen = self.config.eval_mode if mode == "eval" else mode
        return chosen == "greedy"

    def function(
        self, fn: Callable[..., Any], args: Any, size: int, greedy: bool, **jit: Any
    ) -> Any:
        """`fn` compiled for this batch size and mode."""
        name = (fn.__name__, size, greedy, jit.get("donate_argnums"))
        if name not in self.compiled:

            def bound(*args: Any) -> Any:
                return fn(*args, greedy)

            if not self.config.jax.jit:
                return bound
            self.compiled[name] = devices.compile_for(jax.jit(bound, **jit), args)
        return self.compiled[name]

    def _step(
        self, params: Any, carry: Tree, obs: Any, key: Any, call: Any, greedy: bool
    ) -> tuple[Tree, Tree, Tree]:
        actor = jax.tree.unflatten(self.structure, params)
        return self.model.policy(actor, carry, obs, noise.fold(key, call), greedy)


def _copy(leaves: list[Any]) -> list[Any]:
    return [jnp.copy(x) for x in leaves]


def _ready(leaves: list[Any]) -> bool:
    return all(x.is_ready() for x in leaves)
