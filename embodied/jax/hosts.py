"""A learner over several hosts: one process leads, the others follow.

JAX wants every process of a mesh to run the same computations in the same order. The
leader alone has actor, replay and checkpoints. Before each computation it posts an
order, and the followers carry it out on their rows of the same batch:

    ("leaf", path, array)            A part of the leader's state.
    ("share",)                       Take the state that came in parts.
    ("carry", number, size)          A carry of zeros, to be known by a number.
    ("batch", number, size, rows)    The own rows of a batch of that size.
    ("train", carry, batch)          One update.
    ("report", carry, batch)         One report.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from functools import partial as bind
from typing import Any, NamedTuple

import elements
import jax
import numpy as np
from orbax.checkpoint import multihost  # type: ignore[import-untyped]

from embodied.core import base, extras
from embodied.jax import agent, batches, sharding
from embodied.jax.slots import Slots

SHUTDOWN = 10  # Seconds that processes wait for each other to leave.
PACKAGES = ("jax", "jaxlib")  # Of which all need the same version, and of this.
Order = tuple[Any, ...]
Post = Callable[[Order, Callable[[int], Any] | None], None]
Tree = Any


class Timeouts(NamedTuple):
    """How long hosts wait for each other, in seconds."""

    start: float  # Until all have connected, and until all have compiled a program.
    heartbeat: float  # Until a silent host counts as lost.


def connect(address: str, hosts: int, host: int, timeouts: Timeouts) -> None:
    """Join the JAX program at an address, before JAX is used; waits for all hosts."""
    address = address.removeprefix("tcp://")
    minutes = math.ceil(timeouts.start / 60)
    jax.config.update("jax_cpu_get_local_topology_timeout_minutes", minutes)
    jax.config.update("jax_cpu_get_global_topology_timeout_minutes", minutes)
    jax.distributed.initialize(
        address,
        hosts,
        host,
        cluster_detection_method="deactivate",  # It would take devices away.
        initialization_timeout=math.ceil(timeouts.start),
        heartbeat_timeout_seconds=math.ceil(timeouts.heartbeat),
        coordinator_bind_address=address if host == 0 else None,
        shutdown_timeout_seconds=SHUTDOWN,
    )


def meet(timeout: float, name: str) -> None:
    """Wait until all hosts are about to run a program for the first time.

    A collective on CPUs opens its connections when it is first run, and gives up after
    30 s that cannot be changed; hosts need not compile equally fast.
    """
    wait = multihost.get_barrier_sync_fn()
    try:
        wait(key=f"dreamerv3/{name}", timeout_ms=math.ceil(1000 * timeout))
    except jax.errors.JaxRuntimeError as error:
        raise TimeoutError(
            f"not all hosts of the learner compiled '{name}' within {timeout:g} s: "
            f"raise --run.learner_start_timeout on slow or busy machines ({error})"
        ) from error


def disconnect() -> None:
    """Leave the JAX program, all hosts at the same time; a missing host is ignored."""
    try:
        jax.distributed.shutdown()
    except RuntimeError as error:
        elements.print(f"A host left without a word: {error}", color="yellow")


def versions() -> dict[str, str]:
    """Versions of what compiles the same program on all hosts."""
    others = {name: importlib.metadata.version(name) for name in PACKAGES}
    return {**others, extras.DISTRIBUTIONS[0]: extras.version()}


def check_versions(leader: dict[str, str]) -> None:
    """Raise if this host would compile another program than the leader."""
    own = versions()
    if own != leader:
        raise base.SetupError(
            f"the training has {_shown(leader)}, and here are {_shown(own)}: install "
            "the same versions"
        )


def _shown(found: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in found.items())


class Carry(NamedTuple):
    """A carry on all hosts, by the number that followers know it by."""

    number: int
    tree: Tree


class Numbered(batches.Prepared):
    """A batch on all hosts."""

    number: int


class Leader(base.Agent):
    """An agent whose computations the followers repeat.

    `post(order, rows)` sends an order; `rows(host)` is its last word for each of them.
    """

    def __init__(self, own: agent.Agent, post: Post, meet: agent.Meet = agent.alone):
        self.own = own
        self.own.meet = meet
        self.codec = own.codec
        self.obs_space, self.act_space = own.obs_space, own.act_space
        self._post = post
        self._numbers = itertools.count()
        self._lock = threading.Lock()  # Orders are carried out as they are posted.
        self._share()

    @property
    def ext_space(self) -> base.Spaces:
        return self.own.ext_space

    def init_policy(self, batch_size: int) -> Tree:
        return self.own.init_policy(batch_size)

    def policy(
        self, carry: Tree, obs: base.Batch, mode: base.Mode = "train"
    ) -> tuple[Tree, base.Batch, base.Batch]:
        return self.own.policy(carry, obs, mode)

    def slots(self, capacity: int = 64, sizes: tuple[int, ...] = ()) -> Slots:
        return self.own.slots(capacity, sizes)

    def init_train(self, batch_size: int) -> Carry:
        number = next(self._numbers)
        self._post(("carry", number, batch_size), None)
        return Carry(number, self.own.init_train(batch_size))

    def init_report(self, batch_size: int) -> Carry:
        return self.init_train(batch_size)

    def stream(self, source: Iterator[base.Batch]) -> Iterator[base.Batch]:
        ahead = self.own.config.jax.prefetch
        return batches.device_stream(source, self.prepare, ahead)

    def prepare(self, data: base.Batch) -> Numbered:
        """Move a batch to the devices of all hosts."""
        host = self.own.select(data)
        size = len(host[batches.ROWS])

        def rows(process: int) -> base.Batch:
            part = sharding.rows(self.own.mesh, size, process)
            return {k: v[part] for k, v in host.items() if k != base.STEPID}

        result = Numbered(self.own.place_batch(host))
        result.number = next(self._numbers)
        self._post(("batch", result.number, size), rows)
        return result

    def train(
        self, carry: Carry, data: base.Batch
    ) -> tuple[Carry, base.Batch, base.Metrics]:
        data = data if isinstance(data, Numbered) else self.prepare(data)
        with self._lock:
            self._post(("train", carry.number, data.number), None)
            tree, outs, metrics = self.own.train(carry.tree, data)
        return Carry(carry.number, tree), outs, metrics

    def report(self, carry: Carry, data: base.Batch) -> tuple[Carry, base.Metrics]:
        data = data if isinstance(data, Numbered) else self.prepare(data)
        with self._lock:
            self._post(("report", carry.number, data.number), None)
            tree, metrics = self.own.report(carry.tree, data)
        return Carry(carry.number, tree), metrics

    def save(self) -> dict[str, np.ndarray]:
        return self.own.save()

    def load(self, data: Any, regex: str | None = None) -> None:
        self.own.load(data, regex)
        self._share()

    def _share(self) -> None:
        """Give all hosts the state of this one."""
        for path, value in self.own.save().items():
            self._post(("leaf", path), bind(_whole, value))
        self._post(("share",), None)


class Follower:
    """Carries out the orders of a leader one after the other."""

    def __init__(self, own: agent.Agent, meet: agent.Meet = agent.alone):
        self._own = own
        self._own.meet = meet
        self._state: dict[str, np.ndarray] = {}  # Parts of that of the leader.
        self._carries: dict[int, Tree] = {}
        self._batches: dict[int, batches.Prepared] = {}
        self._kinds: dict[str, Callable[..., None]] = {
            "leaf": self._leaf,
            "share": self._share,
            "carry": self._carry,
            "batch": self._batch,
            "train": self._train,
            "report": self._report,
        }

    def obey(self, order: Order) -> None:
        """Carry out one order of the leader."""
        kind, *rest = order
        self._kinds[kind](*rest)

    def _leaf(self, path: str, value: np.ndarray) -> None:
        self._state[path] = value

    def _share(self) -> None:
        self._own.load(self._state)
        self._state = {}

    def _carry(self, number: int, size: int) -> None:
        self._carries[number] = self._own.init_train(size)

    def _batch(self, number: int, size: int, rows: base.Batch) -> None:
        place = sharding.batched(self._own.mesh, size)
        arrays = sharding.put_rows(rows, size, place)
        self._batches[number] = batches.Prepared(arrays)

    def _train(self, carry: int, batch: int) -> None:
        data, begin = dict(self._batches.pop(batch)), self._carries[carry]
        self._carries[carry], *_ = self._own.update(begin, data, acts=False)

    def _report(self, carry: int, batch: int) -> None:
        data = self._batches.pop(batch)
        self._carries[carry], _ = self._own.report(self._carries[carry], data)


def _whole(value: np.ndarray, host: int) -> np.ndarray:
    return value
