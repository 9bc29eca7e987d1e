"""Learning: training batches, latents written back, reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import elements
import numpy as np

from embodied.core import base
from embodied.core.timer import Timer
from embodied.run.settings import RunSettings

MakeStream = Callable[[Any, base.Mode], base.Stream]  # Of a replay.


class Source(Protocol):
    """The part of a replay that learning needs, local or remote."""

    def __len__(self) -> int:
        """Number of sequences that can be sampled."""

    @property
    def total(self) -> int:
        """Number of steps ever added."""

    def update(self, data: base.Batch) -> None:
        """Take refreshed latents back."""


def least_steps(replay: Source, args: RunSettings) -> int:
    """Steps in the replay before the first update: those of `batch_size` sequences.

    A replay of ours knows how long its sequences are, which `consec_train` multiplies.
    """
    length = getattr(replay, "length", None)
    return args.batch_size * (length or args.replay_context + args.batch_length)


class Learner:
    """Trains the agent on batches of its replay and reports on it."""

    def __init__(
        self,
        agent: base.Agent,
        replay: Source,
        make_stream: MakeStream,
        args: RunSettings,
    ):
        self._agent = agent
        self._replay = replay
        self._args = args
        self._stream = agent.stream(make_stream(replay, "train"))
        self._carry = agent.init_train(args.batch_size)
        self._report = Reporter(agent, replay, make_stream, args)
        self._results: base.Metrics = {}  # Of the last update, maybe under way.
        self._latents: base.Batch | None = None
        self._metrics = elements.Agg()
        self._fps = elements.FPS()
        self.timer = Timer()
        self.updates = 0

    def ready(self) -> bool:
        """Whether the replay has enough for an update; the first needs more."""
        least = 0 if self.updates else least_steps(self._replay, self._args)
        enough = len(self._replay) >= self._args.batch_size
        return enough and self._replay.total >= least

    def untrained_note(self) -> str:
        """A note for the user if the run ended before the first update."""
        args = self._args
        learns = getattr(self._agent, "learns", True)  # A user's agent may not tell.
        if self.updates or not args.train_ratio or not learns:
            return ""
        steps = args.batch_size * args.batch_length / args.train_ratio
        return (
            "Nothing was trained: the run ended before its first update, which needs "
            f"the steps of a batch of {args.batch_size} x {args.batch_length} and is "
            f"then due every {steps:g} steps. Run for longer, or choose a smaller "
            "batch_size or batch_length, or a larger train ratio."
        )

    def update(self) -> None:
        """Train on one batch.

        Results may still be under way when `train` returns, so those of the update
        before are taken while this one runs. Latents are written back then and in
        `flush` only: when metrics are read makes no difference to the run.
        """
        with self.timer.section("batch"):
            batch = next(self._stream)
        with self.timer.section("train"):
            self._carry, outs, metrics = self._agent.train(self._carry, batch)
        self._settle()
        self.flush()
        self._results, self._latents = metrics, outs.get("replay")
        self._fps.step(self._args.batch_size * self._args.batch_length)
        self.updates += 1

    def flush(self) -> None:
        """Write back the latents of the last update."""
        if self._latents is not None:
            with self.timer.section("latents"):
                self._replay.update(self._latents)
            self._latents = None

    def report(self) -> base.Metrics:
        """Metrics and videos on replayed data without learning from it."""
        with self.timer.section("report"):
            return self._report()

    def stats(self) -> base.Metrics:
        """Metrics since the last call."""
        self._settle()
        metrics = {f"train/{k}": v for k, v in self._metrics.result().items()}
        timer = {f"timer/learner/{k}": v for k, v in self.timer.stats().items()}
        return {**metrics, **timer, "fps/train": self._fps.result()}

    def save(self) -> dict[str, Any]:
        return {"updates": self.updates, "step": self._replay.total}

    def load(self, data: dict[str, Any]) -> None:
        self.updates = data["updates"]

    def _settle(self) -> None:
        """Wait for the metrics of the last update and count them."""
        if not self._results:
            return
        with self.timer.section("settle"):
            arrays = {key: np.asarray(value) for key, value in self._results.items()}
        self._results = {}
        self._metrics.add(arrays)


class Reporter:
    """Reports of an agent on a replay."""

    def __init__(
        self,
        agent: base.Agent,
        replay: Source,
        make_stream: MakeStream,
        args: RunSettings,
        mode: base.Mode = "report",
    ):
        self._agent = agent
        self._replay = replay
        self._args = args
        self._stream = agent.stream(make_stream(replay, mode))
        self._carry = agent.init_report(args.batch_size)

    def __call__(self) -> base.Metrics:
        """Means over `report_batches` batches, and videos and curves of the last one.

        Nothing if there is no data.
        """
        if len(self._replay) < self._args.batch_size:
            return {}
        means = elements.Agg()
        result: base.Metrics = {}
        for _ in range(self._args.report_batches):
            batch = next(self._stream)
            self._carry, result = self._agent.report(self._carry, batch)
            means.add({k: v for k, v in result.items() if np.ndim(v) == 0})
        return {**result, **means.result()}
