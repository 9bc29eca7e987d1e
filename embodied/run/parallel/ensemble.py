"""The learner on several hosts: a leader posts orders, followers carry them out.

The agent process leads and serves orders at `learner_addr`. Followers join through the
coordinator, execute orders in sequence, and exit with the run. JAX cannot continue
without one of its processes: if a host is lost, the agent process fails, restarts from
its checkpoint, and the remaining hosts rejoin.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import elements

from embodied import rpc
from embodied.core.clock import Seconds
from embodied.process.context import Context, StoppedError
from embodied.rpc import address as addresses
from embodied.run.parallel import connections, member, run_keys
from embodied.run.settings import RunSettings

LARGEST = 1 << 32  # Bytes of one parameter.
HOLD = 2.0  # Seconds that a call waits for an order.
ASK_EVERY = 0.5  # Seconds between two questions whether all hosts are there.
SHUTDOWN_TIMEOUT = 5.0  # Seconds in which followers may learn that the run has ended.

Rows = Callable[[int], Any]  # What one host needs of an order.


class LostError(Exception):
    """A host of the group was lost or restarted."""


class Order(NamedTuple):
    """Something that all hosts do at the same time."""

    words: tuple
    rows: Rows | None = None


@dataclasses.dataclass
class Follower:
    """Another host."""

    incarnation: int  # Changes if its process is restarted.
    taken: int = 0  # Orders that it has.
    acknowledged: bool = False  # Whether it knows that the run has ended.


class Ensemble:
    """Followers, and the orders that some of them have yet to take."""

    def __init__(
        self, session: int, followers: Mapping[str, int], facts: Mapping[str, Any]
    ):
        self._session = session  # Differs between leaders.
        self._followers = {name: Follower(each) for name, each in followers.items()}
        self._facts = {**facts, "session": session, "hosts": 1 + len(followers)}
        self._orders: deque[Order] = deque()
        self._first = 0  # Number of the oldest order that is kept.
        self._over = False
        self._news = threading.Condition()

    def start(self, name: str, incarnation: int) -> dict[str, Any]:
        """Facts that a host needs to start; empty if it is not in this group."""
        with self._news:
            known = self._followers.get(name)
            self._check_over(known)
            if known is None or known.incarnation != incarnation:
                return {}
            return {**self._facts, "host": 1 + list(self._followers).index(name)}

    def post(self, words: tuple, rows: Rows | None = None) -> None:
        """Have all followers do something."""
        with self._news:
            self._orders.append(Order(words, rows))
            self._news.notify_all()

    def take(self, session: int, host: int, index: int) -> list:
        """The order with this index, or nothing if there is none for a while.

        Raises `LostError` for a follower of an earlier leader.
        """
        if session != self._session:
            raise LostError("the leader was restarted")
        with self._news:
            mine = list(self._followers.values())[host - 1]
            assert mine.taken <= index <= self._first + len(self._orders), index
            mine.taken = index
            while self._first < min(each.taken for each in self._followers.values()):
                self._orders.popleft()
                self._first += 1
            self._news.wait_for(lambda: self._over or self._has(index), HOLD)
            if self._has(index):
                order = self._orders[index - self._first]
                return [*order.words, *([order.rows(host)] if order.rows else [])]
            self._check_over(mine)
            return []

    def check(self, joined: Mapping[str, int]) -> None:
        """Raise if a follower is not among the members that the coordinator knows."""
        for name, follower in self._followers.items():
            if name not in joined:
                raise LostError(f"the learner lost a host: {name} is gone")
            if joined[name] != follower.incarnation:
                raise LostError(f"the learner lost a host: {name} was restarted")

    def end(self) -> bool:
        """End the run for all followers; returns whether all acknowledged."""
        with self._news:
            self._over = True
            self._news.notify_all()
            return self._news.wait_for(self._all_acknowledged, SHUTDOWN_TIMEOUT)

    def _has(self, index: int) -> bool:
        return index < self._first + len(self._orders)

    def _check_over(self, follower: Follower | None) -> None:
        if not self._over:
            return
        if follower:
            follower.acknowledged = True
            self._news.notify_all()
        raise connections.RunOverError("the run has ended")

    def _all_acknowledged(self) -> bool:
        return all(each.acknowledged for each in self._followers.values())


@contextlib.contextmanager
def lead(args: RunSettings, ctx: Context) -> Iterator[Ensemble]:
    """Wait for the followers of a run and connect JAX with theirs.

    Raises `StoppedError` if asked to stop while some are missing.
    """
    from embodied.jax import hosts  # Only machines that learn have JAX.

    done = threading.Event()
    with contextlib.ExitStack() as stack:
        coordinator = connections.connect(args.coordinator_addr, "agent", args, ctx)
        stack.callback(coordinator.close)
        followers = await_followers(coordinator, args, ctx)
        host = addresses.to_open(args.learner_addr).rpartition(":")[0]
        address = rpc.resolve(f"{host}:{rpc.AUTO}")
        timeouts = hosts.Timeouts(args.learner_start_timeout, args.learner_timeout)
        facts: dict[str, Any] = {"jax_addr": address, "versions": hosts.versions()}
        facts |= {"timeouts": list(timeouts)}
        ensemble = Ensemble(ctx.incarnation, followers, facts)
        server = make_server(ensemble, args)
        server.start(block=False)
        stack.callback(server.close)
        stack.callback(done.set)
        given = (ensemble, server, coordinator, done, ctx)
        threading.Thread(target=watch, args=given, name="hosts", daemon=True).start()
        hosts.connect(address, args.learners, 0, timeouts)
        yield ensemble
        done.set()
        ensemble.end()  # The coordinator tells those that did not ask in time.
        hosts.disconnect()


def make_server(ensemble: Ensemble, args: RunSettings) -> rpc.Server:
    """A server, not started, for the followers."""
    keys = run_keys.server_keys(args, run_keys.LEARNER)
    server = rpc.Server(args.learner_addr, "learner", keys=keys, max_bytes=LARGEST)
    server.bind("start", ensemble.start)
    server.bind("take", ensemble.take, workers=args.learners - 1)
    return server


def await_followers(
    coordinator: rpc.Client, args: RunSettings, ctx: Context
) -> dict[str, int]:
    """Wait for all followers, as long as it takes; their names and incarnations."""
    due_tell, told = Seconds(connections.TELL_AFTER), False
    while True:
        count = args.learners - 1
        own, waiting = member.ask(coordinator, ctx, "learners", ctx.incarnation, count)
        if own:
            return own
        missing = max(1, count - waiting)
        if not told and due_tell():
            told = True
            more = "1 more host" if missing == 1 else f"{missing} more hosts"
            place = args.coordinator_addr.removeprefix("tcp://")
            text = f"Waiting for {more} to join the learner; on each, run "
            elements.print(f"{text}dreamerv3 join {place} learner", flush=True)
        ctx.beat()
        if ctx.wait_stop(ASK_EVERY):
            raise StoppedError


def watch(
    ensemble: Ensemble,
    server: rpc.Server,
    coordinator: rpc.Client,
    done: threading.Event,
    ctx: Context,
) -> None:
    """Exit if a follower is lost, since the learner would block on it.

    Not during shutdown: saving needs no other host.
    """
    while not done.wait(1.0) and not ctx.stopping():
        try:
            connections.check(server)
            own, _ = coordinator.learners(ctx.incarnation, 0).result()
            ensemble.check(own)
        except Exception as error:
            if not done.is_set():
                ctx.exit(error)
