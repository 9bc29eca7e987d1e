"""The learner on several hosts: who belongs to it, and what they are told to do.

The agent process leads. It serves orders at `learner_addr`, and programs on other hosts
follow: they join, take orders one after the other, and end when the run is over. If one
is lost, the agent process fails and is restarted from its checkpoint; the others notice
and join again. JAX cannot go on with fewer.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import elements

from embodied import rpc
from embodied.core import base, spacefile
from embodied.core.clock import Seconds
from embodied.rpc import address as addresses
from embodied.run import role
from embodied.run.parallel import wire
from embodied.run.parallel.env import AWAY
from embodied.run.parallel.guest import Invitation

HOLD = 2.0  # Seconds that a call for orders waits for one.
SILENCE = 30.0  # Seconds without a call after which a follower counts as lost.
FAREWELL = 5.0  # Seconds in which followers may hear that the run is over.
TELL_EVERY = 60.0  # Seconds between lines about followers that are missing.

Rows = Callable[[int], base.Batch]  # What one host needs of an order.


class LostError(Exception):
    """A follower is gone."""


class Order(NamedTuple):
    """Something that all hosts do at the same time."""

    words: tuple
    rows: Rows | None = None


class Ensemble:
    """Followers and the orders that some of them have yet to take."""

    def __init__(self, followers: int, facts: dict[str, Any]):
        self._followers = followers
        self._facts = facts
        self._members: dict[str, int] = {}  # To the number of the host, from 1 on.
        self._orders: deque[Order] = deque()
        self._first = 0  # Number of the oldest order that is kept.
        self._taken: dict[int, int] = {}  # Host to the orders it has taken.
        self._heard: dict[int, float] = {}  # Host to when it last called.
        self._told: set[int] = set()  # Hosts that know that the run is over.
        self._lost = ""
        self._over = False
        self._news = threading.Condition()

    def join(self, member: str) -> dict[str, Any]:
        """A host's number and all it has to know; empty if there is no place now."""
        with self._news:
            if self._over:
                raise wire.RunOverError("the run is over")
            if member in self._members:  # It was restarted; JAX wants all of us to be.
                self._lost = self._lost or f"{member} was restarted"
            if self._lost or len(self._members) == self._followers:
                return {}
            number = len(self._members) + 1
            self._members[member] = number
            self._taken[number] = 0
            self._heard[number] = time.monotonic()
            self._news.notify_all()
            return {**self._facts, "host": number, "hosts": self._followers + 1}

    def take(self, number: int, index: int) -> list:
        """The order with this index, or nothing if there is none for a while."""
        with self._news:
            self._heard[number] = time.monotonic()
            self._taken[number] = index
            while self._first < min(self._taken.values()):
                self._orders.popleft()
                self._first += 1
            self._news.wait_for(lambda: self._over or self._has(index), HOLD)
            if self._has(index):
                order = self._orders[index - self._first]
                rows = [order.rows(number)] if order.rows else []
                return [*order.words, *rows]
            if self._over:
                self._told.add(number)
                self._news.notify_all()
                raise wire.RunOverError("the run is over")
            return []

    def post(self, words: tuple, rows: Rows | None = None) -> None:
        """Have all followers do something."""
        with self._news:
            self._orders.append(Order(words, rows))
            self._news.notify_all()

    def missing(self) -> int:
        """Followers that have not joined yet."""
        with self._news:
            return self._followers - len(self._members)

    def check(self) -> None:
        """Raise if a follower was lost."""
        with self._news:
            now = time.monotonic()
            for member, number in self._members.items():
                if now - self._heard[number] > SILENCE:
                    self._lost = self._lost or f"nothing was heard of {member}"
            if self._lost:
                raise LostError(f"the learner lost a host: {self._lost}")

    def end(self) -> None:
        """Tell the followers that the run is over."""
        with self._news:
            self._over = True
            self._news.notify_all()
            known = set(self._members.values())
            self._news.wait_for(lambda: self._told >= known, FAREWELL)

    def _has(self, index: int) -> bool:
        return index < self._first + len(self._orders)


@contextlib.contextmanager
def lead(args: elements.Config) -> Iterator[Ensemble]:
    """Gather the followers of a run, and make JAX one program with theirs.

    Raises `StoppedError` if asked to stop while some are missing.
    """
    from embodied.jax import hosts  # Only the machines that learn have JAX.

    host = args.learner_addr.removeprefix("tcp://").rpartition(":")[0]
    coordinator = addresses.to_open(rpc.resolve(f"tcp://{host}:{rpc.AUTO}"))
    spaces = spacefile.read(args.logdir)
    assert spaces, f"{args.logdir} needs {spacefile.FILE} for the other hosts"
    facts = {
        "coordinator": coordinator,
        "config": args.config.flat,
        "spaces": spacefile.encode(*spaces),
    }
    ensemble = Ensemble(args.learners - 1, facts)
    keys = wire.server_keys(args)
    server = rpc.Server(args.learner_addr, "learner", keys=keys)
    server.bind("join", ensemble.join)
    server.bind("take", ensemble.take, workers=args.learners - 1)
    server.start(block=False)
    done = threading.Event()
    try:
        await_followers(ensemble, args)
        watcher = threading.Thread(target=watch, args=(ensemble, done), daemon=True)
        watcher.start()
        hosts.connect(coordinator, args.learners, 0)
        yield ensemble
        ensemble.end()
        done.set()
        hosts.disconnect()
    finally:
        done.set()
        server.close()


def await_followers(ensemble: Ensemble, args: elements.Config) -> None:
    """Wait for all followers, as long as it takes."""
    due_tell = Seconds(TELL_EVERY)
    while missing := ensemble.missing():
        role.beat()
        ensemble.check()
        if due_tell():
            hosts = "1 more host" if missing == 1 else f"{missing} more hosts"
            text = f"Waiting: for {hosts} to learn with; there, run "
            text += f"dreamerv3 learner --connect {args.learner_addr}"
            elements.print(text, flush=True)
        if role.wait_stop(0.5):
            raise role.StoppedError


def watch(ensemble: Ensemble, done: threading.Event) -> None:
    """End this process if a follower is lost: it may wait for it for ever."""
    while not done.wait(1.0):
        try:
            ensemble.check()
        except LostError as error:
            role.leave(error)


def parallel_follower(
    make_agent: Callable[[dict[str, Any], spacefile.Pair], Any],
    member: str,
    invitation: Invitation,
) -> None:
    """Learn with a leader, until asked to stop or the run is over."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(role.StoppedError))
        client = wire.reach(*invitation, member, on_restart="fail")
        stack.callback(client.close)
        try:
            follow(make_agent, member, client)
        except rpc.RemoteError as error:
            if not wire.is_over(error):
                raise


def follow(make_agent: Callable[..., Any], member: str, client: rpc.Client) -> None:
    """Join, and carry out one order after the other until the run is over."""
    from embodied.jax import hosts  # Before it joins, as this may take a while.

    facts = join(client, member)
    hosts.connect(facts["coordinator"], facts["hosts"], facts["host"])
    orders = Orders(client, facts["host"])
    spaces = spacefile.decode(facts["spaces"])
    follower = hosts.Follower(make_agent(facts["config"], spaces))
    for order in orders:
        follower.obey(order)
    hosts.disconnect()


def join(client: rpc.Client, member: str) -> dict[str, Any]:
    """What the leader says, waiting for a place as long as it takes."""
    due_tell = Seconds(TELL_EVERY)
    while True:
        facts = role.await_result(client.call("join", (member,)))
        if facts:
            return facts
        if due_tell():
            elements.print(f"{member} waits: the training has no place now.")
        if role.wait_stop(HOLD):
            raise role.StoppedError


class Orders(Iterator[tuple]):
    """Orders of the leader, taken by a thread that goes on while others compute.

    The process ends, whatever its main thread does, if it is asked to stop or its
    leader is another one: there is nothing to save.
    """

    def __init__(self, client: rpc.Client, host: int):
        self._client = client
        self._host = host
        self._queue: queue.SimpleQueue[tuple | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="orders", daemon=True).start()

    def __next__(self) -> tuple:
        while True:
            role.beat()
            with contextlib.suppress(queue.Empty):
                order = self._queue.get(timeout=1.0)
                break
        if isinstance(order, BaseException):
            raise order
        return order

    def _work(self) -> None:
        index = 0
        try:
            while True:
                words = role.await_result(
                    self._client.call("take", (self._host, index))
                )
                if words:
                    self._queue.put(tuple(words))
                    index += 1
        except role.StoppedError:
            role.leave(None)
        except AWAY as error:
            role.leave(error)
        except BaseException as error:
            over = wire.is_over(error)
            self._queue.put(StopIteration() if over else error)
