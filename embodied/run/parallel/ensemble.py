"""The learner on several hosts: who belongs to it, and what they are told to do.

The agent process leads. It serves orders at `learner_addr`, and programs on other hosts
follow: they join, take one order after the other, and end when the run is over. JAX
cannot go on without one of them. So if one is lost, the agent process fails and is
restarted from its checkpoint; the others notice and join again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
import queue
import secrets
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

FILE = "learners.json"  # Says how many followers have yet to hear of the end.
LARGEST = 1 << 32  # Bytes of one parameter.
HOLD = 2.0  # Seconds that a call waits for news, or between two of them.
SILENCE = 30.0  # Seconds without a call after which a follower counts as lost.
FAREWELL = 5.0  # Seconds in which followers may hear that the run is over.
STOP_AFTER = 30.0  # Seconds that a follower asked to stop goes on, as all may be.

Rows = Callable[[int], Any]  # What one host needs of an order.


class LostError(Exception):
    """A follower is gone."""


class Order(NamedTuple):
    """Something that all hosts do at the same time."""

    words: tuple
    rows: Rows | None = None


@dataclasses.dataclass
class Follower:
    """Another host."""

    life: str  # Changes if its process is restarted.
    heard: float  # When it last called.
    taken: int = 0  # Orders that it has.
    told: bool = False  # That the run is over.


class Ensemble:
    """Followers, and the orders that some of them have yet to take."""

    def __init__(self, followers: int, now: Callable[[], float] = time.monotonic):
        self._amount = followers
        self._now = now
        self._followers: dict[str, Follower] = {}  # In the order of their numbers.
        self._facts: dict[str, Any] = {}  # Once all are there.
        self._orders: deque[Order] = deque()
        self._first = 0  # Number of the oldest order that is kept.
        self._lost = ""
        self._over = False
        self._news = threading.Condition()

    def join(self, name: str, life: str) -> dict[str, Any]:
        """All that a host has to know; empty as long as others are missing."""
        with self._news:
            known = self._followers.get(name)
            self._check_over(known)
            if self._facts and known and known.life != life:
                self._lose(f"{name} was restarted")
            if not self._facts and (known or len(self._followers) < self._amount):
                self._followers[name] = Follower(life, self._now())
            mine = self._followers.get(name)
            if not self._facts or self._lost or mine is None or mine.life != life:
                return {}
            mine.heard = self._now()
            host = 1 + list(self._followers).index(name)
            return {**self._facts, "host": host, "hosts": self._amount + 1}

    def missing(self) -> int:
        """Hosts that are not there, or no longer, while all gather."""
        with self._news:
            limit = self._now() - SILENCE
            silent = [n for n, each in self._followers.items() if each.heard < limit]
            for name in silent:
                del self._followers[name]
            return self._amount - len(self._followers)

    def begin(self, facts: dict[str, Any]) -> None:
        """Tell the hosts, which are all there, what they have to know."""
        with self._news:
            self._facts = facts

    def post(self, words: tuple, rows: Rows | None = None) -> None:
        """Have all followers do something."""
        with self._news:
            self._orders.append(Order(words, rows))
            self._news.notify_all()

    def take(self, host: int, index: int) -> list:
        """The order with this index, or nothing if there is none for a while."""
        with self._news:
            mine = list(self._followers.values())[host - 1]
            assert mine.taken <= index <= self._first + len(self._orders), index
            mine.heard, mine.taken = self._now(), index
            while self._first < min(each.taken for each in self._followers.values()):
                self._orders.popleft()
                self._first += 1
            self._news.wait_for(lambda: self._over or self._has(index), HOLD)
            if self._has(index):
                order = self._orders[index - self._first]
                return [*order.words, *([order.rows(host)] if order.rows else [])]
            self._check_over(mine)
            return []

    def check(self) -> None:
        """Raise if a follower was lost."""
        with self._news:
            limit = self._now() - SILENCE
            for name, each in self._followers.items():
                if each.heard < limit:
                    self._lose(f"nothing was heard of {name}")
            if self._lost:
                raise LostError(f"the learner lost a host: {self._lost}")

    def end(self) -> bool:
        """Tell the followers that the run is over; whether all have heard it."""
        with self._news:
            self._over = True
            self._news.notify_all()
            return self._news.wait_for(self._all_told, FAREWELL)

    def _lose(self, text: str) -> None:
        self._lost = self._lost or text

    def _has(self, index: int) -> bool:
        return index < self._first + len(self._orders)

    def _check_over(self, follower: Follower | None) -> None:
        if not self._over:
            return
        if follower:
            follower.told = True
            self._news.notify_all()
        raise wire.RunOverError("the run is over")

    def _all_told(self) -> bool:
        return all(each.told for each in self._followers.values())


def location(args: elements.Config) -> pathlib.Path:
    """A file that is there while followers have yet to hear of the end."""
    return pathlib.Path(args.logdir).expanduser() / FILE


@contextlib.contextmanager
def lead(args: elements.Config) -> Iterator[Ensemble]:
    """Gather the followers of a run, and make JAX one program with theirs.

    Raises `StoppedError` if asked to stop while some are missing.
    """
    from embodied.jax import hosts  # Only machines that learn have JAX.

    ensemble = Ensemble(args.learners - 1)
    server = rpc.Server(args.learner_addr, "learner", keys=wire.server_keys(args))
    server.bind("join", ensemble.join)
    server.bind("take", ensemble.take, workers=args.learners - 1)
    location(args).write_text(json.dumps(args.learners - 1))
    server.start(block=False)
    done = threading.Event()
    try:
        await_followers(ensemble, args)
        facts = describe(args) | {"versions": hosts.versions()}
        ensemble.begin(facts)
        given = (ensemble, server, done)
        threading.Thread(target=watch, args=given, name="hosts", daemon=True).start()
        hosts.connect(facts["coordinator"], args.learners, 0)
        yield ensemble
        done.set()
        dismiss(ensemble, args)
        hosts.disconnect()
    except role.StoppedError:  # While some were missing.
        dismiss(ensemble, args)
        raise
    finally:
        done.set()
        server.close()


def dismiss(ensemble: Ensemble, args: elements.Config) -> None:
    """Tell the followers that the run is over; the farewell tells who did not hear."""
    if ensemble.end():
        location(args).unlink()


def await_followers(ensemble: Ensemble, args: elements.Config) -> None:
    """Wait for all followers, as long as it takes."""
    due_tell, told = Seconds(wire.TELL_AFTER), False
    while missing := ensemble.missing():
        role.beat()
        if not told and due_tell():
            told = True
            more = "1 more host" if missing == 1 else f"{missing} more hosts"
            text = f"Waiting: for {more} to learn with; there, run "
            text += f"dreamerv3 learner --connect {args.learner_addr}"
            elements.print(text, flush=True)
        if role.wait_stop(0.2):
            raise role.StoppedError


def describe(args: elements.Config) -> dict[str, Any]:
    """What followers have to know of a run."""
    spaces = spacefile.read(args.logdir)
    assert spaces, f"{args.logdir} needs {spacefile.FILE} for the other hosts"
    host = addresses.to_open(args.learner_addr).rpartition(":")[0]
    return {
        "coordinator": rpc.resolve(f"{host}:{rpc.AUTO}"),
        "config": args.config.flat,
        "spaces": spacefile.encode(*spaces),
    }


def watch(ensemble: Ensemble, server: rpc.Server, done: threading.Event) -> None:
    """End this process if a follower is lost: it may wait for it for ever.

    But not if it is about to end: saving needs no other host.
    """
    while not done.wait(1.0) and not role.stopping():
        try:
            wire.check(server)
            ensemble.check()
        except Exception as error:
            role.leave(error)


def parallel_follower(
    make_agent: Callable[[dict[str, Any], spacefile.Pair], Any],
    name: str,
    invitation: Invitation,
) -> None:
    """Learn with a leader, until asked to stop or the run is over."""
    from embodied.jax import hosts  # Before it joins, as this may take a while.

    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(role.StoppedError))
        address, keys = invitation
        client = wire.reach(address, keys, name, on_restart="fail", max_bytes=LARGEST)
        stack.callback(client.close)
        try:
            facts = join(client, name)
            hosts.check_versions(facts["versions"])
            follow(make_agent, facts, client)
        except rpc.RemoteError as error:
            if not wire.is_over(error):
                raise
        except base.SetupError as error:
            raise role.FinalError(str(error)) from None


def join(client: rpc.Client, name: str) -> dict[str, Any]:
    """What the leader says once all hosts are there, as long as that takes."""
    life = secrets.token_hex(4)
    while True:
        with contextlib.suppress(*AWAY):  # Another leader may come.
            try:
                facts = role.await_result(client.call("join", (name, life)))
            except rpc.RemoteError as error:
                if wire.is_over(error):
                    raise
                raise base.SetupError(
                    f"there is a server, but not for hosts that learn ({error.kind}: "
                    f"{error.message}): give run.learner_addr of the training"
                ) from None
            if facts:
                return facts
        if role.wait_stop(HOLD):
            raise role.StoppedError


def follow(
    make_agent: Callable[..., Any], facts: dict[str, Any], client: rpc.Client
) -> None:
    """Carry out one order after the other until the run is over."""
    from embodied.jax import hosts

    orders = Orders(client, facts["host"])
    hosts.connect(facts["coordinator"], facts["hosts"], facts["host"])
    spaces = spacefile.decode(facts["spaces"])
    try:
        agent = make_agent(facts["config"], spaces)
    except ValueError as error:  # As if it has fewer devices than the others.
        raise base.SetupError(str(error)) from error
    follower = hosts.Follower(agent)
    for order in orders:
        follower.obey(order)
    hosts.disconnect()


class Orders(Iterator[tuple]):
    """Orders of the leader, taken by a thread that goes on while others compute.

    The process ends, whatever its main thread does, if it was asked to stop a while
    ago or its leader is another one: there is nothing to save.
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
        index, patience = 0, STOP_AFTER
        try:
            while patience > 0:
                begin = time.monotonic()
                words = self._client.call("take", (self._host, index)).result()
                if words:
                    self._queue.put(tuple(words))
                    index += 1
                if role.stopping():
                    patience -= time.monotonic() - begin
        except AWAY as error:
            role.leave(error)
        except BaseException as error:
            over = wire.is_over(error)
            self._queue.put(StopIteration() if over else error)
        else:
            role.leave(None)
