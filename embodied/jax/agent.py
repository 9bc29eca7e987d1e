"""The agent facade: devices, compilation, parameters in flight, saving.

`Model` says what to compute as pure functions; `Agent` runs it. An actor thread may
call `policy` (or act through `slots`) while a learner thread calls `train`: the policy
owns a copy of its parameters, so donating those of the learner never touches it.
"""

from __future__ import annotations

import abc
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from embodied import public_names
from embodied.core import base
from embodied.core.checkpoint import Codec
from embodied.jax import batches, cpu, devices, noise, orbax_tree, params, sharding
from embodied.jax.policy_runner import PolicyRunner
from embodied.jax.settings import AgentSettings
from embodied.jax.slots import Slots

public_names.extend(__name__)

Tree = Any
Meet = Callable[[str], None]


def alone(name: str) -> None:
    """Wait for no other host before a program is first run."""


class Model(abc.ABC):
    """Pure functions that an agent compiles and runs."""

    ext_space: base.Spaces  # Latents stored with each step.
    obs_space: base.Spaces  # Observations the model knows.
    policy_keys: tuple[str, ...]  # Observations that `policy` needs.
    batch_keys: tuple[str, ...]  # What `train` and `report` need of a batch.
    context: int  # Steps before each sequence.

    @abc.abstractmethod
    def init(self, seed: int) -> Tree:
        """The training state as numpy arrays."""

    @abc.abstractmethod
    def actor(self, state: Tree) -> Tree:
        """The part of the state that the policy needs."""

    @abc.abstractmethod
    def carry(self, batch_size: int) -> Tree:
        """A policy or training carry of zeros, as numpy arrays."""

    @abc.abstractmethod
    def policy(
        self, actor: Tree, carry: Tree, obs: Tree, key: Any, greedy: bool
    ) -> tuple[Tree, Tree, Tree]:
        """Next carry, actions and outputs."""

    @abc.abstractmethod
    def train(
        self, state: Tree, carry: Tree, data: Tree, key: Any
    ) -> tuple[Tree, Tree, Tree, Tree]:
        """Next state and carry, values for the replay, and metrics.

        On a mesh that splits nothing but the batch, each device has its own sequences:
        what all of them must agree on is made with `collectives`.
        """

    @abc.abstractmethod
    def report(self, state: Tree, carry: Tree, data: Tree, key: Any) -> Any:
        """Next carry and metrics."""

    @abc.abstractmethod
    def param_name(self, path: str) -> str | None:
        """The name by which a regex selects a leaf of the state, if it may."""


class Agent(base.Agent):
    """Runs a model on devices."""

    codec = Codec(orbax_tree.write, orbax_tree.read)

    def __init__(self, model: Model, config: AgentSettings):
        self.model, self.config = model, config
        chosen = devices.pick_everywhere(config.jax.train_devices, "train_devices")
        self.mesh = sharding.make_mesh(chosen, config.jax.mesh)
        # Collectives of queued CPU programs can starve each other of threads.
        self.queue = 0 if chosen[0].platform == "cpu" and len(chosen) > 1 else 2
        state = model.init(config.seed)
        self.place = sharding.params(self.mesh, state)
        self.state = sharding.put(state, self.place)
        self.key = noise.make_key(config.seed)
        self.lock = threading.RLock()  # Guards `state`.
        self.running: deque[Any] = deque()  # Metrics of the updates in flight.
        self.runner = PolicyRunner(model, config, model.actor(state))
        self.compiled: dict[Any, Any] = {}
        self.record = jax.tree.structure(model.carry(1))
        self.hosts = jax.process_count()
        self.meet: Meet = alone  # Called after a program of all hosts is compiled.

    @property
    def ext_space(self) -> base.Spaces:
        return self.model.ext_space

    def init_policy(self, batch_size: int) -> Tree:
        return self.runner.put(self.model.carry(batch_size), batch_size)

    def init_train(self, batch_size: int) -> Tree:
        return self._put(self.model.carry(batch_size), batch_size)

    def init_report(self, batch_size: int) -> Tree:
        return self.init_train(batch_size)

    def policy(
        self, carry: Tree, obs: base.Batch, mode: base.Mode = "train"
    ) -> tuple[Tree, base.Batch, base.Batch]:
        """Act with the parameters of the last `train`, waiting for it if need be."""
        return self.runner.step(self._as_record(carry), obs, mode)

    def slots(self, capacity: int = 64, sizes: tuple[int, ...] = ()) -> Slots:
        """A table of policy latents on the device for environments that come and go.

        It acts with the newest finished parameters and never waits for the learner.
        """
        return Slots(self.runner, capacity, sizes)

    def train(
        self, carry: Tree, data: base.Batch
    ) -> tuple[Tree, base.Batch, base.Metrics]:
        """Start one update.

        Outputs and metrics are arrays on their way to the host: `np.asarray` waits.
        """
        data = data if isinstance(data, batches.Prepared) else self.prepare(data)
        stepid = data.get(base.STEPID)
        device = {k: v for k, v in data.items() if k != base.STEPID}
        carry, entries, metrics = self.update(self._as_record(carry), device)
        for value in (*entries.values(), *metrics.values()):
            value.copy_to_host_async()
        outs: base.Batch = {}
        if stepid is not None and entries:
            outs["replay"] = {base.STEPID: stepid[:, self.model.context :], **entries}
        return carry, outs, metrics

    def update(
        self, carry: Tree, device: Tree, acts: bool = True
    ) -> tuple[Tree, Tree, Tree]:
        """Start one update; only one that `acts` hands the parameters to the policy."""
        with self.lock:
            args = (self.state, carry, device, self.key)
            fn = self._function("train", args)
            self.state, carry, entries, metrics = fn(*args)
            entries, metrics = sharding.local((entries, metrics))
            if acts:
                self.runner.offer(self.model.actor(self.state))
            self.running.append(metrics)
            waiting = self.running.popleft() if len(self.running) > self.queue else ()
        jax.block_until_ready(waiting)
        return carry, entries, metrics

    def report(self, carry: Tree, data: base.Batch) -> tuple[Tree, base.Metrics]:
        """Metrics and videos as numpy arrays."""
        data = data if isinstance(data, batches.Prepared) else self.prepare(data)
        device = {k: v for k, v in data.items() if k != base.STEPID}
        with self.lock:
            args = (self.state, self._as_record(carry), device, self.key)
            carry, metrics = self._function("report", args)(*args)
            return carry, jax.device_get(sharding.local(metrics))

    def stream(self, source: Iterator[base.Batch]) -> Iterator[base.Batch]:
        """Batches on the devices, `jax.prefetch` of them ahead of time."""
        return batches.device_stream(source, self.prepare, self.config.jax.prefetch)

    def prepare(self, data: base.Batch) -> batches.Prepared:
        """Move what the model needs to the devices; `stepid` stays on the host."""
        return self.place_batch(self.select(data))

    def select(self, data: base.Batch) -> base.Batch:
        """What the model needs of a batch, and `stepid`, checked."""
        host = batches.select(data, self.model.batch_keys)
        if self.config.finite_check:
            for key in set(host) - set(self.ext_space):
                if host[key].dtype.kind == "f":
                    batches.check_finite("batch", key, host[key])
        if base.STEPID in data:
            host[base.STEPID] = np.asarray(data[base.STEPID])
        return host

    def place_batch(self, host: base.Batch) -> batches.Prepared:
        """Move a selected batch to the devices."""
        arrays = {k: v for k, v in host.items() if k != base.STEPID}
        result = batches.Prepared(self._put(arrays, len(host[batches.ROWS])))
        if base.STEPID in host:
            result[base.STEPID] = host[base.STEPID]
        return result

    def save(self) -> dict[str, np.ndarray]:
        """The state by path, as numpy arrays that nothing else writes to."""
        with self.lock:
            flat = params.flatten(self.fetch())
        return {path: np.array(value) for path, value in flat.items()}

    def load(self, data: Any, regex: str | None = None) -> None:
        """Restore the state, or only the parameters whose name starts with a match."""
        with self.lock:
            host = self.fetch()
            name = self.model.param_name if regex else None
            flat = params.select(data, params.flatten(host), regex, name)
            self.replace(params.unflatten(host, flat))

    def fetch(self) -> Tree:
        """The state on the host."""
        return jax.device_get(sharding.local(self.state))

    def replace(self, host: Tree) -> None:
        """Continue from another state, which every process has."""
        self.state = sharding.put(host, self.place)
        self.runner.offer(self.model.actor(self.state))

    def _put(self, tree: Tree, size: int) -> Tree:
        return sharding.put(tree, sharding.batched(self.mesh, size))

    def _as_record(self, carry: Tree) -> Tree:
        """The carry as the model names its parts; programs may pass plain tuples."""
        return jax.tree.unflatten(self.record, jax.tree.leaves(carry))

    def _function(self, kind: str, args: tuple[Any, ...]) -> Any:
        """`train` or `report`, compiled with explicit shardings for these arguments."""
        shapes = tuple((k, v.shape) for k, v in sorted(args[2].items()))
        if (kind, shapes) not in self.compiled:
            size = len(args[2][batches.ROWS])
            many, one = (
                sharding.batched(self.mesh, size),
                sharding.replicated(self.mesh),
            )
            back = many if self.hosts == 1 else one  # One process writes all of them.
            fns = {"train": self.model.train, "report": self.model.report}
            if kind == "train" and sharding.splits_rows(self.mesh, size):
                # State, carry, batch and key; state, carry, latents and metrics.
                split = (False, True, True, False)
                fns[kind] = sharding.by_rows(fns[kind], self.mesh, split, split)
            outs = {"train": (self.place, many, back, one), "report": (many, one)}
            fn = jax.jit(
                fns[kind],
                in_shardings=(self.place, many, many, one),
                out_shardings=outs[kind],
                donate_argnums=(0,) if kind == "train" else (),
            )
            if self.config.jax.jit:
                self.compiled[kind, shapes] = devices.compile_for(fn, args)
                cpu.release()
            else:
                self.compiled[kind, shapes] = _interpreted(fn)
            self.meet(f"{kind}/{len(self.compiled)}")
        return self.compiled[kind, shapes]


def _interpreted(fn: Any) -> Any:
    """Run a function op by op, to debug it."""

    def call(*args: Any) -> Any:
        with jax.disable_jit():
            return fn(*args)

    return call
