"""Evaluation of a trained agent, without learning."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import elements
import numpy as np

from embodied.core import base
from embodied.core.checkpoint import read_item
from embodied.run import restore
from embodied.run.collector import Collector
from embodied.run.evaluator import PREFIX
from embodied.run.settings import Given, RunSettings


def eval_only(
    make_agent: Callable[[], base.Agent],
    make_env: Callable[[int], base.Env],
    make_logger: Callable[[], elements.Logger],
    args: Given,
) -> None:
    """Play `args.eval_episodes` with the agent of `from_checkpoint` or the logdir."""
    args = RunSettings.of(args)
    agent, logger = make_agent(), make_logger()
    _load(agent, logger, args)
    collector = Collector(
        agent, make_env, args.eval_envs, args.env_processes, mode="eval"
    )
    with contextlib.closing(logger), contextlib.closing(collector):
        collector.run_episodes(args.eval_episodes)
        scores = collector.scores
        collector.flush(logger, PREFIX)
        logger.write()
    elements.print(
        f"Score of {len(scores)} episodes: mean {np.mean(scores):.2f}, "
        f"standard deviation {np.std(scores):.2f}.",
        flush=True,
    )


def _load(agent: base.Agent, logger: elements.Logger, args: RunSettings) -> None:
    if args.from_checkpoint:
        restore.load_agent(agent, args)
        return
    directory = restore.directory(args)
    agent.load(restore.read_agent(agent, directory), regex=".*")  # Its parameters.
    learner = read_item(directory, "learner")
    logger.step.load(learner["step"])
