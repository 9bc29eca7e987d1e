"""Settings of a run that learns from recorded steps: where they are, what they fit."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from dreamerv3.settings.config import Blocks, ConfigError, Flat, Problem, show
from dreamerv3.settings.flags import Flags
from dreamerv3.settings.logdir import NO_TASK
from dreamerv3.settings.schema import Settings
from embodied.core import base, runfiles, spacefile
from embodied.envs import original
from embodied.replay.layout import describe
from embodied.replay.recording import Recording, holds_steps
from embodied.run.importer import imported, step_keys

SCRIPT = "train_offline"
KEY = "replay.source"


def choose_task(values: Flat, typed: Flags, blocks: Blocks, saved: Flat) -> None:
    """Use an environment only if the user chose one, not the default task."""
    presets = [blocks.presets.get(name, {}) for name in typed.configs]
    asked = "task" in typed.values or any("task" in preset for preset in presets)
    if values["script"] == SCRIPT and not asked and not saved:
        values["task"] = NO_TASK


def has_env(config: Settings) -> bool:
    """Whether the script makes environments."""
    return config.script != SCRIPT or config.task != NO_TASK


def check(values: Flat) -> list[Problem]:
    """What is wrong with the recording, or with asking for one."""
    source, script = values[KEY], values["script"]
    if script != SCRIPT:
        unread = source and script != "eval_only"
        rule, remedy = f"script {script} reads no recording", f"give --script {SCRIPT}"
        return [Problem(KEY, source, rule, remedy)] if unread else []
    problems = []
    if not values["run.train_ratio"]:
        rule = f"script {SCRIPT} counts steps by it, so it must be more than 0"
        problems.append(Problem("run.train_ratio", 0, rule, "32 is usual"))
    if not source:
        remedy = "give --replay DIR: what dreamerv3.Recorder wrote, or a log directory"
        rule = f"script {SCRIPT} needs recorded steps"
        problems.append(Problem(KEY, "", rule, remedy))
    elif not imported(values["logdir"]):
        problems += _check_source(source, values)
    return problems


def find(source: str) -> pathlib.Path:
    """The folder with the steps: the one that is named, or the one in it."""
    path = pathlib.Path(source).expanduser()
    return path if holds_steps(path) else path / runfiles.REPLAY


def spaces(config: Settings) -> spacefile.Pair:
    """What was observed and done in the recording."""
    if imported(config.logdir):
        return _read_spaces(pathlib.Path(config.logdir))
    return _read_spaces(find(config.replay.source))


def read_original(config: Settings) -> dict[str, Any] | None:
    """The description of the environment that was recorded, if there is one."""
    folder = pathlib.Path(config.logdir)
    if not imported(config.logdir):
        folder = find(config.replay.source)
    return original.read(folder) or original.read(folder.parent)


def open_recording(config: Settings) -> Recording | None:
    """The recorded steps, or nothing once the run has all of them."""
    return None if imported(config.logdir) else Recording(find(config.replay.source))


def check_env(config: Settings, env: base.Env) -> None:
    """Raise unless an environment shows and takes what was recorded."""
    found = spacefile.differences(spaces(config), (env.obs_space, env.act_space))
    if found:
        remedy = "evaluate in the environment, and with the env.* settings, that it "
        remedy += f"was recorded with, or not at all: --task {NO_TASK}"
        rules = [f"differs from the recording in {each}" for each in found]
        problems = [Problem("task", config.task, rule, remedy) for rule in rules]
        raise ConfigError(problems)


def _check_source(source: str, values: Flat) -> list[Problem]:
    path, folder = pathlib.Path(source).expanduser(), find(source)
    remedy = "give what dreamerv3.Recorder wrote, or the log directory of a run"
    if not path.is_dir():
        return [Problem(KEY, source, "there is no such directory", remedy)]
    if not holds_steps(folder):
        rule = f"has no recorded steps, in itself or in its folder '{runfiles.REPLAY}'"
        return [Problem(KEY, source, rule, remedy)]
    own = pathlib.Path(values["logdir"]).expanduser() / runfiles.REPLAY
    if folder.resolve() == own.resolve():
        remedy = "choose another --logdir; the recording is copied there"
        return [Problem(KEY, source, "is the log directory of this run", remedy)]
    if not any((each / runfiles.SPACES).exists() for each in (folder, folder.parent)):
        rule = f"has no {runfiles.SPACES}, which says what the keys of the steps mean"
        return [Problem(KEY, source, rule, remedy)]
    recording = Recording(folder)
    return _check_keys(recording, source) or _check_amount(recording, source, values)


def _check_keys(recording: Recording, source: str) -> list[Problem]:
    obs_space, act_space = _read_spaces(recording.directory)
    spaces = {**obs_space, **act_space}
    kept = {key: spaces[key] for key in step_keys(spaces)}
    for file in recording.files:
        fields = {x.name: (x.dtype, x.shape) for x in file.schema}
        for key, space in kept.items():
            if fields.get(key) != (np.dtype(space.dtype), tuple(space.shape)):
                stored = describe(file.schema).get(key, "nothing")
                due = spacefile.describe(space)
                rule = f"{file.path.name} has {stored} for '{key}', not {due}"
                remedy = "remove that file, or record again into a new directory"
                return [Problem(KEY, source, rule, remedy)]
    return []


def _check_amount(recording: Recording, source: str, values: Flat) -> list[Problem]:
    steps, size = len(recording), values["replay.size"]
    if steps > size:
        rule = f"must hold all {steps:,} recorded steps"
        return [Problem("replay.size", show(size), rule, f"give {steps} or more")]
    length = values["replay_context"] + values["consec_train"] * values["batch_length"]
    found = recording.sequences(length)
    if found < values["batch_size"]:
        rule = f"its {steps:,} steps hold {found} sequences of {length} steps, fewer "
        rule += f"than batch_size, {values['batch_size']}"
        remedy = "record more, or give a smaller --batch_length or --batch_size"
        return [Problem(KEY, source, rule, remedy)]
    return []


def _read_spaces(folder: pathlib.Path) -> spacefile.Pair:
    found = spacefile.read(folder) or spacefile.read(folder.parent)
    assert found is not None, f"the check has seen {runfiles.SPACES} at {folder}"
    return found
