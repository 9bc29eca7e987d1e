"""Serial training with regular evaluation episodes and reports on held-out data."""

from __future__ import annotations

from collections.abc import Callable

import elements

from embodied.core import base
from embodied.run.evaluator import Evaluator
from embodied.run.learner import MakeStream
from embodied.run.settings import Given, RunSettings
from embodied.run.train import Trainer, run


def train_eval(
    make_agent: Callable[[], base.Agent],
    make_replay_train: Callable[[], base.Replay],
    make_replay_eval: Callable[[], base.Replay],
    make_env_train: Callable[[int], base.Env],
    make_env_eval: Callable[[int], base.Env],
    make_stream: MakeStream,
    make_logger: Callable[[], elements.Logger],
    args: Given,
) -> None:
    """Like `train`; each report also plays `eval_episodes` and reports on those."""
    args = RunSettings.of(args)
    agent, replay, logger = make_agent(), make_replay_train(), make_logger()
    evaluator = Evaluator(agent, make_replay_eval(), make_env_eval, make_stream, args)
    run(Trainer(agent, replay, make_env_train, make_stream, logger, args, evaluator))
