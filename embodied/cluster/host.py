"""What a machine of a cluster runs: one env process, under a supervisor of its own.

A task of the cluster starts this module as a program. So the environment shares its
process neither with threads nor with signal handlers of the cluster's software.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from embodied.core import parcel
from embodied.run import child
from embodied.run.parallel import placed
from embodied.run.supervisor import ASKED, LOST, RoleError


class FailedError(Exception):
    """The env process failed more often than it may; holds its last traceback."""


class LeftError(Exception):
    """The env process left a run that goes on, since its machine has to stop."""


def run(order: bytes) -> None:
    """The task: run a role, which is in the parcel, until its run is over."""
    with tempfile.TemporaryFile() as words:
        numbers = [os.getpid(), words.fileno()]
        command = [sys.executable, "-m", __name__, *map(str, numbers)]
        fds = [words.fileno()]
        done = subprocess.run(command, input=order, pass_fds=fds, check=False)
        words.seek(0)
        text = words.read().decode()
    if text:
        raise FailedError(text)
    if done.returncode:
        raise LeftError(f"it ended with exit code {done.returncode}")


def main(parent: int, words: int) -> None:
    """Run the role that comes by standard input; end with whoever started this.

    Last words go to the file `words`. The exit code is 0 only if the run is over.
    """
    child.die_with(parent)
    role = parcel.loads(sys.stdin.buffer.read())
    try:
        reason = placed.supervise([role])
    except RoleError as error:
        os.write(words, str(error).encode()[-child.LAST_WORDS :])
        sys.exit(1)
    sys.exit(reason in (ASKED, LOST))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
