"""What a machine of a cluster runs: one env process, under a supervisor of its own.

A task of the cluster starts this module as a program. So the environment shares its
process neither with threads nor with signal handlers of the cluster's software.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import traceback

from embodied.core import parcel, process
from embodied.run import child
from embodied.run.parallel import placed
from embodied.run.supervisor import ASKED, LOST, RoleError

LEFT = 4  # Exit code of a program that was told to stop.


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
    code = done.returncode
    if code == LEFT or code < 0:
        raise LeftError(f"its program ended with exit code {code}")
    if code:
        text = text or f"its program ended with exit code {code}"
        raise FailedError(f"On {socket.gethostname()}: {text}")


def main(parent: int, words: int) -> int:
    """Run the role that comes by standard input; end with whoever started this.

    Last words go to the file `words`. Returns 0 only if the run is over.
    """
    process.die_with(parent)
    try:
        reason = placed.supervise([parcel.loads(sys.stdin.buffer.read())])
    except RoleError as error:
        os.write(words, child.last_words(str(error)).encode())
        return 1
    except Exception:
        os.write(words, child.last_words(traceback.format_exc()).encode())
        return 1
    return LEFT if reason in (ASKED, LOST) else 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
