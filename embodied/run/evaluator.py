"""Evaluation: episodes in environments of their own, and a report on those."""

from __future__ import annotations

from collections.abc import Callable

import elements

from embodied.core import base
from embodied.run.collector import Collector
from embodied.run.learner import MakeStream, Reporter
from embodied.run.settings import RunSettings

PREFIX = "eval/"


class Evaluator:
    """Plays evaluation episodes into a replay of held-out data and reports on it."""

    def __init__(
        self,
        agent: base.Agent,
        replay: base.Replay,
        make_env: Callable[[int], base.Env],
        make_stream: MakeStream,
        args: RunSettings,
    ):
        self.replay = replay
        self._episodes = args.eval_episodes
        self._report = Reporter(agent, replay, make_stream, args, mode="eval")
        self._collector = Collector(
            agent,
            make_env,
            args.eval_envs,
            args.env_processes,
            mode="eval",
            replay=replay,
        )

    def __call__(self, logger: elements.Logger) -> None:
        self._collector.run_episodes(self._episodes)
        self._collector.flush(logger, PREFIX)
        logger.add(self._report(), prefix="eval")

    def close(self) -> None:
        self._collector.close()
        self.replay.close()
