"""Scores relative to a random policy (0) and a human (1), and their summary."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dreamerv3.viewing.groups import Group

FILE = pathlib.Path(__file__).parent / "baselines.json"


class Summary(NamedTuple):
    """One method over all tasks with known scores."""

    method: str
    tasks: int
    runs: int
    mean: float  # Over tasks, of the mean over seeds.
    median: float  # Over tasks, of the mean over seeds.
    iqm: float  # Mean of the middle half of all runs of all tasks.


def baselines(path: pathlib.Path = FILE) -> dict[str, tuple[float, float]]:
    """Random and human score by task, its name without anything but letters."""
    data: dict[str, Any] = json.loads(path.read_text())
    return {
        plain(f"{suite}_{name}"): (low, high)
        for suite in data["suites"]
        for name, (low, high) in data["scores"].items()
    }


def plain(task: str) -> str:
    """A task's name for comparison: atari_MsPacman is atari_ms_pacman."""
    suite, _, name = task.partition("_")
    return f"{suite}_{re.sub('[^a-z0-9]', '', name.lower())}"


def normalised(group: Group, known: dict[str, tuple[float, float]]) -> Group | None:
    """The group with 0 for random and 1 for human, or nothing if they are unknown."""
    if plain(group.task) not in known:
        return None
    low, high = known[plain(group.task)]
    scale = high - low
    return group._replace(
        seeds=(group.seeds - low) / scale,
        mean=(group.mean - low) / scale,
        std=group.std / scale,
    )


def summarise(groups: Sequence[Group]) -> list[Summary]:
    """A summary of the final scores for each method; groups must be normalised."""
    result = []
    for method in dict.fromkeys(group.method for group in groups):
        finals = [group.final() for group in groups if group.method == method]
        means = [final.mean() for final in finals]
        runs = np.concatenate(finals)
        result.append(
            Summary(
                method,
                len(means),
                len(runs),
                float(np.mean(means)),
                float(np.median(means)),
                interquartile_mean(runs),
            )
        )
    return result


def interquartile_mean(values: np.ndarray) -> float:
    """Mean without the lowest and the highest quarter; parts of values count in part.

    Of n values, weights fall to zero so that exactly n / 2 remain.
    """
    values = np.sort(values)
    amount = len(values)
    edges = np.arange(amount + 1)
    weight = np.clip(edges[1:], amount / 4, 3 * amount / 4)
    weight = weight - np.clip(edges[:-1], amount / 4, 3 * amount / 4)
    return float((values * weight).sum() / weight.sum())


def table(summaries: Sequence[Summary]) -> str:
    """The summary as lines of text."""
    width = max(len("method"), *(len(s.method) for s in summaries))
    head = f"{'method':<{width}}  tasks  runs    mean  median     IQM"
    rows = [
        f"{s.method:<{width}}  {s.tasks:5}  {s.runs:4}  {s.mean:6.2f}  {s.median:6.2f}"
        f"  {s.iqm:6.2f}"
        for s in summaries
    ]
    return "\n".join([head, *rows])
