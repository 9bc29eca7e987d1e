"""Members of a run: numbers of their environments, incarnations and leases."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import elements

from embodied.core import disk, files, formats
from embodied.run.parallel import connections
from embodied.run.parallel.roles import ENV

VERSION = 1  # Of the file.
ENV_LEASE = 300.0  # Seconds; an environment may be suspended for a while.
MAX_COUNT = 1024  # Environments of one member.
MAX_MEMBERS = 4096
MAX_NAME = 200  # Characters.
LOOK_EVERY = 1.0  # Seconds between looks for expired leases.


class LimitError(ValueError):
    """A request exceeds the limits of a member."""


@dataclasses.dataclass
class Member:
    """A process of another supervisor that takes part in the run."""

    role: str
    numbers: list[int]  # Of its environments.
    heard: float  # When it last renewed its lease.
    incarnation: int | None = None  # None if it joined an earlier launcher.
    told: bool = False  # Whether it knows that the run has ended.


class Members:
    """Processes of other supervisors that take part in a run.

    Joining, renewing and leaving are idempotent by member name. Name and environment
    numbers survive a restart of the process; the file preserves them across launchers.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        first: int,
        issue: Callable[[], int],
        leases: Mapping[str, float],
        now: Callable[[], float] = time.monotonic,
    ):
        self._path = pathlib.Path(path)
        self._first = first  # Smaller numbers are those of the run's own environments.
        self._issue = issue
        self.leases = leases  # Seconds after which a silent member is gone, by role.
        self._now = now
        self._next_look = now()
        self._changed = threading.Condition()
        self._ended: set[str] = set()  # Roles that have to leave.
        self._members = {
            name: Member(ENV, numbers, now())
            for name, numbers in read(path).items()
            if min(numbers) >= first
        }
        if self._path.exists():
            self._write()  # Without the incarnations that an earlier launcher issued.

    def join(
        self, role: str, name: str, count: int = 0, numbers: Sequence[int] | None = None
    ) -> Member:
        """Admit a member with `count` environments.

        Assigns unused environment numbers, or the given `numbers` if the launcher
        reserved them for this member. Every join issues a new incarnation. Raises
        `RunOverError` if the run has ended.
        """
        self._check_limits(role, name, count)
        with self._changed:
            known = self._members.get(name)
            if role in self._ended:
                self._tell(known)
            self._drop_silent()
            if known is None and len(self._members) >= MAX_MEMBERS:
                raise LimitError(
                    f"'{name}' joins {MAX_MEMBERS} other members, the limit"
                )
            numbers = self._find_numbers(name, count, numbers)
            member = Member(role, numbers, self._now(), self._issue())
            self._members.pop(name, None)  # The newest is the last one.
            self._members[name] = member
            try:
                self._store()
            except OSError:
                del self._members[name]
                if known:
                    self._members[name] = known
                raise
            return member

    def renew(self, role: str, name: str) -> bool:
        """Renew the lease of a member; False if it has to join again.

        Raises `RunOverError` if the run has ended.
        """
        with self._changed:
            member = self._members.get(name)
            if role in self._ended:
                self._tell(member)
            self._drop_silent()
            member = self._members.get(name)
            if member is None or member.role != role or member.incarnation is None:
                return False
            member.heard = self._now()
            return True

    def leave(self, role: str, name: str) -> None:
        """Remove a member and free its numbers."""
        with self._changed:
            member = self._members.get(name)
            if member and member.role == role:
                del self._members[name]
                self._write()
                self._changed.notify_all()

    def joined(self, role: str) -> dict[str, int]:
        """Names and incarnations of members, in the order in which they joined."""
        with self._changed:
            self._drop_silent()
            return {
                name: member.incarnation
                for name, member in self._members.items()
                if member.role == role and member.incarnation is not None
            }

    def end(self, role: str) -> None:
        """Let members learn that the run has ended."""
        with self._changed:
            self._ended.add(role)

    def check_open(self, role: str) -> None:
        """Raise `RunOverError` if the run has ended."""
        if role in self._ended:
            self._tell(None)

    def wait_told(self, role: str, timeout: float) -> bool:
        """Wait until all members have left or know that the run has ended."""
        with self._changed:
            self._drop_silent()
            return self._changed.wait_for(lambda: self._all_told(role), timeout)

    def clear(self) -> None:
        """Remove the file, so that the next run starts without members."""
        self._path.unlink(missing_ok=True)

    def _check_limits(self, role: str, name: str, count: int) -> None:
        if role not in self.leases:
            roles = [*self.leases]
            raise LimitError(f"'{role}' is no role of members; those are {roles}")
        if type(name) is not str or len(name) > MAX_NAME or type(count) is not int:
            raise LimitError(
                f"a member has a name of up to {MAX_NAME} characters and a whole "
                "number of environments"
            )
        least = 1 if role == ENV else 0
        if not least <= count <= MAX_COUNT:
            raise LimitError(
                f"'{name}' joins with {count} environments; a member may have "
                f"{least} to {MAX_COUNT}"
            )

    def _find_numbers(
        self, name: str, count: int, wanted: Sequence[int] | None
    ) -> list[int]:
        """The member's numbers if it has as many, else the smallest free ones."""
        known = self._members.get(name)
        if wanted is not None:
            own = range(self._first)
            if len(wanted) != count or not all(number in own for number in wanted):
                raise LimitError(
                    f"'{name}' wants numbers {list(wanted)} for {count} environments; "
                    f"those of the run are 0 to {self._first - 1}"
                )
            return list(wanted)
        if known and len(known.numbers) == count and self._are_own(known.numbers):
            return known.numbers
        others = (m.numbers for m in self._members.values() if m is not known)
        taken = set(itertools.chain.from_iterable(others))
        free = (i for i in itertools.count(self._first) if i not in taken)
        return list(itertools.islice(free, count))

    def _are_own(self, numbers: Sequence[int]) -> bool:
        """Whether numbers were issued here, not given by a member."""
        return min(numbers, default=self._first) >= self._first

    def _drop_silent(self) -> None:
        """Remove members whose lease has expired; looks once a second."""
        now = self._now()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_EVERY
        silent = [
            name
            for name, member in self._members.items()
            if member.heard < now - self.leases[member.role]
        ]
        for name in silent:
            del self._members[name]
        if silent:
            self._write()

    def _tell(self, member: Member | None) -> None:
        if member:
            member.told = True
            self._changed.notify_all()
        raise connections.RunOverError("the run has ended")

    def _all_told(self, role: str) -> bool:
        # Members of an earlier launcher that have not come back are not waited for.
        joined = [m for m in self._members.values() if m.incarnation is not None]
        return all(m.told for m in joined if m.role == role)

    def _write(self) -> None:
        files.write_status(self._path, self._content())

    def _store(self) -> None:
        """Write the file, which the actor relies on; raises if the disk is full."""
        content = self._content()
        try:
            files.write_text(self._path, content)
        except OSError as error:
            if not disk.is_full(error):
                raise
            what = "the numbers of a member"
            raise disk.full_error(self._path.parent, len(content), what) from error

    def _content(self) -> str:
        envs = {n: m for n, m in self._members.items() if m.role == ENV}
        tree = {
            formats.VERSION: VERSION,
            "members": {name: member.numbers for name, member in envs.items()},
            "incarnations": {name: member.incarnation for name, member in envs.items()},
        }
        return json.dumps(tree, indent=1) + "\n"


def read(path: str | os.PathLike) -> dict[str, list[int]]:
    """Members in a file and the numbers of their environments; none without a file.

    A damaged file is reported: its members get numbers again when they join again.
    """
    try:
        return _load(path)["members"]
    except formats.DAMAGED as error:
        text = f"{path} is damaged ({formats.one_line(error)}): members join anew."
        elements.print(text, color="yellow", flush=True)
        return {}


def read_holders(path: str | os.PathLike) -> dict[int, int]:
    """Numbers of the members' environments, and the incarnations that have them.

    None in a damaged file: steps are rejected until a member joins again.
    """
    try:
        found = _load(path)
    except formats.DAMAGED:
        return {}
    return {
        number: incarnation
        for name, incarnation in found.get("incarnations", {}).items()
        for number in found["members"][name]
        if incarnation is not None  # It joined an earlier launcher, and joins again.
    }


def _load(path: str | os.PathLike) -> dict[str, Any]:
    try:
        found = formats.read_json(path, VERSION)
    except FileNotFoundError:
        return {"members": {}}
    for numbers in found["members"].values():
        if not numbers or not all(type(number) is int for number in numbers):
            raise ValueError(f"{numbers} are no numbers of environments")
    return found
