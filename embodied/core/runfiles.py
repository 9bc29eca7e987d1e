"""Names of the files in a log directory, and the processes recorded there."""

from __future__ import annotations

import json
import os
import pathlib
from typing import NamedTuple

import psutil

from embodied.core import files

CONFIG = "config.yaml"  # The settings of the run.
LOCK = "run.lock"  # Held by the process that runs there.
SPACES = "spaces.json"  # Of observations and actions.
ORIGINAL = "original.json"  # The spaces of the Gymnasium environment it is trained in.
METRICS, SCORES = "metrics.jsonl", "scores.jsonl"
JOB = "job"  # Written by the command of a job on a cluster, which its node looks for.
ROLES = "roles.json"  # The processes of a parallel run.
MEMBERS = "members.json"  # Processes that joined it, and the numbers of their envs.
INCARNATION = "incarnation"  # The number of the last process that was started.
ISSUED = "issued.json"  # Numbers of the launcher's environments, and incarnations.
MEDIA, REPLAY = "media", "replay"
LIMIT = 1 << 24  # Bytes of a file of roles.
CHECKPOINTS, AGENT = "ckpt", "agent"  # A folder for all roles, with one for each.
# Errors of reading a missing or damaged file.
BROKEN = (OSError, ValueError, AttributeError, KeyError, TypeError, RecursionError)


class RoleProcess(NamedTuple):
    """A role and its process, as last recorded by the supervisor."""

    name: str
    pid: int | None
    restarts: int
    written: float  # When, in Unix seconds.

    def is_alive(self) -> bool:
        """Whether the process runs on this machine.

        A process that started after the file was written merely reuses the pid.
        """
        if not self.pid:
            return False
        try:
            process = psutil.Process(self.pid)
            running = process.status() != psutil.STATUS_ZOMBIE
            return running and process.create_time() <= self.written + 1
        except psutil.Error:
            return False


def checkpoints(logdir: str | os.PathLike[str], role: str = AGENT) -> pathlib.Path:
    """Where a role keeps its checkpoints; a serial run keeps all with the agent."""
    return pathlib.Path(logdir).expanduser() / CHECKPOINTS / role


def read_roles(path: pathlib.Path) -> list[RoleProcess]:
    """The roles in a file, in start order; empty if it is missing or invalid."""
    try:
        text, written = files.read_text(path, LIMIT), path.stat().st_mtime
        return [
            RoleProcess(name, role["pid"], role["restarts"], written)
            for name, role in json.loads(text).items()
        ]
    except BROKEN:
        return []
