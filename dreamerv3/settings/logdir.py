"""The log directory: its name, the settings saved in it, and whether they still fit."""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import itertools
import os
import pathlib
import re
import socket
from collections.abc import Iterator
from typing import Any

import elements
import ruamel.yaml

from dreamerv3.public import keys
from dreamerv3.settings import config
from dreamerv3.settings.config import ConfigError, Flat, Problem, show
from embodied.core import base, files, formats, runfiles, spacefile
from embodied.core.checkpoint import META, complete
from embodied.envs import custom
from embodied.replay.recording import holds_steps

# What the stored steps and the trained parameters depend on.
FIXED = re.compile(
    r"task|seed|method|random_agent|replay_context|replay\.source|env\..*|agent\..*"
)
# Exceptions: they change what is computed or shown, not what is stored.
FREE = re.compile(
    r"agent\.(eval_mode|finite_check|report_gradnorms|imag_starts|dyn\.rssm\.unroll)"
)
FORMAT = 1  # Of a log directory: which files there are, and what is in them.
HEAD, END = "# Log directory of DreamerV3, format ", "# End of the settings.\n"
FEW = 3  # Changed keys of the model that are told one by one.
PARALLEL, SERIAL = "parallel", ("train", "train_eval", "train_offline")
NO_TASK = "none"  # Of a run that learns from recorded steps alone.
MOST = 10_000  # Saved settings.
LIMIT = 1 << 18  # Bytes of saved settings; a run writes about 8 kB.
PLACEHOLDERS = ("timestamp", "task", "method", "seed")


def expand(values: Flat, problems: list[Problem]) -> str:
    """The log directory with its placeholders filled in."""
    known = {name: values.get(name) for name in PLACEHOLDERS}
    known["timestamp"] = elements.timestamp()
    task = custom.label(str(known["task"]))
    known["task"] = re.sub(r"[^\w.-]+", "_", task)  # One folder, not many.
    try:
        return str(pathlib.Path(values["logdir"].format(**known)).expanduser())
    except (KeyError, IndexError, ValueError):
        rule = "has an unknown placeholder"
        names = ", ".join("{" + name + "}" for name in PLACEHOLDERS)
        remedy = f"known are {names}"
        problems.append(Problem("logdir", values["logdir"], rule, remedy))
        return values["logdir"]


def load(logdir: str | os.PathLike) -> Flat:
    """The settings of the run that lives there, or nothing.

    Raises if it is a run of the public implementation.
    """
    found = read(logdir)
    if found.keys() & keys.TABLE.keys():
        remedy = f"dreamerv3 convert {logdir} NEW_LOGDIR makes one of this project"
        rule = "is a run of the public DreamerV3"
        raise ConfigError([Problem("logdir", str(logdir), rule, remedy)])
    return found


def read(logdir: str | os.PathLike) -> Flat:
    """The settings in a log directory, or nothing."""
    path = pathlib.Path(logdir) / runfiles.CONFIG
    if not path.exists():
        return {}
    try:
        text = files.read_text(path, LIMIT)
        _check_format(path, text)
        found = ruamel.yaml.YAML(typ="safe").load(text)
        if not isinstance(found, dict):
            raise ValueError(f"it holds no settings but {str(found)[:40]!r}")
        if any(itertools.islice(_leaves(found), MOST, None)):
            raise ValueError(f"it holds more than {MOST:,} values")
    except (OSError, ValueError, RecursionError, ruamel.yaml.YAMLError) as error:
        checkpoints = runfiles.checkpoints(logdir)
        rule = f"cannot be read: {' '.join(str(error).split())}"
        remedy = "restore it from a copy, or remove it and give all flags of the run "
        remedy += f"again ({checkpoints}/*/{META} lists its settings)"
        raise ConfigError([Problem("logdir", str(path), rule, remedy)]) from error
    return config.flatten(found)


def _check_format(path: pathlib.Path, text: str) -> None:
    """Raise if a newer release wrote the file, or if its end is missing.

    The first line of the settings holds the format of the whole log directory, which
    release 0.1 did not write. Without the last line, settings could be missing, and
    their defaults would be taken.
    """
    first, _, rest = text.partition("\n")
    if first.startswith(HEAD):
        formats.check(path, int(first.removeprefix(HEAD)), FORMAT)
        if END not in rest:
            raise ValueError(f"it is truncated: there is no line {END.strip()!r}")


def _leaves(tree: Any) -> Iterator[bool]:
    """True for every value; short files can repeat parts of them many times."""
    if not isinstance(tree, dict | list):
        yield True
        return
    for part in tree.values() if isinstance(tree, dict) else tree:
        yield from _leaves(part)


def nothing_there(logdir: str) -> Problem:
    """A run to resume was named, but there is none."""
    path = pathlib.Path(logdir)
    runs = [found.parent.name for found in path.parent.glob(f"*/{runfiles.CONFIG}")]
    near = difflib.get_close_matches(path.name, runs, 1)
    remedy = f"did you mean {path.parent / near[0]}? " if near else ""
    remedy += "give --task or --configs as well to start a new run there"
    return Problem("logdir", logdir, "there is no run to resume", remedy)


@contextlib.contextmanager
def hold(logdir: str | os.PathLike) -> Iterator[None]:
    """Keep other runs out of a directory; the system lets go when the process ends."""
    directory = pathlib.Path(logdir)
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / runfiles.LOCK).open("a+", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            rule = f"a run is under way there (process {file.read() or 'unknown'})"
            remedy = "wait for it, stop it, or choose another --logdir"
            raise ConfigError([Problem("logdir", str(logdir), rule, remedy)]) from None
        file.truncate(0)
        file.write(f"{os.getpid()} on {socket.gethostname()}")
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)  # Viewers on other machines cannot see the lock itself.


def save(values: Flat) -> None:
    """Keep the settings with the run."""
    yaml = ruamel.yaml.YAML()
    yaml.default_flow_style = False
    yaml.width = 4096  # One line a setting: viewers read the lines they need.
    path = pathlib.Path(values["logdir"]) / runfiles.CONFIG
    with files.replace(path, durable=True) as file:
        file.write(f"{HEAD}{FORMAT}\n".encode())
        yaml.dump(config.nest({k: _plain(v) for k, v in values.items()}), file)
        file.write(END.encode())


def differences(saved: Flat, values: Flat) -> dict[str, tuple[Any, Any]]:
    """Keys whose value changed since the last run, with both values."""
    both = [key for key in values if key in saved and key != "logdir"]
    return {k: (saved[k], values[k]) for k in both if saved[k] != values[k]}


def check(saved: Flat, values: Flat) -> list[Problem]:
    """Problems of changed keys on which stored steps or parameters depend.

    Those of another size of the model are one problem. Where nothing was stored, as by
    a run that failed at its start, everything may change.
    """
    if not has_run(values["logdir"]):
        return []
    changed = {
        key: change
        for key, change in differences(saved, values).items()
        if FIXED.fullmatch(key) and not FREE.fullmatch(key)
        if key != "task" or not _may_follow(*change)
    }
    scripts = saved.get("script"), values["script"]
    if scripts[0] == PARALLEL and scripts[1] in SERIAL:  # The other way works.
        changed["script"] = scripts
    model = [key for key in changed if key.startswith("agent.")]
    if len(model) <= FEW:
        return [_problem(key, *change) for key, change in changed.items()]
    first = f"{model[0]} {show(changed[model[0]][0])}, not {show(changed[model[0]][1])}"
    rule = f"this log directory was made with another model: {first}, and so on"
    whole = Problem("agent", f"{len(model)} changed keys", rule, _remedy("the size"))
    others = [key for key in changed if key not in model]
    return [*(_problem(key, *changed[key]) for key in others), whole]


def has_run(logdir: str | os.PathLike) -> bool:
    """Whether there is something to resume."""
    steps = pathlib.Path(logdir) / runfiles.REPLAY
    return bool(complete(runfiles.checkpoints(logdir))) or holds_steps(steps)


def check_spaces(
    logdir: str | os.PathLike, obs_space: base.Spaces, act_space: base.Spaces
) -> list[Problem]:
    """Problems of an environment that is not the one of the run that lives there.

    If the file of its spaces is damaged, they are those of the environment: stored
    steps and parameters with other ones are rejected where they are loaded.
    """
    try:
        before = spacefile.read(logdir) if has_run(logdir) else None
    except spacefile.SpacesError as error:
        elements.print(f"{error}; this start does.", color="yellow", flush=True)
        before = None
    if before is None:
        return []
    remedy = _remedy("the environment")
    return [
        Problem(name, new, f"the environment of this log directory has {old}", remedy)
        for name, old, new in spacefile.differences(before, (obs_space, act_space))
    ]


def _problem(key: str, old: Any, new: Any) -> Problem:
    rule = f"this log directory was made with {show(old)}"
    return Problem(key, show(new), rule, _remedy(key))


def _remedy(what: str) -> str:
    return (
        f"leave {what} as it was to resume that run, or choose another --logdir "
        "for a new one (run.from_checkpoint can take over its parameters)"
    )


def _may_follow(old: str, new: str) -> bool:
    """Whether a task is a run's first one, or the old one in another folder.

    Older runs from Python have a file beside the program by its module.
    """
    labels = {custom.label(task).replace(".py:", ":") for task in (old, new)}
    return old == NO_TASK or len(labels) == 1


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
