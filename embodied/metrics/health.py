"""Which processes of a run are alive and how often each was restarted."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

import psutil

from embodied.core.runfiles import RoleProcess, read_roles


class Group(NamedTuple):
    """Roles of one kind, such as all environments."""

    name: str
    alive: int
    total: int
    restarts: int


class Roles:
    """Reads the status file that the supervisor of a run on this machine keeps.

    A file older than this process belongs to an earlier run: the supervisor writes the
    file after it has started its roles.
    """

    def __init__(self, path: pathlib.Path):
        self._path = path
        self._start = psutil.Process().create_time()

    def groups(self) -> list[Group]:
        """Roles by kind, in the order in which they were started."""
        try:
            if self._path.stat().st_mtime < self._start - 1:
                return []
        except FileNotFoundError:
            return []  # It is written once all roles are started.
        kinds: dict[str, list[RoleProcess]] = {}
        for role in read_roles(self._path):
            kinds.setdefault(re.sub(r"\d+$", "", role.name), []).append(role)
        return [_group(kind, roles) for kind, roles in kinds.items()]


def _group(kind: str, roles: list[RoleProcess]) -> Group:
    alive = sum(role.is_alive() for role in roles)
    return Group(kind, alive, len(roles), sum(role.restarts for role in roles))
