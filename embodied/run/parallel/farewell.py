"""The end of a run with roles placed by hand: somebody has to tell them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from typing import Any

import elements

from embodied import rpc
from embodied.core import base
from embodied.run import role
from embodied.run.parallel import ensemble, roster, wire

PATIENCE = 5.0  # Seconds in which roles elsewhere may hear that the run is over.
# The same for hosts that learn: whoever lost its leader first starts again.
LEARNERS_PATIENCE = 20.0
# Seconds for the answer to `end`, longer than the other side waits before it gives up.
ANSWER = wire.END_TIMEOUT + PATIENCE


def longest(args: elements.Config) -> float:
    """Seconds that all of a farewell may take, with some to end itself."""
    roles = args.remote_replay + args.remote_logger
    hosts = LEARNERS_PATIENCE if args.learners > 1 else 0.0
    return 2 * PATIENCE + hosts + roles * (PATIENCE + ANSWER)


def parallel_farewell(args: elements.Config, by_hand: bool = True) -> None:
    """Wait for the end of the run, then tell the roles that are elsewhere.

    Nothing is said of environments that did not hear it, if none is there `by_hand`.
    The launcher stops this role after the agent, whose address it takes over to
    answer the environments, and before what is left of the run on this machine.
    """
    while not role.wait_stop(1.0):
        role.beat()
    by_hand = by_hand or bool(roster.read(roster.location(args)).members)
    if not dismiss_envs(args) and by_hand:
        _print(f"not all environments asked at {args.actor_addr}")
    if args.learners > 1 and not dismiss_learners(args):
        _print(f"not all learners asked at {args.learner_addr}", LEARNERS_PATIENCE)
    if args.remote_replay:
        end_role("replay", args.replay_addr, args)
    if args.remote_logger:
        end_role("logger", args.logger_addr, args)


def dismiss_envs(args: elements.Config, patience: float = PATIENCE) -> bool:
    """Answer whoever asks for an action that the run is over; whether all did."""
    path = roster.location(args)
    members, placed = roster.read(path)
    amount = sum(map(len, members.values()))
    if args.remote_envs and (placed or not members):
        amount += args.envs + args.eval_envs
    if not amount:
        return True
    doorman = Doorman(amount, members)
    server = rpc.Server(args.actor_addr, "actor", keys=wire.server_keys(args))
    for name in ("act", "enroll", "greet", "join", "stay", "leave"):
        server.bind(name, getattr(doorman, name))
    server.start(block=False)
    try:
        return doorman.wait(patience)
    finally:
        server.close()
        path.unlink(missing_ok=True)  # Who comes to the next run joins anew.


def dismiss_learners(
    args: elements.Config, patience: float = LEARNERS_PATIENCE
) -> bool:
    """Answer hosts that their leader did not tell of the end; whether all asked."""
    path = ensemble.location(args)
    if not path.exists():
        return True
    doorman = LearnerDoorman(json.loads(path.read_text()))
    server = rpc.Server(args.learner_addr, "learner", keys=wire.server_keys(args))
    server.bind("join", doorman.join)
    server.start(block=False)
    try:
        return doorman.wait(patience)
    finally:
        server.close()
        path.unlink()


class LearnerDoorman:
    """Sends hosts home that learned with the run."""

    def __init__(self, amount: int):
        self._amount = amount
        self._gone: set[str] = set()
        self._all = threading.Event()

    def join(self, name: str, life: str) -> None:
        """The answer to a host that lost its leader."""
        self._gone.add(name)
        if len(self._gone) >= self._amount:
            self._all.set()
        raise wire.RunOverError("the run is over")

    def wait(self, timeout: float) -> bool:
        """Wait until all hosts have asked."""
        return self._all.wait(timeout)


class Doorman:
    """Sends environments home and knows when all have gone."""

    def __init__(self, amount: int, members: roster.Members):
        self._amount = amount
        self._members = members
        self._gone: set[int] = set()
        self._all = threading.Event()

    def act(self, rows: base.Batch) -> None:
        """The answer to a request for actions."""
        self._send_home(rows[wire.ENVID].tolist())

    def join(self, member: str, count: int, spaces: dict[str, Any]) -> None:
        """The answer to a member that noticed the end of the actor."""
        self._send_home(self._members.get(member, ()))

    def stay(self, member: str) -> None:
        """The answer to a member that wants to go on."""
        self._send_home(self._members.get(member, ()))

    def leave(self, member: str) -> None:
        """A member leaves by itself."""
        self._count(self._members.get(member, ()))

    def enroll(self) -> None:
        """The answer to an environment that is about to begin."""
        self._send_home(())

    def greet(self, spaces: dict[str, Any]) -> None:
        """The answer to environments that are about to join."""
        self._send_home(())

    def _send_home(self, envids: Iterable[int]) -> None:
        self._count(envids)
        raise wire.RunOverError("the run is over")

    def _count(self, envids: Iterable[int]) -> None:
        self._gone.update(envids)
        if len(self._gone) >= self._amount:
            self._all.set()

    def wait(self, timeout: float) -> bool:
        """Wait until all environments have asked."""
        return self._all.wait(timeout)


def end_role(name: str, address: str, args: elements.Config) -> None:
    """Tell a role that the run is over, and wait until it has saved everything."""
    keys = wire.client_keys(args)
    try:
        client = rpc.Client(address, "farewell", keys=keys, connect_timeout=PATIENCE)
    except (TimeoutError, rpc.HandshakeError):
        _print(f"the {name} at {address} did not answer")
        return
    try:
        # It may be gone before its answer has arrived, and that is fine.
        error = client.call("end", timeout=ANSWER).exception()
    finally:
        client.close()
    if isinstance(error, rpc.RemoteError):
        text = f"The {name} at {address} did not end well: {error.kind}"
        elements.print(f"{text}: {error.message}", color="yellow", flush=True)


def _print(text: str, patience: float = PATIENCE) -> None:
    elements.print(
        f"Elsewhere {text} within {patience:g} s: end by Ctrl-C what still runs there.",
        color="yellow",
        flush=True,
    )
