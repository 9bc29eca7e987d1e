"""Which suites there are and how a task name becomes an environment.

A task is `suite_name`, for example `bounce_32`, or names a class or factory of your own
as `path/to/file.py:Name` or `package.module:Name`. A suite's module is imported only
when one of its tasks is made, so that an environment needs only its own packages.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from embodied.core import base, extras
from embodied.core.batchenv import BatchEnv


class TaskError(ValueError):
    """A task that cannot be made: `rule` says why and `remedy` what to do."""

    def __init__(self, task: str, rule: str, remedy: str):
        super().__init__(f"task '{task}': {rule}; {remedy}")
        self.task = task
        self.rule = rule
        self.remedy = remedy


class Suite(NamedTuple):
    """A family of tasks made by `constructor(name, seed=…, **options)`."""

    module: str
    constructor: str
    about: str
    extra: str = ""  # Of this package, which installs what the suite needs.
    needs: tuple[str, ...] = ()  # Modules that must be importable.
    together: str = ""  # Function that makes several as one `BatchEnv`, by their seeds.
    install: str = ""  # How to get what no extra can install.


CUSTOM = "custom"  # The suite of tasks that name a class or factory.
ALIASES = {"gym": "gymnasium"}

SUITES = {
    "atari": Suite(
        "embodied.envs.atari",
        "Atari",
        "Atari games with sticky actions.",
        extra="atari",
        needs=("ale_py",),
    ),
    "atari100k": Suite(
        "embodied.envs.atari",
        "atari100k",
        "Atari games with little experience.",
        extra="atari",
        needs=("ale_py",),
    ),
    "bounce": Suite(
        "embodied.envs.bounce", "Bounce", "Keep a paddle under a ball (images)."
    ),
    "bsuite": Suite(
        "embodied.envs.bsuite",
        "BSuite",
        "Small experiments that test one ability each.",
        extra="bsuite",
        needs=("bsuite",),
    ),
    "crafter": Suite(
        "embodied.envs.crafter",
        "Crafter",
        "Survive and build in an open world (images).",
        extra="crafter",
        needs=("crafter",),
    ),
    "dmc": Suite(
        "embodied.envs.dmc",
        "make",
        "DeepMind Control Suite: robots, from vectors or images.",
        extra="dmc",
        needs=("dm_control",),
    ),
    "dmlab": Suite(
        "embodied.envs.dmlab",
        "DMLab",
        "DeepMind Lab: memory and navigation (images).",
        needs=("deepmind_lab",),
        install="build deepmind_lab from its source, which no registry has",
    ),
    "dummy": Suite(
        "embodied.envs.dummy", "Dummy", "All kinds of spaces, nothing to learn."
    ),
    "envpool": Suite(
        "embodied.envs.envpool",
        "make",
        "Atari, MuJoCo and more, many environments a process.",
        extra="envpool",
        needs=("envpool",),
        together="together",
    ),
    "gymnasium": Suite(
        "embodied.envs.gymnasium",
        "make",
        "Any environment registered with Gymnasium.",
        extra="gymnasium",
        needs=("gymnasium",),
    ),
    "track": Suite(
        "embodied.envs.track", "Track", "Walk to a target on a line (vectors)."
    ),
    "loconav": Suite(
        "embodied.envs.loconav",
        "LocoNav",
        "Walkers that find their way, seen through their eyes.",
        extra="loconav",
        needs=("dm_control",),
    ),
    "memmaze": Suite(
        "embodied.envs.memmaze",
        "MemMaze",
        "Mazes that need a long memory (images).",
        extra="memmaze",
        needs=("memory_maze",),
    ),
    "minecraft": Suite(
        "embodied.envs.minecraft",
        "make",
        "Collect a diamond from scratch.",
        needs=("minerl",),
        install="pip install minerl==0.4.4, which needs Java 8",
    ),
    "minigrid": Suite(
        "embodied.envs.minigrid",
        "MiniGrid",
        "Grid worlds of MiniGrid and BabyAI.",
        extra="minigrid",
        needs=("minigrid",),
    ),
    "popgym": Suite(
        "embodied.envs.popgym",
        "make",
        "Partially observed puzzles and control.",
        extra="popgym",
        needs=("popgym",),
    ),
    "pinpad": Suite(
        "embodied.envs.pinpad", "PinPad", "Step on pads in an order to be found out."
    ),
    "procgen": Suite(
        "embodied.envs.procgen",
        "Procgen",
        "Games with levels made anew (images).",
        needs=("procgen", "PIL"),
        install="pip install procgen-mirror pillow where NumPy is below 2",
    ),
    CUSTOM: Suite(
        "embodied.envs.custom",
        "make",
        "Your own: path/to/file.py:Name or package.module:Name.",
    ),
}


def suites() -> dict[str, Suite]:
    """All suites by name."""
    return dict(SUITES)


def make(task: str, seed: int = 0, index: int = 0, **options: Any) -> base.Env:
    """The environment of a task, unwrapped. Raises `TaskError` if there is none.

    `index` is its number in the run, for environments of your own that ask for it.
    """
    name, constructor = resolve(task)
    if suite_of(task) == CUSTOM:
        options["index"] = index
    return constructor(name, seed=seed, **options)


def make_together(task: str, seeds: Sequence[int], **options: Any) -> BatchEnv | None:
    """One environment per seed behind one call, or None if the suite cannot."""
    suite, name = find(task)
    if not suite.together:
        return None
    module = importlib.import_module(suite.module)
    return getattr(module, suite.together)(name, seeds, **options)


def resolve(task: str) -> tuple[str, Callable[..., base.Env]]:
    """The name within the suite and the suite's constructor."""
    suite, name = find(task)
    module = importlib.import_module(suite.module)
    constructor = getattr(module, suite.constructor)
    known = getattr(constructor, "TASKS", None)
    if known and name not in known:
        raise unknown_task(suite_of(task), name, known)
    if suite is SUITES[CUSTOM]:
        module.load(task)  # Raises if the file or the name is not there.
    return name, constructor


def find(task: str) -> tuple[Suite, str]:
    """The suite of a task, whose packages are installed, and the name within it."""
    prefix = suite_of(task)
    name = task if prefix == CUSTOM else task.partition("_")[2]
    if prefix not in SUITES:
        near = difflib.get_close_matches(prefix, (*SUITES, *ALIASES), 1)
        rest = f"_{name}" if name else ""
        remedy = f"did you mean {near[0]}{rest}? " if near else ""
        if not remedy and re.fullmatch(r"[\w/.:-]+-v\d+", task):
            remedy = f"did you mean {atari_task(task) or f'gymnasium_{task}'}? "
        elif task.endswith(".py"):
            remedy = f"name the class in it, as {task}:Name; "
        known = ", ".join(suite for suite in SUITES if suite != CUSTOM)
        raise TaskError(
            task,
            f"there is no suite '{prefix}'",
            f"{remedy}suites: {known}; or your own as path/to/file.py:Name",
        )
    suite = SUITES[prefix]
    missing = missing_packages(suite)
    if missing:
        raise TaskError(
            task,
            f"the suite '{prefix}' needs {', '.join(missing)}, not installed here",
            install_line(suite),
        )
    return suite, name


def atari_task(name: str) -> str:
    """Our task for an id of the Arcade Learning Environment, empty for other ids."""
    found = re.fullmatch(r"ALE/(\w+?)(-v\d+)?", name)
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", found[1]).lower() if found else ""
    return f"atari_{snake}" if snake else ""


def unknown_task(
    suite: str, name: str, known: Collection[str], example: str = ""
) -> TaskError:
    """The error for a name that a suite does not have, with those that are near.

    Where none is near the `example` is given, or all that are known if there is none.
    """
    near = difflib.get_close_matches(name, known, 3) if example else []
    shown = near or ([example] if example else known)
    *others, last = (f"{suite}_{key}" for key in shown)
    tasks = f"{', '.join(others)} or {last}" if others else last
    rule = f"the suite '{suite}' has no task '{name}'"
    remedy = f"did you mean {tasks}?" if near else f"choose {tasks}"
    return TaskError(f"{suite}_{name}", rule, remedy)


def suite_of(task: str) -> str:
    """The name of a task's suite, which need not exist.

    An id of Gymnasium may have a module before it, too: `gymnasium_module:Id-v1`.
    """
    prefix = task.partition("_")[0]
    prefix = ALIASES.get(prefix, prefix)
    source, colon, name = task.rpartition(":")
    if not colon:
        return prefix
    is_name = all(part.isidentifier() for part in name.split("."))
    is_module = is_name and _exists(source.partition(".")[0])
    if source.endswith(".py") or prefix not in SUITES or is_module:
        return CUSTOM
    return prefix


def missing_packages(suite: Suite) -> list[str]:
    """Modules that the suite needs and that are not installed."""
    return [need for need in suite.needs if not _exists(need)]


def install_line(suite: Suite) -> str:
    """The command that installs what a suite needs."""
    return suite.install or extras.install_line(suite.extra)


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # Not a name, or hidden by a test.
        return False
