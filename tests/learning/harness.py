"""Trains an agent on a task in this process and returns its scores."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Callable
from functools import partial as bind

import elements
import numpy as np

import embodied
from dreamerv3 import environments, main
from dreamerv3.settings import config as settings
from embodied.core import base

WINDOW = 60  # Episodes that count together, about a thousand steps.
# The block `track` with more training per step, which makes the tests shorter.
SETTINGS = {
    "script": "train",
    "run.train_ratio": 64.0,
    "run.env_processes": False,
    "run.log_every": 1e9,
    "run.report_every": 1e9,
    "run.save_every": 1e9,
    "agent.horizon": 100,
    "jax.cache": str(pathlib.Path(tempfile.gettempdir()) / "dreamerv3-test-cache"),
}


class Scores:
    """A logger that keeps nothing but the score of each episode."""

    def __init__(self) -> None:
        self.step = elements.Counter()
        self.scores: list[float] = []

    def add(self, metrics: base.Metrics, prefix: str = "") -> None:
        if prefix == "episode":
            self.scores.append(float(metrics["score"]))

    def write(self) -> None:
        """Scores are kept as they come."""

    def close(self) -> None:
        """There is nothing to release."""


def learn(
    make_env: Callable[..., base.Env], logdir: pathlib.Path, steps: int, seed: int = 0
) -> list[float]:
    """Scores of all training episodes within some environment steps."""
    problems: list[settings.Problem] = []
    blocks = settings.read_blocks()
    chosen = {"logdir": str(logdir), "run.steps": steps, "seed": seed}
    values = settings.layer(blocks.defaults, blocks.presets["track"], problems)
    values = settings.layer(values, SETTINGS | chosen, problems)
    assert not problems, problems
    config, scores = settings.to_config(values), Scores()

    def make(index: int) -> base.Env:
        env_seed = environments.env_seed(seed, index, "train")
        return environments.wrap_env(make_env(seed=env_seed))

    spaces = make(0)
    embodied.run.train(
        bind(main.make_agent, config, spaces.obs_space, spaces.act_space),
        bind(main.make_replay, config, "replay"),
        make,
        bind(main.make_stream, config),
        lambda: scores,
        main.make_args(config),
    )
    return scores.scores


def reached(scores: list[float]) -> float:
    """The best mean of `WINDOW` episodes in a row; an agent may try something later."""
    assert len(scores) >= WINDOW, len(scores)
    return float(np.convolve(scores, np.full(WINDOW, 1 / WINDOW), "valid").max())
