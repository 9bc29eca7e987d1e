"""Environments that come and go: who is there, and which numbers their envs have."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import elements

from embodied.core import spacefile

FILE = "members.json"  # In the log directory.
# Seconds after which the numbers of a silent member are free again: longer than one
# waits for an action and is then allowed to take for a step.
LEASE = 900.0
Members = dict[str, list[int]]


class MismatchError(Exception):
    """The environments of a member are not those that the run was started with."""


class Attendance(NamedTuple):
    """Environments elsewhere that a run has seen."""

    members: Members
    placed: bool  # Whether also some that were placed by hand.


class Roster:
    """Gives members numbers for their environments that nobody else has.

    A member is one env process; its name stays the same when it is restarted, and so
    do its numbers. The file lets the next actor know them, too.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        first: int,
        now: Callable[[], float] = time.monotonic,
    ):
        self._path = pathlib.Path(path)
        self._first = first  # Smaller numbers are those of the run's own environments.
        self._now = now
        self._lock = threading.Lock()
        found = read(path)
        self._placed = found.placed
        self._members = {
            name: ids for name, ids in found.members.items() if min(ids) >= first
        }
        self._heard = dict.fromkeys(self._members, now())

    def join(self, member: str, count: int) -> list[int]:
        """Numbers for `count` environments; the same ones if the member has them."""
        if count < 1:
            raise ValueError(f"'{member}' joins with {count} environments")
        with self._lock:
            changed = self._drop_silent()
            self._heard[member] = self._now()
            if len(self._members.get(member, ())) != count:
                self._members.pop(member, None)
                taken = set(itertools.chain.from_iterable(self._members.values()))
                free = (i for i in itertools.count(self._first) if i not in taken)
                self._members[member] = list(itertools.islice(free, count))
                changed = True
            if changed:
                self._write()
            return self._members[member]

    def stay(self, member: str) -> bool:
        """Keep the numbers of a member; False if they are no longer its own."""
        with self._lock:
            if member in self._members:
                self._heard[member] = self._now()
            return member in self._members

    def leave(self, member: str) -> None:
        """Free the numbers of a member."""
        with self._lock:
            self._heard.pop(member, None)
            if self._members.pop(member, None):
                self._write()

    def __len__(self) -> int:
        """Environments that are there."""
        with self._lock:
            return sum(map(len, self._members.values()))

    def note_placed(self) -> None:
        """Remember that environments which were placed by hand are there, too."""
        with self._lock:
            if not self._placed:
                self._placed = True
                self._write()

    def _drop_silent(self) -> bool:
        """Free the numbers of whoever is gone; whether there was somebody."""
        limit = self._now() - LEASE
        silent = [m for m in self._members if self._heard[m] < limit]
        for member in silent:
            del self._members[member], self._heard[member]
        return bool(silent)

    def _write(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self._path.with_name(self._path.name + ".new")
        found = Attendance(self._members, self._placed)
        temporary.write_text(json.dumps(found._asdict(), indent=1) + "\n")
        temporary.rename(self._path)


def read(path: str | os.PathLike) -> Attendance:
    """Who is there according to a file; nobody if there is none."""
    try:
        return Attendance(**json.loads(pathlib.Path(path).read_text()))
    except FileNotFoundError:
        return Attendance({}, False)


def location(args: elements.Config) -> pathlib.Path:
    """Where a run keeps its members."""
    return pathlib.Path(args.logdir).expanduser() / FILE


class Reception(NamedTuple):
    """What the actor answers to environments that want to join."""

    roster: Roster
    enroll: Callable[[], int]  # The number of a life; see `lives`.
    spaces: Mapping[str, Any]  # As `spacefile.encode` makes them.
    facts: Mapping[str, Any]  # Of the run, for whoever is about to join.

    def enroll_placed(self) -> int:
        """The number of a life of an environment that was placed by hand."""
        self.roster.note_placed()
        return self.enroll()

    def greet(self, spaces: Mapping[str, Any]) -> dict[str, Any]:
        """What to know before joining; raises if the spaces are not those of the run.

        Nothing is given away yet.
        """
        compare(spaces, self.spaces)
        return dict(self.facts)

    def join(self, member: str, count: int, spaces: Mapping[str, Any]) -> list:
        """The numbers of a member's environments, and that of its life."""
        compare(spaces, self.spaces)
        return [self.roster.join(member, count), self.enroll()]


def compare(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Raise with the first key whose space differs."""
    pairs = spacefile.decode(ours), spacefile.decode(theirs)
    for found in spacefile.differences(*pairs, logs=True):
        raise MismatchError(f"it is not the environment of the run, {found}")
