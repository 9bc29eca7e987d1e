"""Env processes that join a run which did not plan for them, and leave as they like."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import elements

from embodied import rpc
from embodied.core import base
from embodied.core.batchenv import make_batch
from embodied.core.clock import Seconds
from embodied.run import role
from embodied.run.parallel import roster, wire
from embodied.run.parallel.env import ACT_TIMEOUT, AWAY, EnvWorker

STAY_EVERY = 60.0  # Seconds between asking whether the numbers are still ours.
LEAVE_TIMEOUT = 2.0  # Seconds that saying goodbye may take.
HANG = 300.0  # Seconds for a step, or for making the environments.
assert ACT_TIMEOUT + HANG <= roster.LEASE, "a live member would lose its numbers"


class Invitation(NamedTuple):
    """How to reach a run."""

    address: str
    keys: rpc.ClientKeys | None


def greet(invitation: Invitation, spaces: dict[str, Any]) -> dict[str, Any]:
    """What the run says of itself, waiting for it as long as it takes.

    Raises `RemoteError` if the spaces do not fit or the run is over.
    """
    client = wire.reach(*invitation, "env", on_restart="fail")
    with contextlib.closing(client):
        return _ask(client, "greet", spaces)


def parallel_guest(
    make_env: Callable[[int], base.Env],
    member: str,
    count: int,
    invitation: Invitation,
    spaces: dict[str, Any],
) -> None:
    """Join a run with `count` environments, until asked to stop or the run is over."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(role.StoppedError))
        client = wire.reach(*invitation, member, on_restart="fail")
        stack.callback(client.close)
        stack.callback(_leave, client, member)
        try:
            ids, life = _ask(client, "join", member, count, spaces)
            role.beat()
            worker = EnvWorker(make_batch(make_env, ids), ids, is_eval=False)
            stack.callback(worker.close)
            guest = Guest(client, worker, (member, count, spaces))
            guest.run(life)
        except rpc.RemoteError as error:
            if not wire.is_over(error):
                raise


class Guest:
    """Exchanges observations for actions; joins anew after everything unexpected."""

    def __init__(self, client: rpc.Client, worker: EnvWorker, entry: tuple):
        self._client = client
        self._worker = worker
        self._entry = entry
        self._due_stay = Seconds(STAY_EVERY)

    def run(self, life: int) -> None:
        """Step until asked to stop; raises if the run is over."""
        self._worker.begin(life)
        action = self._worker.reset_action()
        while not role.stopping():
            rows = self._worker.step(action)
            try:
                self._keep_place()
                future = self._client.call("act", (rows,), timeout=ACT_TIMEOUT)
                action = role.await_result(future)
            except (*AWAY, PlaceLostError):
                # Whoever acts now does not know these episodes: abandon them.
                ids, life = _ask(self._client, "join", *self._entry)
                self._worker.move(ids)
                self._worker.begin(life)
                action = self._worker.reset_action()
                elements.print(f"Joined again as environments {list(ids)}.", flush=True)

    def _keep_place(self) -> None:
        if not self._due_stay():
            return
        member = self._entry[0]
        if not role.await_result(self._client.call("stay", (member,))):
            raise PlaceLostError


class PlaceLostError(Exception):
    """Others may have our numbers: we were silent for too long."""


def _ask(client: rpc.Client, method: str, *args: Any) -> Any:
    """The answer of a run, asked for until there is one."""
    while True:
        try:
            return role.await_result(client.call(method, args))
        except AWAY:
            continue


def _leave(client: rpc.Client, member: str) -> None:
    """Say goodbye; who does not hear it frees the numbers later."""
    if client.stats()["connected"]:
        client.call("leave", (member,), timeout=LEAVE_TIMEOUT).exception()
