"""Normalised scores of a suite: mean, median and interquartile mean, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dreamerv3.benchmarking import results
from dreamerv3.benchmarking.results import TaskResult
from dreamerv3.viewing import normalise
from dreamerv3.viewing.groups import Group
from dreamerv3.viewing.normalise import Summary

RESAMPLES = 2000  # Of the seeds of each task.
LEVEL = 0.95
DMC = (0.0, 1000.0)  # Least and most score of every task of the suite.
NAMES = ("mean", "median", "iqm")


class Aggregate(NamedTuple):
    """One method over all tasks that it and ours have."""

    summary: Summary
    low: tuple[float, float, float]  # Of mean, median and IQM.
    high: tuple[float, float, float]


def scales(found: Sequence[TaskResult]) -> dict[str, tuple[float, float]]:
    """Scores that count as 0 and 1 by task: random and human, or the suite's limits."""
    known = normalise.baselines()
    for result in found:
        if result.task.startswith("dmc_"):
            known[normalise.plain(result.task)] = DMC
    return known


def unit(found: Sequence[TaskResult]) -> str:
    """What normalised scores mean."""
    if all(result.task.startswith("dmc_") for result in found):
        return "score / 1000"
    return "human-normalised"


def collect(found: Sequence[TaskResult]) -> list[Aggregate]:
    """Final scores of each method, published ones where ours ended."""
    known = scales(found)
    groups: list[Group] = []
    for result in found:
        last = results.reached(result.ours)
        every = [*result.ours, *(theirs for _, theirs in result.published)]
        cut = [results.until(each, last) for each in every]
        scaled = [normalise.normalised(each, known) for each in cut if len(each.x)]
        groups += [each for each in scaled if each and np.isfinite(each.seeds).any()]
    summaries = normalise.summarise(groups) if groups else []
    return [_with_interval(summary, groups) for summary in summaries]


def _with_interval(summary: Summary, groups: Sequence[Group]) -> Aggregate:
    finals = [each.final() for each in groups if each.method == summary.method]
    low, high = bootstrap(finals)
    return Aggregate(summary, low, high)


def bootstrap(
    finals: Sequence[np.ndarray],
) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
    """Interval of mean, median and IQM, with the seeds of each task drawn anew."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(each, (RESAMPLES, len(each))) for each in finals]
    means = np.stack([each.mean(1) for each in drawn])  # [task, resample]
    runs = np.concatenate(drawn, 1)  # [resample, run]
    iqm = [normalise.interquartile_mean(each) for each in runs]
    samples = np.stack([means.mean(0), np.median(means, 0), iqm])
    ends = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=1)
    low, high = (tuple(map(float, end)) for end in ends)
    return low, high  # type: ignore[return-value]
