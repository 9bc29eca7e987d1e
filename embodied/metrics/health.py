"""Which processes of a run live and how often each was restarted."""

from __future__ import annotations

import json
import pathlib
import re
from typing import NamedTuple

import psutil


class Group(NamedTuple):
    """Roles of one kind, such as all environments."""

    name: str
    alive: int
    total: int
    restarts: int


class Roles:
    """Reads the status file that the supervisor of a run on this machine keeps.

    A file from before this process is that of an earlier run: whoever supervises this
    process writes it after starting it.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._start = psutil.Process().create_time()

    def groups(self) -> list[Group]:
        """Roles by kind, in the order in which they were started."""
        try:
            if self._path.stat().st_mtime < self._start - 1:
                return []
            roles = json.loads(self._path.read_text())
        except FileNotFoundError:
            return []  # It is written once all roles are started.
        kinds: dict[str, list[tuple[bool, int]]] = {}
        for name, role in roles.items():
            kind = re.sub(r"\d+$", "", name)
            kinds.setdefault(kind, []).append((_alive(role["pid"]), role["restarts"]))
        return [
            Group(kind, sum(a for a, _ in found), len(found), sum(r for _, r in found))
            for kind, found in kinds.items()
        ]


def _alive(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE if pid else False
    except psutil.Error:
        return False
