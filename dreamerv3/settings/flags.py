"""The command line: flags into settings, and the text of --help."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from dreamerv3.commands.base import COMMANDS
from dreamerv3.public import keys as public_keys
from dreamerv3.settings import config
from dreamerv3.settings.config import Blocks, ConfigError, Problem

USAGE = """\
Usage: dreamerv3 [train] [--configs NAME…] [--KEY VALUE…]
       dreamerv3 COMMAND [--help] …
       dreamerv3 --help [PATTERN…]
       dreamerv3 --version

Trains a DreamerV3 agent. Run the same command again to resume.

  dreamerv3 --configs demo
  dreamerv3 --task bounce_64 --configs size1m --logdir logdir/first
  dreamerv3 --logdir logdir/first --run.train_ratio 64
  dreamerv3 --'.*\\.units' 128          (a pattern changes every key it matches)

  --seeds 0 1 2  train with each seed, as many at a time as the machine has room for
  --dry-run      check all settings, print what the run would do, and start nothing
  --quiet        print warnings, errors and the result, neither plan nor metrics
"""

SCRIPTS = {
    "parallel": "Train with one process a role, supervised.",
    "parallel_env": "One environment of a run on another machine, --replica N.",
    "parallel_envs": "All environments of a run on another machine.",
    "parallel_replay": "The replay of a run on another machine.",
    "parallel_logger": "The logger of a run on another machine.",
    "train": "Train in one process.",
    "train_eval": "Train in one process, with regular evaluation episodes.",
    "train_offline": "Learn from recorded steps, --replay DIR; evaluate in --task.",
    "eval_only": "Evaluate the agent of a log directory or of run.from_checkpoint.",
}
TRAIN, HELP = "train", "help"  # May stand before the flags.
NO_COMMANDS = ("run", "start")  # That users may try.
ALIASES = {"replay": "replay.source", "config": "configs"}  # Short or near names.


class Flags(NamedTuple):
    """What was typed."""

    configs: list[str]  # Blocks to layer, in order.
    values: dict[str, list[str]]  # Key or pattern to its values.
    help: list[str] | None = None  # Patterns of --help; none if it was not typed.
    list_scripts: bool = False  # --script without a value.
    dry_run: bool = False
    quiet: bool = False
    seeds: tuple[int, ...] = ()  # Of several trainings with the same flags.


def parse(argv: Sequence[str], problems: list[Problem]) -> Flags:
    """Split words into flags: `--key value`, `--key=value` or `--key a b`."""
    values: dict[str, list[str]] = {}
    current: list[str] | None = None
    for word in argv:
        if word in ("--help", "-h"):
            current = values.setdefault("help", [])
        elif word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            name = ALIASES.get(name, name)
            current = values[name] = [value] if equals else []
        elif current is None:
            problems.append(Problem(word, "", "is not a flag", _stray_remedy(word)))
        else:
            current.append(word)
    patterns = values.pop("help", None)
    dry_run = _switch(values, "dry-run", problems)
    quiet = _switch(values, "quiet", problems)
    if patterns is None and values.get("configs") == []:
        remedy = "name a block, for example --configs demo; --help lists them"
        problems.append(Problem("configs", "", "needs a value", remedy))
    configs = [name for word in values.pop("configs", []) for name in word.split(",")]
    list_scripts = values.get("script") == []
    seeds = _seeds(values, problems)
    return Flags(configs, values, patterns, list_scripts, dry_run, quiet, seeds)


def _seeds(values: dict[str, list[str]], problems: list[Problem]) -> tuple[int, ...]:
    """The seeds of several trainings, all different; none if there is one training."""
    given = values.pop("seeds", None)
    if given is None:
        return ()
    words = [part for word in given for part in word.split(",") if part]
    numbers = dict.fromkeys(int(word) for word in words if word.isdecimal())
    if not words or len(numbers) < len(words):
        rule = "needs whole numbers, each once"
        problems.append(
            Problem("seeds", " ".join(given), rule, "for example --seeds 0 1 2")
        )
    return tuple(numbers)


def _switch(values: dict[str, list[str]], name: str, problems: list[Problem]) -> bool:
    """Whether a flag without a value was typed."""
    given = values.pop(name, None)
    if given:
        remedy = f"write --{name} alone, after the values of other flags"
        problems.append(Problem(name, " ".join(given), "takes no value", remedy))
    return given is not None


def _stray_remedy(word: str) -> str:
    """What someone may have meant by a word that follows no flag."""
    if word.startswith("-"):
        return f"write --{word.lstrip('-')}"
    if word in NO_COMMANDS:
        return "write dreamerv3 --task TASK; dreamerv3 --help lists what else there is"
    if word in (*COMMANDS, TRAIN, HELP):
        return f"a command comes first: dreamerv3 {word}"
    if word in SCRIPTS:
        return f"write --script {word}"
    commands = ", ".join(COMMANDS)
    remedy = f"write --KEY {word}, or --configs {word} for a block"
    return f"{remedy}; the commands are {commands}"


def layer(
    blocks: Blocks, flags: Flags, saved: Mapping, problems: list[Problem]
) -> dict:
    """Settings from defaults, a saved run, blocks and flags, in this order."""
    values = config.layer(blocks.defaults, saved, problems)
    for name in flags.configs:
        if name == config.DEFAULTS:
            continue  # Every run starts from them.
        if name in blocks.presets:
            values = config.layer(values, blocks.presets[name], problems)
            continue
        near = config.nearest(name, blocks.presets)
        remedy = f"did you mean {' or '.join(near)}? " if near else ""
        remedy += f"blocks: {', '.join(blocks.presets)}"
        problems.append(Problem("configs", name, "there is no such block", remedy))
    changes = {}
    typed = public_keys.adopt(flags.values, values, problems)
    for name, words in typed.items():
        if not words and isinstance(values.get(name), bool):
            changes[name] = ["True"]
        elif not words and not isinstance(values.get(name), tuple) and name in values:
            rule = f"needs a value, {config.type_name(values[name])}"
            remedy = f"for example --{name} {config.show(values[name])}"
            problems.append(Problem(name, "", rule, remedy))
        else:
            changes[name] = words
    return config.layer(values, changes, problems)


def help_text(blocks: Blocks, scripts: Mapping[str, str]) -> str:
    """Usage, blocks, scripts and all keys with type, default and meaning."""
    lines = [USAGE]
    if COMMANDS:
        lines += ["Commands:", *_table(COMMANDS), ""]
    lines += ["Blocks (--configs):", _wrap(blocks.presets), ""]
    lines += ["Scripts (--script):", *_table(scripts), ""]
    lines += ["Keys, with type, default and meaning (--help PATTERN for some of them):"]
    return "\n".join([*lines, *_keys(blocks, blocks.defaults)])


def matches_text(
    blocks: Blocks, scripts: Mapping[str, str], patterns: Sequence[str]
) -> str:
    """Keys, blocks, commands and scripts that match a pattern, as `--help` shows them.

    Raises `ConfigError` for a pattern that is not a regular expression or that nothing
    matches.
    """
    expressions = [_compile(pattern) for pattern in patterns]

    def matching(names: Iterable[str]) -> list[str]:
        return [n for n in names if any(each.search(n) for each in expressions)]

    lines = []
    for title, rows in (("Commands:", COMMANDS), ("Scripts (--script):", scripts)):
        if found := matching(rows):
            lines += [title, *_table({name: rows[name] for name in found}), ""]
    if found := matching(blocks.presets):
        lines += ["Blocks (--configs):", "  " + ", ".join(found), ""]
    in_texts = [k for k in blocks.defaults if matching([blocks.help[k]])]
    keys = dict.fromkeys([*matching(blocks.defaults), *in_texts])
    if keys:
        lines += ["Keys, with type, default and meaning:", *_keys(blocks, keys)]
    if not lines:
        given = " ".join(patterns)
        rule = "no key, meaning, block, command or script matches"
        remedy = "try a part of a word, for example --help ratio"
        raise ConfigError([Problem("help", given, rule, remedy)])
    return "\n".join(lines)


def _compile(pattern: str) -> re.Pattern:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        rule = f"is not a regular expression: {error}"
        remedy = f"for example --help {re.escape(pattern)!r}"
        raise ConfigError([Problem("help", pattern, rule, remedy)]) from None


def _keys(blocks: Blocks, keys: Iterable[str]) -> list[str]:
    """Lines on keys, with an empty one between groups."""
    lines, group = [], ""
    for key in keys:
        value = blocks.defaults[key]
        top = key.partition(".")[0] if "." in key else ""
        if top != group:
            lines.append("")
            group = top
        kind = config.type_name(value).split(" ", 1)[1]
        default = config.show(value)
        lines.append(f"  --{key}  ({kind}, {default})\n      {blocks.help[key]}")
    return lines


def scripts_text(scripts: Mapping[str, str]) -> str:
    """What can be run, for `--script` without a value."""
    return "\n".join(["Scripts, for --script NAME:", *_table(scripts)])


def problems_text(problems: Sequence[Problem]) -> str:
    """All problems, each with key, value, rule and remedy."""
    count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
    lines = [f"dreamerv3: {count}, nothing was started."]
    for problem in problems:
        value = f" = {problem.value}" if problem.value != "" else ""
        lines += ["", f"  {problem.key}{value}"]
        rule = textwrap.indent(problem.rule, " " * 12).strip()  # May have a traceback.
        lines += [f"    rule:   {rule}", f"    remedy: {problem.remedy}"]
    return "\n".join(lines)


def _table(rows: Mapping[str, str]) -> list[str]:
    width = max(map(len, rows))
    return [f"  {name.ljust(width)}  {text}" for name, text in rows.items()]


def _wrap(names: Mapping[str, object]) -> str:
    return "  " + ", ".join(names)
