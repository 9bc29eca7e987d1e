"""The rules for environments: their spaces, values and episodes.

Training, `check-env`, contract tests and `Player.predict` apply these and no others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from embodied.core import base

# Names of the rules, as reported.
SPACES, VALUES, RANGES = "spaces", "observations", "ranges"
RESETS, ENDS = "resets", "episode ends"
SHOWN = 60  # Characters of a value in a message.
SPECIAL = {
    base.REWARD: np.float32,
    base.IS_FIRST: np.bool_,
    base.IS_LAST: np.bool_,
    base.IS_TERMINAL: np.bool_,
}
SPACES_REMEDY = "fix it there; docs/custom-environment.md shows what both hold"
RESETS_REMEDY = "start a new episode whenever the action has reset: is_first, reward 0"
ENDS_REMEDY = "set is_last where an episode ends, and is_terminal too unless a time "
ENDS_REMEDY += "limit cut it"


class Fault(NamedTuple):
    """A rule that an environment breaks."""

    rule: str
    what: str  # For example: observation 'obs' is not finite.
    value: str
    remedy: str
    rejected: bool = True  # Otherwise the value is converted and used.

    def __str__(self) -> str:
        return f"{self.what}: {self.value}" if self.value else self.what


def space_faults(env: base.Env) -> Iterator[Fault]:
    """What is wrong with the spaces themselves."""
    for what in _space_faults(env.obs_space, env.act_space):
        yield Fault(SPACES, what, "", SPACES_REMEDY)


def _space_faults(obs_space: base.Spaces, act_space: base.Spaces) -> Iterator[str]:
    for key, dtype in SPECIAL.items():
        space = obs_space.get(key)
        if space is None:
            yield f"obs_space lacks '{key}'"
        elif space.dtype != dtype:
            yield f"'{key}' must be {np.dtype(dtype).name}, is {space.dtype.name}"
        elif space.shape != ():
            yield f"'{key}' must be a scalar, is {space.shape}"
    if base.RESET not in act_space:
        yield f"act_space lacks '{base.RESET}'"
    elif act_space[base.RESET].dtype != bool:
        yield f"'{base.RESET}' must be bool"
    overlap = sorted(set(obs_space) & set(act_space))
    if overlap:
        yield f"keys {overlap} are in both obs_space and act_space, rename one of each"
    reserved = base.RESERVED & ({*obs_space, *act_space} - {*SPECIAL, base.RESET})
    if reserved:
        yield f"keys {sorted(reserved)} are reserved, rename them"


def step_faults(
    obs: Mapping[str, Any], spaces: base.Spaces, reset: bool
) -> Iterator[Fault]:
    """What is wrong with one observation; `reset` says that it was asked for."""
    yield from values_faults(obs, spaces, "observation")
    if all(key in obs and np.shape(obs[key]) == () for key in SPECIAL):
        yield from _flag_faults(obs, reset)


def _flag_faults(obs: Mapping[str, Any], reset: bool) -> Iterator[Fault]:
    first, terminal = obs[base.IS_FIRST], obs[base.IS_TERMINAL]
    if reset and not first:
        yield Fault(RESETS, "a reset must return is_first", "", RESETS_REMEDY)
    if first and obs[base.REWARD] != 0:
        what = "the first reward of an episode must be 0"
        yield Fault(RESETS, what, str(obs[base.REWARD]), RESETS_REMEDY)
    if first and terminal:
        yield Fault(ENDS, "a first step cannot be terminal", "", ENDS_REMEDY)
    if terminal and not obs[base.IS_LAST]:
        yield Fault(ENDS, "a terminal step must be last", "", ENDS_REMEDY)


def values_faults(
    values: Mapping[str, Any], spaces: base.Spaces, what: str
) -> Iterator[Fault]:
    """What is wrong with the keys and with each value."""
    yield from missing_faults(values, spaces, what)
    for key in values:
        if key not in spaces:
            remedy = f"remove '{key}', or give it a space"
            known = f"its space has {_list(spaces)}"
            yield Fault(VALUES, f"{what} has unknown '{key}'", known, remedy)
        else:
            yield from value_faults(values[key], spaces[key], f"{what} '{key}'")


def missing_faults(
    values: Mapping[str, Any], keys: Mapping[str, Any], what: str
) -> Iterator[Fault]:
    """Faults for missing keys."""
    for key in keys:
        if key not in values:
            remedy = f"return '{key}' from every reset and step, or remove its space"
            there = f"it has {_list(values)}"
            yield Fault(VALUES, f"{what} lacks '{key}'", there, remedy)


def value_faults(
    value: Any, space: base.Space, what: str, bounded: bool = True
) -> Iterator[Fault]:
    """What is wrong with one value.

    A type that is converted without loss, or between floats, is not rejected, and
    neither is a float beyond its bounds unless they are `bounded`.
    """
    try:
        value = np.asarray(value)
    except ValueError as error:  # Lists of different lengths.
        remedy = "return one array of numbers"
        yield Fault(VALUES, f"{what} is not an array", str(error), remedy)
        return
    if value.dtype != space.dtype:
        yield from _type_faults(value, space, what)
    if value.dtype.kind not in "biuf":
        return
    if value.shape != space.shape:
        due = f"has shape {value.shape}, its space says {space.shape}"
        remedy = "return the shape of the space, or change the space"
        yield Fault(VALUES, f"{what} {due}", _shown(value), remedy)
    elif not _fits(value, space):
        yield from _range_faults(value, space, what, bounded)


def _type_faults(value: np.ndarray, space: base.Space, what: str) -> Iterator[Fault]:
    due = f"{what} is {value.dtype}, its space says {space.dtype}"
    if value.dtype.kind not in "biuf":
        yield Fault(VALUES, due, _shown(value), "return numbers")
        return
    name = space.dtype.name
    cast = f"np.asarray(value, np.{name}{'_' if name == 'bool' else ''})"
    lossless = np.can_cast(value.dtype, space.dtype, "same_kind")
    if not lossless:
        with np.errstate(invalid="ignore"):
            lossless = bool((value.astype(space.dtype) == value).all())
    if lossless:
        remedy = f"it is converted; {cast} avoids this note"
        yield Fault(VALUES, due, _shown(value), remedy, rejected=False)
    else:
        remedy = f"return {cast}, or give the space dtype=np.{value.dtype}"
        yield Fault(VALUES, due, _shown(value), remedy)


def _fits(value: np.ndarray, space: base.Space) -> bool:
    """Whether all is finite and within bounds; integers exclude the upper one."""
    if value.dtype == space.dtype and value.dtype.char in "?B":  # Truth and bytes.
        return True
    high = value < space.high if space.discrete else value <= space.high
    finite = value.dtype.kind != "f" or np.isfinite(value).all()
    return bool(finite and high.all() and (value >= space.low).all())


def _range_faults(
    value: np.ndarray, space: base.Space, what: str, bounded: bool
) -> Iterator[Fault]:
    wild = ~np.isfinite(value)
    if wild.any():
        remedy = "check for division by zero and roots or logarithms of negatives"
        yield Fault(RANGES, f"{what} is not finite", _where(value, wild), remedy)
        return
    low, high = np.broadcast_to(space.low, space.shape), _last(space)
    over = (value < low) | (value > high)
    if over.any():
        what = f"{what} is outside of {_bound(low)} to {_bound(high)}"
        strict = bounded or space.discrete
        remedy = "widen the space, or return a value within it"
        yield Fault(RANGES, what, _where(value, over), remedy, strict)


def _last(space: base.Space) -> np.ndarray:
    """The largest value of each element."""
    if space.dtype == bool:
        return np.ones(space.shape)
    high = np.asarray(space.high)
    whole = space.discrete and not (space.dtype == np.uint8 and (high == 255).all())
    return np.broadcast_to(high - 1 if whole else high, space.shape)


def _where(value: np.ndarray, wrong: np.ndarray) -> str:
    """The first wrong element, and where it is."""
    index = np.unravel_index(int(wrong.argmax()), wrong.shape)
    text = f"{value[index]}"
    if value.ndim:
        text += f" at {[int(i) for i in index]}"
    count = int(wrong.sum())
    return f"{text}, and {count - 1} more" if count > 1 else text


def _bound(bound: np.ndarray) -> str:
    values = np.unique(bound)
    return f"{values[0]:.12g}" if len(values) == 1 else _shown(bound)


def _shown(value: np.ndarray) -> str:
    text = " ".join(np.array2string(value, threshold=8, edgeitems=2).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _list(keys: Mapping[str, Any]) -> str:
    return ", ".join(f"'{key}'" for key in keys) or "none"
