"""Logger outputs by name: what they need and how they are made."""

from __future__ import annotations

import contextlib
import importlib.util
import multiprocessing
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial as bind
from typing import Any

import elements
import psutil

from dreamerv3.settings.config import ConfigError, Flat, Problem, complete
from dreamerv3.settings.schema import Settings
from embodied import metrics
from embodied.core import extras
from embodied.metrics import screen
from embodied.metrics.summary import Output

EXTRAS = ("wandb", "mlflow", "expa")  # Outputs whose extra and package have that name.


def make(
    config: Settings, step: elements.Counter | None = None
) -> list[metrics.Background]:
    """All outputs, each in a thread in which it is made.

    Settings that `config` lacks have their defaults, except `logdir`. Raises
    `ConfigError` with the outputs that cannot be made.
    """
    if "logdir" not in config.flat:
        remedy = "name the directory that the outputs write to"
        raise ConfigError([Problem("logdir", "''", "is missing", remedy)])
    config = complete(config)
    if problems := check(dict(config.flat)):
        raise ConfigError(problems)
    made = []
    for name in config.logger.outputs:
        if name == "terminal":
            # Lines stay in order with what the run prints, and the first comes at once.
            make_view = bind(_terminal, config, step)
            made.append(metrics.Background(name, make_view, patience=1.0, eager=True))
        else:
            made.append(metrics.Background(name, bind(OUTPUTS[name], config)))
    return made


@contextlib.contextmanager
def terminal(config: Settings) -> Iterator[None]:
    """Leave the terminal as it was, even if the process with the view was killed."""
    try:
        yield
    finally:
        if "terminal" in config.logger.outputs and live(config):
            screen.restore(sys.stdout)


def live(config: Settings) -> bool:
    """Whether the output terminal is a live view."""
    if config.script == "eval_only":
        return False  # All it says comes at its end.
    if config.logger.live == "auto":
        return screen.suits(sys.stdout)
    return config.logger.live == "on" and sys.stdout.isatty()


def check(values: Flat) -> list[Problem]:
    """Outputs that do not exist, or lack their package or a setting."""
    problems = []
    key = "logger.outputs"
    for name in values[key]:
        if name not in OUTPUTS:
            rule = "there is no such output"
            problems.append(Problem(key, name, rule, f"choose from {_choices()}"))
        elif name in EXTRAS and not _installed(name):
            remedy = f"{extras.install_line(name)}, or choose from {_choices()}"
            problems.append(Problem(key, name, "its package is missing", remedy))
        elif name == "expa" and not values["logger.expa.url"]:
            remedy = "for example --logger.expa.url http://localhost:8000/api"
            rule = "the output expa needs the address of a server"
            problems.append(Problem("logger.expa.url", "''", rule, remedy))
    return problems


def _choices() -> str:
    """All outputs, those that need an extra last."""
    plain = [name for name in OUTPUTS if name not in EXTRAS]
    return f"{', '.join(plain)}, or with the extra of that name {', '.join(EXTRAS)}"


def _installed(package: str) -> bool:
    """Whether there is such a package, and not just a folder of that name."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None


def _terminal(config: Settings, step: elements.Counter | None = None) -> Output:
    status = metrics.Status(
        config.logger.filter,
        config.run.steps,
        config.run.duration,
        None if step is None else bind(int, step),
        passed=_passed(),
    )
    waiting = bind(_waiting, config)
    if not live(config):
        return metrics.TerminalOutput(status=status, waiting=waiting)
    supervised = config.script == "parallel"
    return metrics.LiveOutput(status, config.logdir, waiting, supervised)


def _passed() -> float:
    """Seconds since the launcher started; its logger may have restarted since."""
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid is None:
        return 0.0
    return time.time() - psutil.Process(parent.pid).create_time()


def _waiting(config: Settings, status: metrics.Status) -> str:
    """What the first metrics wait for."""
    trains = not config.random_agent and config.run.train_ratio
    compiles = "" if config.random_agent else "; compiling, about a minute on a CPU"
    if config.script == "eval_only":
        return f"for {config.run.eval_episodes} episodes{compiles}"
    if not status.progress.step:
        offline = config.script == "train_offline"
        what = "recorded steps and first updates" if offline else "first steps"
        return f"for the {what}{compiles}"
    if not status.written:
        return f"for metrics, which come every {config.run.log_every:g} s{compiles}"
    if trains and not status.trained:
        return f"for the first updates{compiles}"
    return ""


def _jsonl(config: Settings) -> Output:
    return metrics.JSONLOutput(config.logdir)


def _media(config: Settings) -> Output:
    return metrics.MediaOutput(config.logdir, config.logger.fps)


def _tensorboard(config: Settings) -> Output:
    from embodied.metrics.tensorboard import TensorBoardOutput

    return TensorBoardOutput(config.logdir, config.logger.fps, _flat(config))


def _wandb(config: Settings) -> Output:
    from embodied.metrics.wandb import WandbOutput

    options = config.logger.wandb
    return WandbOutput(config.logdir, config.logger.fps, _flat(config), **options)


def _mlflow(config: Settings) -> Output:
    from embodied.metrics.mlflow import MlflowOutput

    options = config.logger.mlflow
    return MlflowOutput(config.logdir, config.logger.fps, _flat(config), **options)


def _scope(config: Settings) -> Output:
    return metrics.ScopeOutput(config.logdir, config.logger.fps)


def _expa(config: Settings) -> Output:
    from embodied.metrics.expa import ExpaOutput

    run = pathlib.Path(config.logdir).name
    return ExpaOutput(config.task, run, _flat(config), **config.logger.expa)


def _flat(config: Settings) -> dict[str, Any]:
    return dict(config.flat)


OUTPUTS: dict[str, Callable[[Settings], Output]] = {
    "terminal": _terminal,
    "jsonl": _jsonl,
    "media": _media,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
    "scope": _scope,
    "expa": _expa,
}
