"""Curves that others published, to lay over runs of the same task.

Steps of a run count actions; published steps count what the simulator did, after action
repeat. So x is always agent steps times action repeat here, and a published bin is
labelled by its right edge.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dreamerv3.settings import logdir
from dreamerv3.viewing import normalise, runs, standalone
from dreamerv3.viewing.curves import band
from embodied.core import runfiles
from embodied.metrics.jsonl import SCORE, read_rows

HELP = "also show published curves of the same tasks, where there are some"
FURTHER = 1.5  # How far published curves go near runs, as a multiple.
FOLDER = pathlib.Path(__file__).parent / "published_curves"


class Published(NamedTuple):
    """Curves of one agent on the tasks of one suite."""

    name: str
    title: str
    source: str
    unit: str  # What x counts, after action repeat.
    bin: int  # Width of a bin in that unit.
    match: dict[str, Any]  # Settings of a run that it can be compared with.
    protocol: dict[str, float]  # What is known: repeat, envs, train_ratio.
    agent: str
    model: str
    scores: str
    tasks: dict[str, np.ndarray]  # [seed, bin], NaN where no episode ended

    def x(self, task: str) -> np.ndarray:
        """Right edges of the bins [bin]."""
        return self.bin * np.arange(1, 1 + self.tasks[task].shape[1])

    def find(self, task: str, values: Mapping[str, Any]) -> str:
        """The name here of a run's task; empty if the run cannot be compared."""
        if any(key in values and values[key] != v for key, v in self.match.items()):
            return ""
        names = {normalise.plain(name): name for name in self.tasks}
        return names.get(normalise.plain(task), "")


@functools.cache
def load() -> tuple[Published, ...]:
    """All sets of curves that come with the package, by name."""
    return tuple(_read(path) for path in sorted(FOLDER.glob("*.json")))


def _read(path: pathlib.Path) -> Published:
    data = json.loads(path.read_text())
    tasks = {k: np.array(rows, float) for k, rows in data.pop("tasks").items()}
    return Published(name=path.stem, tasks=tasks, **data)


def action_repeat(task: str, values: Mapping[str, Any]) -> int:
    """Simulator steps or frames of one step of the agent."""
    suite = task.partition("_")[0]
    return int(values.get(f"env.{suite}.repeat", 1))


@contextlib.contextmanager
def overlay(
    places: Sequence[str], wanted: bool = True, near: bool = False
) -> Iterator[list[str]]:
    """Places with runs, and one more with published curves of their tasks.

    With `near`, curves end not far behind the runs. Prints where the curves are from;
    their place is removed in the end.
    """
    with tempfile.TemporaryDirectory() as directory:
        if not wanted:
            yield list(places)
            return
        folder = pathlib.Path(directory).resolve() / runs.OVERLAY
        folder.mkdir()
        notes = materialise(folder, runs.find(places, strict=False), near)
        print("\n".join(notes or ["There are no published curves of these tasks."]))
        yield [*places, str(folder)]


def materialise(
    directory: pathlib.Path, found: Sequence[runs.Run], near: bool = False
) -> list[str]:
    """Write log directories with the published seeds of the tasks of some runs.

    They are read as runs are, with steps divided by the action repeat of the first run
    of each task. Returns a line on each set of curves.
    """
    notes = []
    for task, run in {run.task: run for run in reversed(found)}.items():
        values = logdir.load(run.path)
        repeat = action_repeat(task, values)
        own = [last_step(each.path) for each in found if each.task == task]
        limit = FURTHER * repeat * max(own) if near else np.inf
        for curves in load():
            name = curves.find(task, values)
            if name and curves.bin <= limit:
                folder = directory / curves.name / task
                _write(folder, curves, name, (task, repeat, limit))
                notes.append(f"{task}: {note(curves, repeat)}")
    return notes


def last_step(path: pathlib.Path) -> int:
    """The step of a run's last score; 0 if it has none."""
    rows = read_rows(path / runfiles.SCORES)
    return int(rows[-1]["step"]) if rows else 0


def series(task: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Published means of a task with one standard deviation, over a run's steps."""
    repeat, found = action_repeat(task, values), []
    for curves in load():
        if name := curves.find(task, values):
            mean, deviation = band(curves.tasks[name])
            ends = {"low": mean - deviation, "high": mean + deviation}
            numbers = {"x": curves.x(name) / repeat, "y": mean, **ends}
            lines = {k: standalone.numbers(v) for k, v in numbers.items()}
            found.append({"name": curves.title, **lines})
    return found


def note(curves: Published, repeat: int) -> str:
    """Where curves are from and how their steps were converted."""
    return (
        f"{curves.title} ({curves.source}), {curves.unit} divided by the action "
        f"repeat {repeat} of the run"
    )


def _write(
    directory: pathlib.Path,
    curves: Published,
    name: str,
    target: tuple[str, int, float],
) -> None:
    """Write the seeds of a task as runs of a task, action repeat and last x."""
    task, repeat, limit = target
    for seed, row in enumerate(curves.tasks[name]):
        folder = directory / f"seed{seed}"
        folder.mkdir(parents=True)
        header = {"task": task, "method": curves.title, "seed": seed}
        text = "".join(f"{key}: {json.dumps(v)}\n" for key, v in header.items())
        (folder / runfiles.CONFIG).write_text(text)
        points = zip(curves.x(name), row, strict=True)
        lines = [
            json.dumps({"step": int(x / repeat), SCORE: float(y)})
            for x, y in points
            if np.isfinite(y) and x <= limit
        ]
        (folder / runfiles.SCORES).write_text("".join(f"{line}\n" for line in lines))
        os.utime(folder / runfiles.SCORES, (0, 0))  # No run that is active.
