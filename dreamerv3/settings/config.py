"""Settings: blocks of `configs.yaml`, flags, and what is wrong with them.

Everything a user can set is a *key* of the `defaults` block, such as `run.train_ratio`.
The type of a key is the type of its default. Other blocks and flags change keys by name
or by a regular expression that matches whole keys.
"""

from __future__ import annotations

import difflib
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import elements
import ruamel.yaml

from dreamerv3.settings.schema import Settings
from embodied.run.settings import FILE as RUN_FILE

FILE = pathlib.Path(__file__).parents[1] / "configs.yaml"
DEFAULTS = "defaults"
REGEX_CHARACTERS = set("*+?[](){}|^$\\")

Flat = dict[str, Any]  # Key to value.


class Problem(NamedTuple):
    """One thing that is wrong with the settings."""

    key: str
    value: Any
    rule: str
    remedy: str


class ConfigError(Exception):
    """All problems of the settings at once."""

    def __init__(self, problems: Sequence[Problem]):
        lines = [f"{p.key} = {p.value}: {p.rule}; {p.remedy}" for p in problems]
        super().__init__("\n".join(lines))
        self.problems = list(problems)


class ConversionError(ValueError):
    """A value that is not of its key's type; the message goes on after the type."""


class Blocks(NamedTuple):
    """What `configs.yaml` and the settings of the loops say."""

    defaults: Flat
    help: dict[str, str]  # Key to its comment.
    presets: dict[str, Flat]  # Name to changes; keys may be regular expressions.


def read_blocks() -> Blocks:
    """Read all blocks and the comments of the defaults."""
    plain, commented = ruamel.yaml.YAML(typ="safe"), ruamel.yaml.YAML()
    presets, loops = plain.load(FILE), plain.load(RUN_FILE)
    own = presets.pop(DEFAULTS)
    top = {name: value for name, value in own.items() if not isinstance(value, dict)}
    help = dict(_comments(commented.load(FILE)[DEFAULTS]))
    help |= _comments(commented.load(RUN_FILE))
    return Blocks(
        flatten({**top, **loops, **own}),
        help,
        {name: flatten(block) for name, block in presets.items()},
    )


def layer(
    values: Mapping[str, Any], changes: Mapping[str, Any], problems: list[Problem]
) -> Flat:
    """Apply changes in order; what cannot be applied becomes a problem."""
    result = dict(values)
    for name, raw in changes.items():
        keys = _match(name, raw, result, problems)
        for key in keys:
            try:
                result[key] = convert(raw, result[key])
            except ConversionError as error:
                rule = f"must be {type_name(result[key])}{error}"
                remedy = f"for example --{key} {show(result[key])}"
                problems.append(Problem(key, show(raw), rule, remedy))
    return result


def convert(raw: Any, like: Any) -> Any:
    """Turn text or a YAML value into the type of `like`."""
    if isinstance(like, tuple):
        words = raw if isinstance(raw, list | tuple) else [raw]
        parts = [part for word in words for part in _split(word)]
        return tuple(convert(part, like[0] if like else "") for part in parts)
    if isinstance(raw, list | tuple):
        if len(raw) != 1:
            raise ConversionError(f", got {len(raw)} values")
        raw = raw[0]
    if isinstance(like, bool):
        return _to_bool(raw)
    if isinstance(like, int):
        return _to_int(raw)
    if isinstance(like, float):
        return _to_float(raw)
    if isinstance(raw, dict):
        raise ConversionError("")
    return str(raw)


def to_config(values: Mapping[str, Any]) -> Settings:
    """Nested settings, the form in which everything else reads them."""
    return elements.Config(nest(values))


def complete(config: Settings) -> Settings:
    """Settings that a program made, with the defaults of keys that it left out."""
    return to_config({**read_blocks().defaults, **config.flat})


def nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of dictionaries behind dotted keys."""
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *path, last = key.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[last] = value
    return tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Flat:
    """Dotted keys for a tree of dictionaries; lists become tuples."""
    result: Flat = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if isinstance(value, Mapping):
            result.update(flatten(value, f"{key}."))
        else:
            result[key] = tuple(value) if isinstance(value, list) else value
    return result


def nearest(name: str, known: Iterable[str], amount: int = 3) -> list[str]:
    """Known names a user may have meant: same last part, or similar spelling."""
    known = list(known)
    ending = [k for k in known if k.endswith(f".{name}")]
    similar = difflib.get_close_matches(name, known, amount, 0.7)
    last = {key.rsplit(".", 1)[-1]: key for key in reversed(known)}
    word = name.rsplit(".", 1)[-1]
    parts = [last[k] for k in difflib.get_close_matches(word, last, amount, 0.75)]
    return list(dict.fromkeys(ending + similar + parts))[:amount]


def is_pattern(name: str) -> bool:
    """Whether a name is a regular expression rather than a key."""
    return bool(REGEX_CHARACTERS & set(name))


def type_name(value: Any) -> str:
    """The type of a key in words."""
    if isinstance(value, tuple):
        return f"a list of {type_name(value[0] if value else '').split(' ', 1)[1]}s"
    names = {bool: "a boolean", int: "an integer", float: "a number", str: "a text"}
    return names[type(value)]


def show(value: Any) -> str:
    """A value as one would type it as a flag."""
    if isinstance(value, list | tuple):
        return " ".join(map(show, value))
    if isinstance(value, float):
        return repr(int(value)) if value == 0 else f"{value:g}"
    return str(value) if value != "" else "''"


def _match(name: str, raw: Any, values: Flat, problems: list[Problem]) -> Sequence[str]:
    """The keys a name stands for, or a problem."""
    if name in values:
        return [name]
    inside = [key for key in values if key.startswith(f"{name}.")]
    if inside:
        rule = "is a group of keys, not a key"
        remedy = "set one of " + ", ".join(f"--{key}" for key in inside[:5])
    elif is_pattern(name):
        try:
            keys = [key for key in values if re.fullmatch(name, key)]
        except re.error as error:
            keys, rule = [], f"is not a valid regular expression ({error})"
        else:
            rule = "matches no key; a pattern must match whole keys"
        if keys:
            return keys
        remedy = "dreamerv3 --help lists the keys"
    else:
        rule = "there is no such key"
        near = nearest(name, values)
        remedy = f"did you mean {' or '.join(near)}?" if near else ""
        remedy = remedy or "dreamerv3 --help lists the keys"
    problems.append(Problem(name, show(raw), rule, remedy))
    return []


def _split(word: Any) -> list[Any]:
    return [p for p in word.split(",") if p] if isinstance(word, str) else [word]


def _to_bool(raw: Any) -> bool:
    words = {
        "true": True,
        "yes": True,
        "1": True,
        "false": False,
        "no": False,
        "0": False,
    }
    word = str(raw).lower()
    if word not in words:
        raise ConversionError(", True or False")
    return words[word]


def _to_int(raw: Any) -> int:
    number = _to_float(raw)
    if isinstance(raw, bool) or number != number or abs(number) == float("inf"):
        raise ConversionError("")
    try:
        return int(raw)  # Exact also beyond what a float can hold.
    except ValueError:
        if number != int(number):
            raise ConversionError("") from None
        return int(number)


def _to_float(raw: Any) -> float:
    if isinstance(raw, bool):
        raise ConversionError("")
    try:
        return float(raw)
    except (TypeError, ValueError):
        raise ConversionError("") from None


def _comments(node: Any, prefix: str = "") -> Iterable[tuple[str, str]]:
    """End-of-line comments by key; a comment on a group goes to all of its keys."""
    for name, value in node.items():
        key = f"{prefix}{name}"
        tokens = node.ca.items.get(name)
        token = tokens[2] if tokens and tokens[2] else None
        text = token.value.split("\n")[0].lstrip("# ").strip() if token else ""
        if not isinstance(value, Mapping):
            yield key, text
            continue
        inner = dict(_comments(value, f"{key}."))
        for child, line in inner.items():
            yield child, line or text
