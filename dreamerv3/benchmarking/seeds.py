"""Trains one command line with several seeds: `dreamerv3 … --seeds 0 1 2`."""

from __future__ import annotations

import os
import pathlib

import numpy as np

from dreamerv3 import main
from dreamerv3.benchmarking import api, display, local, schedule
from dreamerv3.benchmarking.jobs import Job
from dreamerv3.benchmarking.schedule import Progress
from dreamerv3.settings import config, flags
from dreamerv3.settings.config import ConfigError, Problem

CORES = 4  # Of a CPU for each training at the same time.


def run(blocks: config.Blocks, typed: flags.Flags, problems: list[Problem]) -> bool:
    """Train with each seed, as many at a time as fit; returns whether all are done.

    Each seed has its folder in the log directory, so that the same command resumes
    what was interrupted and leaves alone what is complete.
    """
    jobs = make(blocks, typed, problems)
    progress = Progress(jobs, slots())
    if typed.dry_run:
        for job in jobs:
            print(f"{job.name}: {progress.state(job)}, {job.typed}")
        print(main.DRY_RUN)
        return True
    runner = local.LocalRunner(progress.slots)
    with api.terminable(), display.shown(progress) as show:
        schedule.run(progress, runner, show)
    print(summary(progress), flush=True)
    return all(progress.state(job) == "done" for job in jobs)


def make(
    blocks: config.Blocks, typed: flags.Flags, problems: list[Problem]
) -> list[Job]:
    """A job for each seed; raises `ConfigError` with all problems."""
    if "seed" in typed.values:
        rule, remedy = "is set by --seeds", "leave out --seed"
        problems.append(Problem("seed", "", rule, remedy))
    script = flags.layer(blocks, typed, {}, list(problems))["script"]
    if script not in main.TRAINING:
        remedy = f"use --script {' or '.join(main.TRAINING)}"
        problems.append(Problem("script", script, "does not train", remedy))
    if "run.duration" in typed.values:
        rule = "cannot be combined with --seeds, which end at the same step"
        problems.append(Problem("run.duration", "", rule, "give --run.steps"))
    values, saved = main.resolve(blocks, typed, problems)
    if saved:
        rule = "holds a run, and each seed needs a directory of its own"
        problem = Problem("logdir", values["logdir"], rule, "give another directory")
        raise ConfigError([problem])
    folder = pathlib.Path(values["logdir"]).absolute()
    words = ["--configs", *typed.configs] if typed.configs else []
    for key, given in typed.values.items():
        words += [f"--{key}", *given] if key != "logdir" else []
    jobs = []
    for seed in typed.seeds:
        path = folder / f"seed{seed}"
        own = (*words, "--seed", str(seed), "--logdir", str(path))
        steps = int(values["run.steps"])
        task, method = values["task"], values["method"]
        jobs.append(Job(task, method, seed, steps, 1, path, own, values))
    return jobs


def slots() -> int:
    """Trainings at the same time: one for each GPU, or for every four cores."""
    return local.count_gpus() or max(1, len(os.sched_getaffinity(0)) // CORES)


def summary(progress: Progress) -> str:
    """A line for each seed, and mean and deviation of the scores."""
    lines = []
    for job in progress.jobs:
        status = progress.status[job]
        lines.append(
            f"seed {job.seed}: {progress.state(job)}, step {status.step:,}, "
            f"score {status.score:.2f}, {job.logdir}"
        )
        if job in progress.failed:
            lines.append(progress.failed[job])
    scores = [progress.status[job].score for job in progress.jobs]
    known = [score for score in scores if np.isfinite(score)]
    if known:
        lines.append(
            f"Score of {len(known)} of {len(scores)} seeds: mean {np.mean(known):.2f}, "
            f"standard deviation {np.std(known):.2f} (the last episodes of each)."
        )
    return "\n".join(lines)
