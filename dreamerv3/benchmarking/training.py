"""The program of a job: an ordinary training that ends with the runner's process."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Sequence

from dreamerv3.cli import cli
from embodied.core import parent_death

LOG = "job.log"  # What the training printed, in its log directory.
LINES = 12  # Of it that are shown if it failed.


def start(
    words: Sequence[str], logdir: pathlib.Path, **environ: str
) -> subprocess.Popen[bytes]:
    """Start the program; it is killed when the thread that calls this ends."""
    logdir.mkdir(parents=True, exist_ok=True)
    program = [sys.executable, "-m", __name__, str(os.getpid())]
    with (logdir / LOG).open("ab") as file:
        return subprocess.Popen(
            [*program, *words],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only the runner.
            env={**os.environ, **environ},
        )


def last_lines(logdir: pathlib.Path) -> str:
    """The end of what a job printed."""
    lines = (logdir / LOG).read_text(errors="replace").splitlines()
    return "\n".join(lines[-LINES:])


def main() -> None:
    """Train with the flags behind the number of the parent process."""
    parent_death.die_with(int(sys.argv[1]))
    sys.argv = ["dreamerv3", *sys.argv[2:]]
    cli()


if __name__ == "__main__":
    main()
