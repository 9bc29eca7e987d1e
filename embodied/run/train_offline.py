"""Learning from recorded steps; an environment is optional, for evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import elements

from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.replay.recording import Recording
from embodied.run import restore
from embodied.run.evaluator import Evaluator
from embodied.run.importer import IMPORTER, Importer
from embodied.run.learner import Learner, MakeStream
from embodied.run.settings import Given, RunSettings
from embodied.run.train import run
from embodied.run.written import Written


def train_offline(
    make_agent: Callable[[], base.Agent],
    make_replay: Callable[[], base.Replay],
    make_replay_eval: Callable[[], base.Replay],
    make_env: Callable[[int], base.Env] | None,
    make_stream: MakeStream,
    make_logger: Callable[[], elements.Logger],
    recording: Recording | None,
    args: Given,
) -> None:
    """Learn from a recording until `args.steps`, `args.duration` or a signal.

    The step counter goes up by `batch_size * batch_length / train_ratio` with each
    update, so that a run is trained as much as one with that many steps in
    environments. The recording may be None once it is part of the run's replay.
    """
    args = RunSettings.of(args)
    agent, replay, logger = make_agent(), make_replay(), make_logger()
    evaluator = None
    if make_env and args.eval_envs:
        evaluator = Evaluator(agent, make_replay_eval(), make_env, make_stream, args)
    importer = Importer(recording, replay, agent)
    run(OfflineTrainer(agent, replay, importer, make_stream, logger, args, evaluator))


class OfflineTrainer:
    """The parts of a run without training environments, and one iteration of it."""

    def __init__(
        self,
        agent: base.Agent,
        replay: base.Replay,
        importer: Importer,
        make_stream: MakeStream,
        logger: elements.Logger,
        args: RunSettings,
        evaluator: Evaluator | None = None,
    ):
        self.args = args
        self._replay = replay
        self._logger = logger
        self._importer = importer
        self._evaluator = evaluator
        self._learner = OfflineLearner(agent, replay, make_stream, args)
        self._due_log = Seconds(args.log_every)
        self._due_report = Seconds(args.report_every)
        self._due_save = Seconds(args.save_every)
        self._checkpoint = Checkpoint(
            restore.directory(args),
            self._items(agent),
            meta=restore.meta(args),
            added=("written",),
        )
        restore.restore(self._checkpoint, agent, replay, args)

    @property
    def step(self) -> int:
        return self._learner.step

    def iterate(self) -> None:
        """Import some recorded steps or, once all are there, do one update."""
        if not self._importer.done:
            self._importer()
            if self._importer.done:
                self._checkpoint.save()
            return
        self._learner.update()
        self._logger.step.load(self.step)
        if self._due_report():
            self._report()
        if self._due_log():
            self._log()
        if self._due_save():
            self._save()

    def finish(self, reason: str, report: bool) -> None:
        """Last checkpoint, report and metrics, and a line on why it ended."""
        self._learner.flush()
        self._save(wait=True)
        if report:
            self._report()
            self._save(wait=True)
        updates = f"{self._learner.updates:,} gradient updates"
        line = f"Stopped at step {self.step:,} after {updates}: {reason}."
        elements.print(line, flush=True)

    def close(self) -> None:
        """Close all parts, also if one of them fails to."""
        parts = (self._logger, self._replay, self._checkpoint, self._evaluator)
        with contextlib.ExitStack() as stack:
            for part in parts:
                if part is not None:
                    stack.callback(part.close)

    def _items(self, agent: base.Agent) -> dict[str, object]:
        # The replay of evaluation is left out: a run may get an environment later.
        return {
            "agent": agent,
            "replay": self._replay,
            "learner": self._learner,
            IMPORTER: self._importer,
            "step": self._logger.step,
            "written": Written(self._logger),
        }

    def _report(self) -> None:
        self._logger.add(self._learner.report(), prefix="report")
        if self._evaluator:
            self._evaluator(self._logger)

    def _save(self, wait: bool = False) -> None:
        """Save the run after the metrics of all steps before."""
        self._log()
        self._checkpoint.save(wait)

    def _log(self) -> None:
        self._logger.add(self._learner.stats())
        self._logger.add(self._replay.stats(), prefix="replay")
        self._logger.write()


class OfflineLearner(Learner):
    """Counts the environment steps that its updates would have been due for."""

    _progress = 0.0

    @property
    def step(self) -> int:
        """Environment steps so far."""
        return int(self._progress)

    def update(self) -> None:
        super().update()
        args = self._args
        self._progress += args.batch_size * args.batch_length / args.train_ratio

    def save(self) -> dict[str, Any]:
        return {**super().save(), "step": self.step, "progress": self._progress}

    def load(self, data: dict[str, Any]) -> None:
        super().load(data)
        self._progress = data["progress"]
