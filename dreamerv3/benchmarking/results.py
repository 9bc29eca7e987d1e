"""Scores of a benchmark on the bins of the published curves, and their comparison."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dreamerv3.benchmarking.jobs import Job
from dreamerv3.viewing import published
from dreamerv3.viewing.groups import Group
from dreamerv3.viewing.published import Published
from embodied.core import runfiles
from embodied.metrics.jsonl import SCORE, read_rows

BINS = 20  # Of a task without published curves.
STEPS = (1, 2.5, 5)  # Of each decade, that the table has rows for.
SCORES = "training episodes"  # What ours are of.
DEVIATIONS = 2  # Below the published mean, twice in a row: a finding.


class TaskResult(NamedTuple):
    """Our curves of one task, and published ones of the same."""

    task: str
    unit: str  # What x counts.
    bin: int
    ours: list[Group]  # One a method.
    published: list[tuple[Published, Group]]


class Cell(NamedTuple):
    """Scores around one step."""

    step: int
    mean: float
    deviation: float  # Of the seeds, NaN for one.
    seeds: int


def collect(jobs: Sequence[Job]) -> list[TaskResult]:
    """The curves of all tasks of which an episode was logged."""
    found = []
    for task in dict.fromkeys(job.task for job in jobs):
        own = [job for job in jobs if job.task == task]
        sets = [s for s in published.load() if s.find(task, own[0].values)]
        sets.sort(key=_by_bin)
        steps = max(job.steps * job.repeat for job in own)
        width = sets[0].bin if sets else max(1, round(steps / BINS))
        ours = [_ours(own, method, width, steps) for method in _methods(own)]
        ours = [group for group in ours if len(group.seeds)]
        theirs = [(s, _theirs(s, s.find(task, own[0].values), task)) for s in sets]
        last = published.FURTHER * reached(ours)
        theirs = [(s, until(each, last)) for s, each in theirs if each.x[0] <= last]
        if ours:
            unit = sets[0].unit if sets else "steps"
            found.append(TaskResult(task, unit, width, ours, theirs))
    return found


def _by_bin(curves: Published) -> tuple[int, str]:
    return curves.bin, curves.name


def _methods(jobs: Sequence[Job]) -> list[str]:
    return list(dict.fromkeys(job.method for job in jobs))


def _ours(jobs: Sequence[Job], method: str, width: int, steps: int) -> Group:
    """Mean of the training episodes that ended in each bin, as published ones are."""
    x = width * np.arange(1, 1 + math.ceil(steps / width))
    own = [job for job in jobs if job.method == method]
    rows = [row for row in (binned(job, x) for job in own) if np.isfinite(row).any()]
    return group(jobs[0].task, method, x, np.array(rows).reshape(-1, len(x)))


def _theirs(curves: Published, name: str, task: str) -> Group:
    return group(task, curves.title, curves.x(name), curves.tasks[name])


def group(task: str, method: str, x: np.ndarray, seeds: np.ndarray) -> Group:
    """Curves with mean and sample deviation over the seeds that have a value."""
    count = np.isfinite(seeds).sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.nansum(seeds, 0) / count
        square = np.nansum((seeds - mean) ** 2, 0) / (count - 1)
    return Group(task, method, x, seeds, mean, np.sqrt(square))


def binned(job: Job, x: np.ndarray) -> np.ndarray:
    """Mean score of the episodes that ended up to each x, after the one before."""
    steps, scores = episodes(job.logdir)
    place = np.searchsorted(x, steps * job.repeat, "left")
    inside = (place < len(x)) & np.isfinite(scores)
    total = np.bincount(place[inside], scores[inside], len(x))
    with np.errstate(invalid="ignore"):
        return total / np.bincount(place[inside], minlength=len(x))


def episodes(logdir: pathlib.Path) -> tuple[np.ndarray, np.ndarray]:
    """Agent steps at the ends of a training's episodes, and their scores.

    A serial training that was killed repeats the steps since its last checkpoint: what
    it had written of them is left out.
    """
    rows = read_rows(logdir / runfiles.SCORES)
    steps = np.array([row["step"] for row in rows], float)
    scores = np.array([row.get(SCORE) for row in rows], float)
    kept = steps <= np.minimum.accumulate(steps[::-1])[::-1]
    return steps[kept], scores[kept]


def until(curves: Group, last: float) -> Group:
    """The part of curves up to some x."""
    return _select(curves, curves.x <= last)


def without_gaps(curves: Group) -> Group:
    """The bins that any seed has a value in, so that a line runs through them."""
    return _select(curves, np.isfinite(curves.mean))


def _select(curves: Group, keep: np.ndarray) -> Group:
    return Group(
        curves.task,
        curves.method,
        curves.x[keep],
        curves.seeds[:, keep],
        curves.mean[keep],
        curves.std[keep],
    )


def table_steps(width: int, last: float) -> list[int]:
    """Round numbers of steps that a table has columns for."""
    decades = 10 ** np.arange(0, 10)
    every = [int(step * decade) for decade in decades for step in STEPS]
    return [step for step in every if width <= step <= last]


def cell(curves: Group, width: int, step: int, last: float = np.inf) -> Cell:
    """Scores at a step: of the bins up to one width around it that ours reached."""
    around = width if step >= 2 * width else 0
    near = (abs(curves.x - step) <= around) & (curves.x <= last)
    rows = curves.seeds[:, near]
    rows = rows[np.isfinite(rows).any(1)] if near.any() else rows[:0]
    means = np.array([row[np.isfinite(row)].mean() for row in rows])
    deviation = float(means.std(ddof=1)) if len(means) > 1 else np.nan
    return Cell(
        step, float(means.mean()) if len(means) else np.nan, deviation, len(means)
    )


def reached(curves: Sequence[Group]) -> float:
    """The last x at which any of the curves has a value."""
    ends = [each.x[np.isfinite(each.mean)] for each in curves]
    return float(max((end[-1] for end in ends if len(end)), default=0))


def findings(result: TaskResult) -> list[str]:
    """Where a curve is far below a published one of the same bins."""
    found = []
    for ours in result.ours:
        for curves, theirs in result.published:
            if curves.bin != result.bin:
                continue
            amount = min(len(ours.x), len(theirs.x))
            limit = theirs.mean[:amount] - DEVIATIONS * theirs.std[:amount]
            below = ours.mean[:amount] < limit
            for index in np.flatnonzero(below[1:] & below[:-1]) + 1:
                found.append(
                    f"{result.task}, {ours.method}: more than {DEVIATIONS} standard "
                    f"deviations below {curves.title} at {ours.x[index - 1]:,} and "
                    f"{ours.x[index]:,} {result.unit}"
                )
                break
    return found


def differences(curves: Published, jobs: Sequence[Job]) -> list[str]:
    """How what was run differs from a published protocol, in words."""
    values, first = jobs[0].values, jobs[0]
    here = {
        "repeat": ("action repeat", first.repeat),
        "envs": ("environments", values["run.envs"]),
        "train_ratio": ("train ratio", values["run.train_ratio"]),
    }
    words = []
    for key, (name, own) in here.items():
        known = curves.protocol.get(key)
        if known is None:
            words.append(f"{name}: not in the score file; here {own:g}")
        elif known != own:
            words.append(f"{name}: published {known:g}, here {own:g}")
    name = next(n for j in jobs if (n := curves.find(j.task, j.values)))
    seeds, mixed = len(curves.tasks[name]), values["agent.policy.unimix"]
    words += [
        f"agent: published {curves.agent}; here the Nature algorithm of this package",
        f"model: {curves.model}; here {_model(values)}",
        f"batch: not in the score file; here {values['batch_size']} x "
        f"{values['batch_length']}",
        f"seeds: published {seeds}, here {len({job.seed for job in jobs})}",
    ]
    last, own = int(curves.x(name)[-1]), first.steps * first.repeat
    if last != own:
        words.append(f"steps: published up to {last:,}, here {own:,} {curves.unit}")
    if curves.scores != SCORES:
        words.append(f"scores: published {curves.scores}; here {SCORES}")
    if name.startswith("atari"):
        words.append(f"uniform share of the discrete policy: here {mixed:g}")
    return words


def _model(values: Mapping[str, Any]) -> str:
    rssm = "agent.dyn.rssm"
    return (
        f"deter {values[f'{rssm}.deter']}, hidden {values[f'{rssm}.hidden']}, "
        f"units {values['agent.policy.units']}, {values['agent.policy.layers']} layers"
    )
