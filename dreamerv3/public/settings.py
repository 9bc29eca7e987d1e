"""Converts the settings of a public run."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dreamerv3.public import keys
from dreamerv3.settings import config, flags, rules
from dreamerv3.settings.config import Flat, Problem, show
from embodied.envs import registry

# Both tasks of the public dummy take discrete and continuous actions.
TASKS = {"dummy_disc": "dummy_both", "dummy_cont": "dummy_both"}
# Public keys and patterns that a converted run does not inherit, and why.
MACHINE = "specific to the other machine"
LEFT = {
    "logdir": "the new run has its own",
    "script": "resume it with --script train or parallel",
    "method": "a name for plots",
    "run.from_checkpoint": "the parameters come from the checkpoint",
    "agent.report": "reports are periodic here",
    "agent.policy.unimix": "the public policy ignores it, so it stays at 0",
    "jax.*": MACHINE,
    "logger.*": MACHINE,
    "run.usage.*": MACHINE,
    "run.*_addr": MACHINE,
    "run.remote_*": MACHINE,
    "run.actor_*": MACHINE,
    "run.agent_process": MACHINE,
    "run.debug": MACHINE,
    "replica*": MACHINE,
    "clock_*": MACHINE,
    "ipv6": MACHINE,
    "errfile": MACHINE,
}


class Translation(NamedTuple):
    """Our settings, and public ones that were dropped or cannot be converted."""

    values: Flat
    left: dict[str, str]  # Public key or pattern to why it was dropped.
    problems: list[Problem]  # Settings that the agent depends on and that differ here.


def translate(public: Flat) -> Translation:
    """Our settings for public ones; options of other suites are skipped."""
    result = Translation({}, {}, [])
    defaults = config.read_blocks().defaults
    suite = registry.suite_of(str(public.get("task", "")))
    for key, value in public.items():
        if _of_other_suite(key, suite):
            continue
        if pattern := _left_out(key):
            result.left[pattern] = LEFT[pattern]
            continue
        match keys.translate(key, value):
            case keys.Rejected(rule, _):
                remedy = "this agent cannot be converted"
                result.problems.append(Problem(key, show(value), rule, remedy))
            case keys.Renamed(name, own) if name in defaults:
                result.values[name] = TASKS.get(own, own) if name == "task" else own
            case keys.Renamed() if key.startswith(("agent.", "env.")):
                result.problems.append(_unknown(key, value, defaults))
            case keys.Renamed():
                result.left[key] = "there is no such key here"
    return result


def complete(translation: Translation, typed: flags.Flags) -> Translation:
    """All settings with the user's changes, checked.

    Public settings under `run` that are invalid here get our defaults.
    """
    problems, left = list(translation.problems), dict(translation.left)
    blocks = config.read_blocks()
    values = flags.layer(blocks, typed, translation.values, problems)
    for problem in rules.check(values, flags.SCRIPTS):
        key = problem.key
        if key.startswith("run.") and key not in typed.values:
            values[key], left[key] = blocks.defaults[key], problem.rule
        else:
            problems.append(problem)
    return Translation(values, left, problems)


def _left_out(key: str) -> str | None:
    """The first pattern of `LEFT` that matches a key."""
    return next((pattern for pattern in LEFT if fnmatchcase(key, pattern)), None)


def _of_other_suite(key: str, suite: str) -> bool:
    group, _, rest = key.partition(".")
    return group == "env" and rest.partition(".")[0] != suite


def _unknown(key: str, value: Any, known: Flat) -> Problem:
    rule = "there is no such key here"
    if key.startswith("env."):
        remedy = "use your own environment with --task path/to/file.py:Name"
        return Problem(key, show(value), rule, remedy)
    near = config.nearest(key, known)
    remedy = f"the nearest here is {near[0]}; " if near else ""
    remedy += "if the agent does not depend on it, remove it from a copy of config.yaml"
    return Problem(key, show(value), rule, remedy)
