"""The command line: flags into settings, and the text of --help."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dreamerv3.commands.base import COMMANDS
from dreamerv3.public import keys as public_keys
from dreamerv3.settings import config
from dreamerv3.settings.config import Blocks, Problem

USAGE = """\
Usage: dreamerv3 [--configs NAME…] [--KEY VALUE…]
       dreamerv3 COMMAND [--help] …
       dreamerv3 --version

Trains a DreamerV3 agent. Run the same command again to resume.

  dreamerv3 --configs demo
  dreamerv3 --task bounce_64 --configs size1m --logdir logdir/first
  dreamerv3 --logdir logdir/first --run.train_ratio 64
  dreamerv3 --'.*\\.units' 128          (a pattern changes every key it matches)
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
NO_COMMANDS = ("train", "run", "start", "help")  # That someone may try.
ALIASES = {"replay": "replay.source", "config": "configs"}  # Short or near names.


class Flags(NamedTuple):
    """What was typed."""

    help: bool
    list_scripts: bool  # --script without a value.
    configs: list[str]  # Blocks to layer, in order.
    values: dict[str, list[str]]  # Key or pattern to its words.


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
    wants_help = values.pop("help", None) is not None
    if not wants_help and values.get("configs") == []:
        remedy = "name a block, for example --configs demo; --help lists them"
        problems.append(Problem("configs", "", "needs a value", remedy))
    configs = [name for word in values.pop("configs", []) for name in word.split(",")]
    list_scripts = values.get("script") == []
    return Flags(wants_help, list_scripts, configs, values)


def _stray_remedy(word: str) -> str:
    """What someone may have meant by a word that follows no flag."""
    if word.startswith("-"):
        return f"write --{word.lstrip('-')}"
    if word in NO_COMMANDS:
        return "write dreamerv3 --task TASK; dreamerv3 --help lists what else there is"
    if word in SCRIPTS:
        return f"write --script {word}"
    if word in COMMANDS:
        return f"a command comes first: dreamerv3 {word} --help"
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
    lines += ["Keys, with type, default and meaning:"]
    group = ""
    for key, value in blocks.defaults.items():
        top = key.partition(".")[0] if "." in key else ""
        if top != group:
            lines.append("")
            group = top
        kind = config.type_name(value).split(" ", 1)[1]
        default = config.show(value)
        lines.append(f"  --{key}  ({kind}, {default})\n      {blocks.help[key]}")
    return "\n".join(lines)


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
