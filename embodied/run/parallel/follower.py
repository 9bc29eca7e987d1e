"""A further host of the learner: joins a run and carries out the leader's orders."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial as bind
from typing import Any

from embodied import rpc
from embodied.core import base, runfiles, spacefile
from embodied.process.context import Context, StoppedError
from embodied.run.parallel import connections, member
from embodied.run.parallel.ensemble import ASK_EVERY, LARGEST, LostError
from embodied.run.parallel.roles import LEARNER

STOP_AFTER = 30.0  # Seconds until a follower that was asked to stop exits.


def parallel_follower(
    make_agent: Callable[[dict[str, Any], spacefile.Pair], Any],
    name: str,
    invitation: member.Invitation,
    ctx: Context | None = None,
) -> None:
    """Learn with a leader, until asked to stop or the run has ended."""
    from embodied.jax import hosts  # Before it joins, as this may take a while.

    ctx = ctx or Context()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(StoppedError))
        try:
            about = member.describe(invitation, LEARNER, ctx=ctx)
            if about["spaces"] is None:
                raise base.SetupError(f"the run has no {runfiles.SPACES}")
            entry = member.Entry(LEARNER, name)
            own = member.Member(invitation, entry, ctx, lambda: leave(ctx))
            stack.callback(own.close)
            facts, client = await_leader(own, name, invitation, ctx)
            stack.callback(client.close)
            hosts.check_versions(facts["versions"])
            make = bind(make_agent, about["config"], spacefile.decode(about["spaces"]))
            follow(make, facts, client, ctx)
        except rpc.RemoteError as error:
            if not connections.is_over(error):
                raise


def leave(ctx: Context) -> None:
    """Exit, since the run has ended; the main thread may be blocked."""
    if ctx.owns_process:
        ctx.exit(None)
    ctx.complete()


def await_leader(
    own: member.Member, name: str, invitation: member.Invitation, ctx: Context
) -> tuple[dict[str, Any], rpc.Client]:
    """Wait until the leader has all hosts; returns its facts and a client."""
    while True:
        found = own.join()
        with contextlib.suppress(member.LeaseLostError):
            client = connections.reach(
                found["learner_addr"],
                invitation.keys,
                name,
                ctx,
                keep=own.keep,
                max_bytes=LARGEST,
            )
            try:
                if facts := ask_start(client, name, found["incarnation"], own, ctx):
                    return facts, client
            except BaseException:
                client.close()
                raise
            client.close()
            # The leader chose other hosts. Rejoin, to be available to the next one.
            if ctx.wait_stop(ASK_EVERY):
                raise StoppedError


def ask_start(
    client: rpc.Client, name: str, incarnation: int, own: member.Member, ctx: Context
) -> dict[str, Any]:
    """The answer of the leader, or of the one that replaces it."""
    while True:
        with contextlib.suppress(TimeoutError):
            future = client.call("start", (name, incarnation))
            return ctx.wait(future, own.keep)


def follow(
    make_agent: Callable[[], Any],
    facts: dict[str, Any],
    client: rpc.Client,
    ctx: Context,
) -> None:
    """Carry out one order after the other until the run has ended."""
    from embodied.jax import hosts

    orders = Orders(client, facts["session"], facts["host"], ctx)
    timeouts = hosts.Timeouts(*facts["timeouts"])
    hosts.connect(facts["jax_addr"], facts["hosts"], facts["host"], timeouts)
    try:
        agent = make_agent()
    except ValueError as error:  # As if it has fewer devices than the others.
        raise base.SetupError(str(error)) from error
    follower = hosts.Follower(agent, bind(hosts.meet, timeouts.start))
    for order in orders:
        follower.obey(order)
    hosts.disconnect()


class Orders(Iterator[tuple]):
    """Orders of the leader, taken by a thread while another one computes.

    Exits the process, even if its main thread is blocked, `STOP_AFTER` seconds after a
    stop request or when the leader was replaced. There is nothing to save.
    """

    def __init__(self, client: rpc.Client, session: int, host: int, ctx: Context):
        self._client = client
        self._session = session
        self._host = host
        self._ctx = ctx
        self._queue: queue.SimpleQueue[tuple | BaseException] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="orders", daemon=True).start()

    def __next__(self) -> tuple:
        while True:
            self._ctx.beat()
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
                args = (self._session, self._host, index)
                words = self._client.call("take", args).result()
                if words:
                    self._queue.put(tuple(words))
                    index += 1
                if self._ctx.stopping():
                    patience -= time.monotonic() - begin
        except TimeoutError as error:
            self._ctx.exit(error)
        except BaseException as error:
            if isinstance(error, rpc.RemoteError) and error.kind == LostError.__name__:
                self._ctx.exit(error)
            over = connections.is_over(error)
            self._queue.put(StopIteration() if over else error)
        else:
            self._ctx.exit(None)
