"""Which suites there are and how a task name becomes an environment.

A task is `suite_name`, for example `bounce_32`. A suite's module is imported only when
one of its tasks is made, so that an environment needs only its own packages.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Callable
from typing import Any, NamedTuple

from embodied.core import base


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


SUITES = {
    "bounce": Suite(
        "embodied.envs.bounce", "Bounce", "Keep a paddle under a ball (images)."
    ),
    "dummy": Suite(
        "embodied.envs.dummy", "Dummy", "All kinds of spaces, nothing to learn."
    ),
    "gymnasium": Suite(
        "embodied.envs.gymnasium",
        "Gymnasium",
        "Any environment registered with Gymnasium.",
        extra="gymnasium",
        needs=("gymnasium",),
    ),
    "track": Suite(
        "embodied.envs.track", "Track", "Walk to a target on a line (vectors)."
    ),
}


def suites() -> dict[str, Suite]:
    """All suites by name."""
    return dict(SUITES)


def make(task: str, seed: int = 0, **options: Any) -> base.Env:
    """The environment of a task, unwrapped. Raises `TaskError` if there is none."""
    name, constructor = resolve(task)
    return constructor(name, seed=seed, **options)


def resolve(task: str) -> tuple[str, Callable[..., base.Env]]:
    """The name within the suite and the suite's constructor."""
    suite, name = find(task)
    module = importlib.import_module(suite.module)
    constructor = getattr(module, suite.constructor)
    known = getattr(constructor, "TASKS", None)
    if known and name not in known:
        prefix = task.partition("_")[0]
        raise TaskError(
            task,
            f"the suite '{prefix}' has no task '{name}'",
            "choose " + " or ".join(f"{prefix}_{name}" for name in known),
        )
    return name, constructor


def find(task: str) -> tuple[Suite, str]:
    """The suite of a task, whose packages are installed, and the name within it."""
    prefix, _, name = task.partition("_")
    if prefix not in SUITES:
        near = difflib.get_close_matches(prefix, SUITES, 1)
        remedy = f"did you mean {near[0]}_{name}? " if near else ""
        raise TaskError(
            task,
            f"there is no suite '{prefix}'",
            f"{remedy}suites: {', '.join(SUITES)}",
        )
    suite = SUITES[prefix]
    missing = [need for need in suite.needs if not importlib.util.find_spec(need)]
    if missing:
        raise TaskError(
            task,
            f"the suite '{prefix}' needs {', '.join(missing)}, not installed here",
            f"pip install 'dreamerv3[{suite.extra}]'",
        )
    return suite, name
