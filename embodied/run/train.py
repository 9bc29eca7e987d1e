"""Serial training: one process collects, stores, learns and logs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Protocol

import elements

from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Ratio, Seconds
from embodied.run import restore
from embodied.run.collector import Collector
from embodied.run.evaluator import Evaluator
from embodied.run.learner import Learner, MakeStream
from embodied.run.settings import Given, RunSettings
from embodied.run.stop import Stop
from embodied.run.written import Written


def train(
    make_agent: Callable[[], base.Agent],
    make_replay: Callable[[], base.Replay],
    make_env: Callable[[int], base.Env],
    make_stream: MakeStream,
    make_logger: Callable[[], elements.Logger],
    args: Given,
) -> None:
    """Train until `args.steps`, `args.duration` or a signal; resumes `args.logdir`."""
    args = RunSettings.of(args)
    agent, replay, logger = make_agent(), make_replay(), make_logger()
    run(Trainer(agent, replay, make_env, make_stream, logger, args))


class Iterative(Protocol):
    """A run as a sequence of short iterations."""

    args: RunSettings

    @property
    def step(self) -> int:
        """Steps so far."""

    def iterate(self) -> None:
        """Run one iteration."""

    def finish(self, reason: str, report: bool) -> None:
        """Save everything and print the reason; with `report`, evaluate as well."""

    def close(self) -> None:
        """Release all parts."""


def run(trainer: Iterative) -> None:
    """Iterate until it is time to stop, and leave everything saved and closed."""
    args = trainer.args
    with contextlib.closing(trainer), Stop(args.steps, args.duration) as stop:
        while not (reason := stop.reason(trainer.step)):
            trainer.iterate()
        trainer.finish(reason, report=not stop.signalled)


class Trainer:
    """The parts of a serial run, and one iteration of it."""

    def __init__(
        self,
        agent: base.Agent,
        replay: base.Replay,
        make_env: Callable[[int], base.Env],
        make_stream: MakeStream,
        logger: elements.Logger,
        args: RunSettings,
        evaluator: Evaluator | None = None,
    ):
        self.args = args
        self._replay = replay
        self._logger = logger
        self._evaluator = evaluator
        self._learner = Learner(agent, replay, make_stream, args)
        batch_steps = args.batch_size * args.batch_length
        self._due_updates = Ratio(args.train_ratio / batch_steps)
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
        self._collector = Collector(
            agent,
            make_env,
            args.envs,
            args.env_processes,
            replay=replay,
            counter=logger.step,
        )

    @property
    def step(self) -> int:
        return int(self._logger.step)

    def iterate(self) -> None:
        """One step of every environment and the updates that are due for it."""
        self._collector.step()
        self._collector.log_episodes(self._logger)
        if self._learner.ready():
            for _ in range(self._due_updates(self.step)):
                self._learner.update()
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
        elements.print(f"Stopped at step {self.step:,}: {reason}.", flush=True)
        if note := self._learner.untrained_note():
            elements.print(note, color="yellow", flush=True)

    def close(self) -> None:
        """Close all parts, also if one of them fails to."""
        parts = (self._logger, self._replay, self._checkpoint, self._evaluator)
        with contextlib.ExitStack() as stack:
            for part in (*parts, self._collector):
                if part is not None:
                    stack.callback(part.close)

    def _items(self, agent: base.Agent) -> dict[str, object]:
        items = {
            "agent": agent,
            "replay": self._replay,
            "learner": self._learner,
            "due_updates": self._due_updates,
            "step": self._logger.step,
            "written": Written(self._logger),
        }
        if self._evaluator:
            items["replay_eval"] = self._evaluator.replay
        return items

    def _report(self) -> None:
        self._logger.add(self._learner.report(), prefix="report")
        if self._evaluator:
            self._evaluator(self._logger)

    def _save(self, wait: bool = False) -> None:
        """Save the run after the metrics of all steps before."""
        self._log()
        self._checkpoint.save(wait)

    def _log(self) -> None:
        self._collector.flush(self._logger)
        self._logger.add(self._learner.stats())
        self._logger.add(self._replay.stats(), prefix="replay")
        self._logger.write()
