"""Runs one supervised env process on a machine of a cluster.

A task of the cluster starts this module as a program, so that the environment does not
share a process with the threads and signal handlers of the cluster software.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import traceback

from embodied.core import parent_death, pickling
from embodied.process import child
from embodied.process.supervisor import ASKED, LOST, RoleError
from embodied.run.parallel import placed

LEFT = 4  # Exit code of a program that was asked to stop.


class FailedError(Exception):
    """The env process failed more often than it may; holds its last traceback."""


class LeftError(Exception):
    """The env process left the run because its machine is shutting down."""


def run(order: bytes) -> None:
    """The task: run a pickled role until its run has ended."""
    with tempfile.TemporaryFile() as words:
        numbers = [os.getpid(), words.fileno()]
        command = [sys.executable, "-m", __name__, *map(str, numbers)]
        fds = [words.fileno()]
        done = subprocess.run(command, input=order, pass_fds=fds, check=False)
        words.seek(0)
        text = words.read().decode()
    code = done.returncode
    if code == LEFT or code < 0:
        raise LeftError(f"its program ended with exit code {code}")
    if code:
        text = text or f"its program ended with exit code {code}"
        raise FailedError(f"On {socket.gethostname()}: {text}")


def main(parent: int, words: int) -> int:
    """Run the role read from standard input; exit with the parent process.

    Error messages go to the descriptor `words`. Returns 0 only if the run has ended.
    """
    parent_death.die_with(parent)
    try:
        reason = placed.supervise([pickling.loads(sys.stdin.buffer.read())])
    except RoleError as error:
        os.write(words, child.shorten(str(error)).encode())
        return 1
    except Exception:
        os.write(words, child.shorten(traceback.format_exc()).encode())
        return 1
    return LEFT if reason in (ASKED, LOST) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
