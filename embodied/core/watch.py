"""Watches what an environment returns: rejects faults, notes what is converted."""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Sequence
from typing import Any

from embodied.core.env_rules import RANGES, Fault

ROOT = pathlib.Path(__file__).parents[2]
# Paths that never hold user code.
FOREIGN = (f"{ROOT}/embodied/", f"{ROOT}/dreamerv3/", "/gymnasium/", "/dm_env/")


class SpaceError(ValueError):
    """Values or spaces that break the rules; the message names the keys."""

    def __init__(self, message: str, faults: Sequence[Fault] = (), place: str = ""):
        super().__init__(message)
        self.faults, self.place = tuple(faults), place

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.faults, self.place)


class RangeError(SpaceError):
    """Values of the right kind that are not finite or outside of their bounds."""


class Watch:
    """Judges the faults of one environment, step by step."""

    def __init__(self, env: Any):
        self._env = env
        self._steps = 0
        self._notes: dict[str, str] = {}

    @property
    def notes(self) -> list[str]:
        """What was converted, once for each kind of fault."""
        return list(self._notes.values())

    def judge(self, faults: Sequence[Fault], method: str = "step") -> None:
        """Raise one error for all rejected faults of a step; note the others."""
        step, self._steps = self._steps, self._steps + 1
        if not faults:
            return
        where = place(self._env, method)
        for fault in faults:
            if not fault.rejected and fault.what not in self._notes:
                note = f"{fault}, at step {step}{_in(where)}; {fault.remedy}"
                self._notes[fault.what] = note
        rejected = [fault for fault in faults if fault.rejected]
        if rejected:
            raise error(rejected, f"at step {step}{_in(where)}", where)


def error(faults: Sequence[Fault], when: str = "", where: str = "") -> SpaceError:
    """The error that lists all faults, with their remedies if it says when."""
    kind = RangeError if all(f.rule == RANGES for f in faults) else SpaceError
    lines = [f"{f}, {when}; {f.remedy}" if when else str(f) for f in faults]
    return kind("\n".join(lines), faults, where)


def place(env: Any, method: str) -> str:
    """File and line of the user's method that gives observations, if it is known."""
    found = ""
    while env is not None:
        function = getattr(type(env), method, None)
        code = getattr(inspect.unwrap(function), "__code__", None) if function else None
        if code is not None:
            found = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
            if not any(part in code.co_filename for part in FOREIGN):
                return found
        env = getattr(env, "env", None) or getattr(env, "_env", None)
    return found


def _in(where: str) -> str:
    return f", {where}" if where else ""
