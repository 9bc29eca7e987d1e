"""The coordinator: the address at which other processes join a run."""

from __future__ import annotations

import contextlib
import pathlib
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import elements

from embodied import rpc
from embodied.core import runfiles, spacefile
from embodied.run import restore
from embodied.run.parallel import actor, run_keys
from embodied.run.parallel.membership import ENV_LEASE, Members
from embodied.run.parallel.roles import AGENT, ENV, LEARNER, LOGGER, REPLAY
from embodied.run.settings import RunSettings

SOCKET = "coordinator.sock"  # In the log directory, unless an address is given.
METHODS = ("describe", "join", "lease", "leave", "learners")
# Roles that each key permits; without keys, all are permitted.
ROLES = {
    run_keys.ENV: (ENV,),
    run_keys.LEARNER: (LEARNER,),
    run_keys.CORE: (AGENT, REPLAY, LOGGER),
}
PATIENCE = 5.0  # Seconds in which members may learn that the run has ended.
POLL = 0.2  # Seconds between looks whether to hurry.


class MismatchError(Exception):
    """The spaces of a joining environment differ from those of the run."""


class UnexpectedError(Exception):
    """The run does not expect another process of this role."""


class Coordinator:
    """Tells joining processes what they need to know and when the run has ended.

    Every call carries the name of the caller's key; it is empty if the run has no keys.
    All calls may be repeated safely.
    """

    def __init__(
        self,
        args: RunSettings,
        members: Members,
        spaces: spacefile.Pair | None = None,
    ):
        self.members = members
        self._args = args
        self._spaces = spaces
        self._sessions: dict[int, int] = {}  # Incarnation of a host to its leader.

    def describe(
        self, key: str, role: str, spaces: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Facts about the run for a role, before it joins.

        Raises `MismatchError` if the spaces of an environment differ from the run's.
        """
        self._check(key, role, spaces)
        self._check_expected(role)
        self.members.check_open(role)
        config = restore.meta(self._args)["config"]
        if role == ENV:
            facts = {name: config[name] for name in ("seed", "task") if name in config}
            return {**facts, "rows": actor.batch_size(self._args)}
        flat = elements.Config(self._args.config).flat
        return {"config": flat, "spaces": self._encoded(), **self._addresses(role)}

    def join(
        self,
        key: str,
        role: str,
        name: str,
        count: int = 0,
        spaces: Mapping[str, Any] | None = None,
        numbers: Sequence[int] | None = None,
    ) -> dict[str, Any]:
        """Admit a member; returns its numbers, incarnation and what it connects to."""
        self._check(key, role, spaces)
        self._check_expected(role)
        if numbers is not None and not self._args.remote_envs:
            raise UnexpectedError(
                f"'{name}' wants the numbers {list(numbers)}, which environments of "
                "the launcher have; start the run with --run.remote_envs True"
            )
        member = self.members.join(role, name, count, numbers)
        return {
            "numbers": member.numbers,
            "incarnation": member.incarnation,
            "lease": self.members.leases[role],
            **self._addresses(role),
        }

    def lease(self, key: str, role: str, name: str) -> bool:
        """Renew the lease of a member; False if it has to join again.

        Raises `RunOverError` if the run has ended.
        """
        self._check(key, role)
        return self.members.renew(role, name)

    def leave(self, key: str, role: str, name: str) -> None:
        """Remove a member."""
        self._check(key, role)
        self.members.leave(role, name)

    def learners(self, key: str, session: int, count: int) -> list:
        """Hosts of a leader, by name and incarnation, and how many others wait.

        A leader is assigned `count` hosts once that many are waiting, and keeps them.
        A host of an earlier leader must restart and rejoin first.
        """
        self._check(key, AGENT)
        joined = self.members.joined(LEARNER)
        waiting = {n: i for n, i in joined.items() if i not in self._sessions}
        if session not in self._sessions.values() and len(waiting) >= count:
            chosen = list(waiting.items())[:count]
            self._sessions |= {incarnation: session for _, incarnation in chosen}
        own = {n: i for n, i in joined.items() if self._sessions.get(i) == session}
        return [own, len(waiting)]

    def end(self, role: str, hurry: Callable[[], bool] = bool) -> bool:
        """End the members of a role; returns whether all acknowledged in time."""
        self.members.end(role)
        deadline = time.monotonic() + PATIENCE
        told = False
        while not told and time.monotonic() < deadline and not hurry():
            told = self.members.wait_told(role, POLL)
        return told

    def _check(
        self, key: str, role: str, spaces: Mapping[str, Any] | None = None
    ) -> None:
        """Raise if a key does not allow a role, or the spaces are not the run's."""
        if key and role not in ROLES.get(key, ()):
            allowed = ", ".join(ROLES.get(key, ())) or "nothing"
            raise PermissionError(
                f"the key {key}.json does not permit {role}, only {allowed}"
            )
        if spaces is not None and self._spaces is not None:
            for found in spacefile.differences(self._spaces, spacefile.decode(spaces)):
                raise MismatchError(f"its environment is not that of the run: {found}")

    def _check_expected(self, role: str) -> None:
        """Raise if the run has no place for a role."""
        settings = {
            REPLAY: ("remote_replay True", self._args.remote_replay),
            LOGGER: ("remote_logger True", self._args.remote_logger),
            LEARNER: ("learners 2", self._args.learners > 1),
        }
        setting, expected = settings.get(role, ("", True))
        if not expected:
            raise UnexpectedError(
                f"the run has a {role} of its own and expects no other; start it with "
                f"--run.{setting}"
            )

    def _encoded(self) -> dict[str, Any] | None:
        return spacefile.encode(*self._spaces) if self._spaces else None

    def _addresses(self, role: str) -> dict[str, str]:
        """What a role needs to open or to connect to servers, by setting."""
        names = {
            ENV: ("actor_addr", "transport"),
            LEARNER: ("learner_addr",),
            REPLAY: ("replay_addr", "logger_addr"),
            LOGGER: ("logger_addr",),
        }
        return {name: getattr(self._args, name) for name in names.get(role, ())}


def own_socket(args: RunSettings) -> str:
    """The address of the coordinator; without one, a socket in the log directory.

    Falls back to a temporary socket if the file system does not support sockets or the
    path is too long.
    """
    if args.coordinator_addr != rpc.AUTO:
        return args.coordinator_addr
    logdir = pathlib.Path(args.logdir).expanduser().absolute()
    logdir.mkdir(parents=True, exist_ok=True)
    probe = logdir / f"{SOCKET}.{secrets.token_hex(4)}"
    try:
        with socket.socket(socket.AF_UNIX) as test:
            test.bind(str(probe))
        probe.unlink()
    except OSError:
        return rpc.AUTO
    return f"ipc://{logdir / SOCKET}"


@contextlib.contextmanager
def serve(args: RunSettings, issue: Callable[[], int]) -> Iterator[Coordinator]:
    """Serve a coordinator at `coordinator_addr`; `issue` numbers incarnations."""
    logdir = pathlib.Path(args.logdir).expanduser()
    leases = {ENV: ENV_LEASE, LEARNER: args.learner_timeout}
    first = args.envs + args.eval_envs
    members = Members(logdir / runfiles.MEMBERS, first, issue, leases)
    coordinator = Coordinator(args, members, spacefile.read(logdir))
    keys = run_keys.server_keys(args, run_keys.ENV, run_keys.LEARNER)
    server = rpc.Server(args.coordinator_addr, "coordinator", keys=keys)
    for name in METHODS:
        server.bind(name, getattr(coordinator, name), identify=True)
    server.start(block=False)
    try:
        yield coordinator
    finally:
        server.close()
