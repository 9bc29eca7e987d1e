"""Jobs of a benchmark: one training each, and what its log directory says of it."""

from __future__ import annotations

import dataclasses
import fcntl
import itertools
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dreamerv3 import main
from dreamerv3.benchmarking import suites
from dreamerv3.settings import config, flags
from dreamerv3.settings.config import ConfigError, Flat, Problem
from dreamerv3.viewing import published
from embodied.core import runfiles
from embodied.envs import registry
from embodied.metrics.jsonl import SCORE, read_rows

OWN = ("task", "seed", "logdir", "method", "run.steps", "run.duration")
TAIL = 1 << 18  # Bytes at the end of a file of metrics that are looked at.
RECENT = 20  # Episodes whose mean is the score of a job that runs.

NEW, HELD, PARTIAL, DONE = "new", "held", "partial", "done"


class Request(NamedTuple):
    """What was asked for."""

    suite: str
    tasks: tuple[str, ...] = ()  # None: all of the suite.
    seeds: int = 5
    budget: int = 0  # Agent steps times action repeat; 0: that of the suite.
    sweep: Mapping[str, Sequence[str]] = {}  # Setting to its values.
    logdir: str = "logdir/benchmark"
    flags: tuple[str, ...] = ()  # Further flags of every training.


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """One training."""

    task: str
    method: str  # What distinguishes it from other runs of the task.
    seed: int
    steps: int  # Of the agent.
    repeat: int  # Simulator steps or frames of one of them.
    logdir: pathlib.Path
    words: tuple[str, ...]  # The command line after `dreamerv3`.
    values: Flat  # Its settings.

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.task} {self.method} seed {self.seed}"

    @property
    def typed(self) -> str:
        """The training as one would type it."""
        return shlex.join(["dreamerv3", *self.words])


class Status(NamedTuple):
    """What a log directory tells."""

    state: str
    step: int = 0
    score: float = np.nan  # Mean of the last episodes.
    rate: float = np.nan  # Steps of the agent per second, lately.


def make(request: Request) -> list[Job]:
    """All jobs, with every setting checked; raises `ConfigError` with all problems."""
    blocks = config.read_blocks()
    suite = suites.find(request.suite, blocks)
    problems: list[Problem] = []
    typed = flags.parse(request.flags, problems)
    problems += _check(request, typed)
    if problems:
        raise ConfigError(problems)
    sweep = [[(key, v) for v in values] for key, values in request.sweep.items()]
    jobs, found = [], []
    for task in request.tasks or suite.tasks:
        registry.resolve(task)  # Raises if it cannot be made on this machine.
        for setting in itertools.product(*sweep):
            for seed in range(request.seeds):
                try:
                    jobs.append(
                        _job(request, suite, blocks, typed, task, setting, seed)
                    )
                except ConfigError as error:
                    found += error.problems
    if found:
        raise ConfigError(list(dict.fromkeys(found)))
    return jobs


def _check(request: Request, typed: flags.Flags) -> list[Problem]:
    remedy = "use --tasks, --seeds, --budget, --sweep and --logdir of the benchmark"
    taken = {*typed.values, *request.sweep} & set(OWN)
    problems = [
        Problem(key, "", "is set for each training by the benchmark", remedy)
        for key in sorted(taken)
    ]
    if request.seeds < 1:
        problems.append(Problem("seeds", str(request.seeds), "must be 1 or more", ""))
    if request.budget < 0:
        problems.append(Problem("budget", str(request.budget), "must be above 0", ""))
    for key, values in request.sweep.items():
        if not values:
            rule = "needs a key and its values"
            problems.append(Problem("sweep", key, rule, f"--sweep {key} V1 V2"))
    return problems


def _job(
    request: Request,
    suite: suites.Suite,
    blocks: config.Blocks,
    typed: flags.Flags,
    task: str,
    setting: Sequence[tuple[str, str]],
    seed: int,
) -> Job:
    method = " ".join(f"{key.split('.')[-1]}={value}" for key, value in setting)
    folder = pathlib.Path(request.logdir).expanduser().absolute() / _plain(task)
    folder = folder / _plain(method) if method else folder
    method = method or "dreamerv3"
    words = ["--configs", *suite.configs, *typed.configs]
    for key, given in typed.values.items():
        words += [f"--{key}", *given]
    for key, value in setting:
        words += [f"--{key}", value]
    words += ["--task", task, "--seed", str(seed), "--method", method]
    words += ["--logdir", str(folder / f"seed{seed}")]
    values = _resolve(blocks, words)
    repeat = published.action_repeat(task, values)
    budget = request.budget or suite.budget
    steps = -(-budget // repeat) if budget else int(values["run.steps"])
    words += ["--run.steps", str(steps)]
    path = folder / f"seed{seed}"
    return Job(task, method, seed, steps, repeat, path, tuple(words), values)


def _resolve(blocks: config.Blocks, words: Sequence[str]) -> Flat:
    problems: list[Problem] = []
    typed = flags.parse(words, problems)
    return main.resolve(blocks, typed, problems)[0]


def _plain(text: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", text)


def look(job: Job, own: bool = False) -> Status:
    """The state of a job, from its log directory alone.

    The lock of a process of this command (`own`) is not tried: it might be starting.
    """
    rows = read_rows(job.logdir / runfiles.METRICS, last=TAIL)
    step = int(rows[-1]["step"]) if rows else 0
    found = read_rows(job.logdir / runfiles.SCORES, last=TAIL)
    scores = [row.get(SCORE) for row in found]
    known = [score for score in scores if score is not None][-RECENT:]
    score = float(np.mean(known)) if known else np.nan
    if own or held(job.logdir):
        state = HELD
    elif step >= job.steps:
        state = DONE
    else:
        state = PARTIAL if (job.logdir / runfiles.CONFIG).exists() else NEW
    return Status(state, step, score, _rate(rows))


def held(directory: pathlib.Path) -> bool:
    """Whether a training runs there, of this command or another one."""
    try:
        with (directory / runfiles.LOCK).open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def _rate(rows: Sequence[dict[str, Any]]) -> float:
    """Steps per second over the last rows."""
    timed = [(row["step"], row["time"]) for row in rows if "time" in row]
    if len(timed) < 2 or timed[-1][1] <= timed[0][1] or timed[-1][0] <= timed[0][0]:
        return np.nan
    return (timed[-1][0] - timed[0][0]) / (timed[-1][1] - timed[0][1])
