"""Collecting: environments, policy, replay and episode statistics of one process."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import elements
import numpy as np

from embodied.core import base
from embodied.core.driver import Driver
from embodied.core.episodes import EpisodeTracker


class Collector:
    """Steps environments with the agent's policy and accounts for every step."""

    def __init__(
        self,
        agent: base.Agent,
        make_env: Callable[[int], base.Env],
        envs: int,
        processes: bool,
        mode: base.Mode = "train",
        replay: base.Replay | None = None,
        counter: elements.Counter | None = None,
    ):
        self._agent = agent
        self._mode = mode
        self._replay = replay
        self._counter = counter
        self._tracker = EpisodeTracker(record=0)
        self._fps = elements.FPS()
        self._epstats = elements.Agg()
        self._videos: dict[str, np.ndarray] = {}
        self._episodes: list[dict[str, float]] = []
        self._quota: np.ndarray | None = None  # Episodes to count per environment.
        self.scores: list[float] = []
        makers = [_Bind(make_env, index) for index in range(envs)]
        self._driver = Driver(makers, processes)
        self._driver.on_step(self._on_step)
        self._driver.reset(agent.init_policy)

    def __len__(self) -> int:
        return len(self._driver)

    def step(self) -> None:
        """One step of every environment."""
        self._driver(self._policy, steps=1)

    def run_episodes(
        self, episodes: int, progress: Callable[[int], None] | None = None
    ) -> None:
        """Play exactly `episodes` new episodes, spread evenly over the environments.

        Counting whichever end first would favour short episodes. `progress` is told
        how many there are whenever one has ended.
        """
        size = len(self._driver)
        self._quota = np.full(size, episodes // size) + (
            np.arange(size) < episodes % size
        )
        self._driver.reset(self._agent.init_policy)
        while left := self._quota.sum():
            self.step()
            if progress and self._quota.sum() < left:
                progress(episodes - int(self._quota.sum()))

    def log_episodes(self, logger: elements.Logger, prefix: str = "") -> None:
        """Hand the episodes that have ended to the logger, at its current step."""
        for metrics in self._episodes:
            logger.add(metrics, prefix=f"{prefix}episode")
        self._episodes.clear()

    def flush(self, logger: elements.Logger, prefix: str = "") -> None:
        """Hand episodes, their statistics and the speed to the logger."""
        self.log_episodes(logger, prefix)
        logger.add(self._epstats.result(), prefix=f"{prefix}epstats")
        logger.add(self._videos, prefix=f"{prefix}epstats")
        self._videos = {}
        logger.add({"policy": self._fps.result()}, prefix=f"{prefix}fps")

    def close(self) -> None:
        self._driver.close()

    def _policy(
        self, carry: base.Carry, obs: base.Batch
    ) -> tuple[base.Carry, base.Batch, base.Batch]:
        return self._agent.policy(carry, obs, self._mode)

    def _on_step(self, steps: base.Batch, workers: Sequence[int]) -> None:
        self._fps.step(len(workers))
        if self._replay is not None:
            self._replay.add_batch(steps, workers)
        if self._counter is not None:
            self._counter.increment(len(workers))
        for episode in self._tracker.add_batch(steps, workers):
            if self._quota is not None:
                if not self._quota[episode.worker]:
                    continue
                self._quota[episode.worker] -= 1
            self._episodes.append(episode.metrics())
            self.scores.append(episode.score)
            self._epstats.add(episode.stats)
            self._videos.update(episode.videos)


class _Bind:
    """`make_env(index)` without arguments; picklable, and named in tracebacks."""

    def __init__(self, make_env: Callable[[int], base.Env], index: int):
        self._make_env = make_env
        self._index = index

    def __call__(self) -> base.Env:
        return self._make_env(self._index)
