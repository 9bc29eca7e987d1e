"""The console command: train, or one of the commands; mistakes become messages."""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import sys
from collections.abc import Sequence

from dreamerv3 import config, flags
from dreamerv3.commands.base import COMMANDS, CommandError
from dreamerv3.config import ConfigError, Problem
from embodied.core import wrappers
from embodied.core.base import SetupError
from embodied.envs.registry import TaskError
from embodied.run.supervisor import RoleError

INTERRUPTED = 130  # What a shell says of a program that ended by Ctrl-C.


def cli() -> None:
    """Run what was typed: a user's mistake is a message and a non-zero exit."""
    try:
        dispatch(sys.argv[1:])
    except ConfigError as error:
        print(flags.problems_text(error.problems), file=sys.stderr)
        sys.exit(2)
    except TaskError as error:
        problem = Problem("task", error.task, error.rule, error.remedy)
        print(flags.problems_text([problem]), file=sys.stderr)
        sys.exit(2)
    except wrappers.SpaceError as error:  # Of an environment made or reset.
        remedy = "dreamerv3 check-env TASK finds all of what is wrong with it"
        problem = Problem("task", "", str(error), remedy)
        print(flags.problems_text([problem]), file=sys.stderr)
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
    except KeyboardInterrupt:
        print("dreamerv3: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # The reader went away, as in `dreamerv3 --help | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def dispatch(argv: Sequence[str]) -> None:
    """A command if the first word names one, else a training script."""
    word = argv[0] if argv else "--"
    if word in COMMANDS:
        name = word.replace("-", "_")
        module = importlib.import_module(f"dreamerv3.commands.{name}")
        module.main(argv[1:])
        return
    if word == "--version":
        print(version())
        return
    near = nearest_commands(word)
    if near:
        remedy = f"did you mean dreamerv3 {' or '.join(near)}?"
        raise ConfigError([Problem(word, "", "there is no such command", remedy)])
    from dreamerv3 import main  # Imports what only training needs.

    main.main(argv)


def version() -> str:
    """Name and version of the package: the whole one, or the one for environments."""
    names = {found.name for found in importlib.metadata.distributions()}
    name = "dreamerv3" if "dreamerv3" in names else "dreamerv3-env"
    return f"{name} {importlib.metadata.version(name)}"


def nearest_commands(word: str) -> list[str]:
    """Commands that a word may stand for: those that begin like it, or look like it."""
    if not word or word.startswith("-") or word in flags.SCRIPTS:
        return []
    alike = [name for name in COMMANDS if name[:3] == word[:3]]
    return alike or config.nearest(word, COMMANDS)
