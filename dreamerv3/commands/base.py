"""The list of commands, and what they share."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# A command's module is dreamerv3.commands.NAME, with _ for -. It is imported only when
# the command runs, so that a machine needs only that command's packages.
COMMANDS: dict[str, str] = {
    "keys": "Make the keys of a run over a network.",
    "view": "Look at runs in the browser, also while they train.",
    "plot": "Draw learning curves of many runs and seeds into a file.",
    "report": "Write one HTML file about a run, to send to someone.",
    "benchmark": "Train on a suite with several seeds, over published curves.",
    "eval": "Play episodes with a trained agent: mean score, interval, video.",
    "play": "Watch a trained agent act, live in the browser.",
    "export": "Write a trained policy to one file that needs only JAX.",
    "convert": "Convert a checkpoint of the public DreamerV3.",
    "join": "Join a run of another machine: environments, replay, logger, learner.",
    "check-env": "Try out an environment and say what is wrong with it.",
    "doctor": "Check this machine: packages, devices, memory, disk, OpenGL, keys.",
    "envs": "List the suites, what is installed, and how to install the rest.",
    "completion": "Print a script that completes commands and keys in a shell.",
}


class CommandError(Exception):
    """A command failed for the reason in the message."""


def listen(make_server: Callable[[int], T], port: int) -> T:
    """A server at a port, or an error that says what to do."""
    try:
        return make_server(port)
    except (OSError, OverflowError) as error:
        raise CommandError(
            f"cannot listen on port {port} ({error}); "
            "give another one with --port, or --port 0 for any free one"
        ) from error


def run_module(path: str) -> None:
    """Run the command of a module that was started as a program."""
    from dreamerv3.cli import cli  # Imports this module.

    sys.argv.insert(1, pathlib.Path(path).stem.replace("_", "-"))
    cli()
