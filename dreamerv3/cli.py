"""The console command: train, or one of the commands; mistakes become messages."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from collections.abc import Iterator, Sequence

from dreamerv3.commands.base import COMMANDS, CommandError
from dreamerv3.settings import config, flags
from dreamerv3.settings.config import ConfigError, Problem
from embodied.cluster.job import JobError
from embodied.core import extras, wrappers
from embodied.core.base import SetupError
from embodied.envs.registry import TaskError
from embodied.process.supervisor import RoleError

MOVED = ("env", "learner")  # Commands of release 0.1.
INTERRUPTED = 130  # What a shell says of a program that ended by Ctrl-C.


def cli() -> None:
    """Run what was typed."""
    with explained():
        dispatch(sys.argv[1:])


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Turn a user's mistake into a message and a non-zero exit."""
    try:
        yield
    except ConfigError as error:
        print(flags.problems_text(error.problems), file=sys.stderr)
        sys.exit(2)
    except TaskError as error:
        problem = Problem("task", error.task, error.rule, error.remedy)
        print(flags.problems_text([problem]), file=sys.stderr)
        sys.exit(2)
    except wrappers.SpaceError as error:  # Of an environment made, reset or stepped.
        print(f"dreamerv3: the environment breaks its rules\n{error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        sys.exit(2)
    except CommandError as error:
        print(f"dreamerv3 {sys.argv[1]}: {error}", file=sys.stderr)
        sys.exit(2)
    except SetupError as error:
        print(f"dreamerv3: {error}", file=sys.stderr)
        sys.exit(1)
    except RoleError as error:
        print(f"dreamerv3: the run failed, {error}", file=sys.stderr)
        for note in getattr(error, "__notes__", ()):
            print(note, file=sys.stderr)
        sys.exit(1)
    except JobError as error:
        print(f"dreamerv3: {error}", file=sys.stderr)
        sys.exit(error.code)
    except KeyboardInterrupt:
        print("dreamerv3: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # The reader went away, as in `dreamerv3 --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def dispatch(argv: Sequence[str]) -> None:
    """Run the command that the first word names, or else train."""
    word = argv[0] if argv else "--"
    if word == flags.HELP:
        of_command = len(argv) == 2 and argv[1] in COMMANDS
        dispatch([argv[1], "--help"] if of_command else ["--help", *argv[1:]])
        return
    if word in COMMANDS:
        name = word.replace("-", "_")
        module = importlib.import_module(f"dreamerv3.commands.{name}")
        module.run(argv[1:])
        return
    if word in MOVED:
        raise CommandError(f"was replaced; use: dreamerv3 {moved_to(word, argv[1:])}")
    if word == "--version":
        print(version())
        return
    near = nearest_commands(word)
    if near:
        remedy = f"did you mean dreamerv3 {' or '.join(near)}?"
        raise ConfigError([Problem(word, "", "there is no such command", remedy)])
    from dreamerv3 import main  # Imports what only training needs.

    main.main(argv[1:] if word == flags.TRAIN else argv)


def moved_to(word: str, words: Sequence[str]) -> str:
    """The command for what `dreamerv3 env` or `dreamerv3 learner` did."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--connect", "--key", "--spaces", "--task"):
        parser.add_argument(flag, nargs="?")
    given, rest = parser.parse_known_args(words)
    if given.spaces:
        return f"check-env {given.task or 'TASK'} --spaces {given.spaces}"
    found = ["join", "HOST:PORT", "--key", f"{word}.json", word]
    found += [*(["--task", given.task] if given.task else []), *rest]
    return f"{' '.join(found)}, where HOST:PORT is run.coordinator_addr of the run"


def version() -> str:
    """Name and version of the package: the whole one, or the one for environments."""
    return f"{extras.distribution()} {extras.version()}"


def nearest_commands(word: str) -> list[str]:
    """Commands that a word may stand for: those that begin like it, or look like it."""
    if not word or word.startswith("-") or word in flags.SCRIPTS:
        return []
    alike = [name for name in COMMANDS if name[:3] == word[:3]]
    return alike or config.nearest(word, COMMANDS)


if __name__ == "__main__":
    cli()
