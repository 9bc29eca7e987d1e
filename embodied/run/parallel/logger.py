"""The logger role: metrics and episodes of all roles to the outputs."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable

import elements

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.episodes import EpisodeTracker
from embodied.run import role
from embodied.run.parallel import wire


def parallel_logger(
    make_logger: bytes | Callable[[], elements.Logger], args: elements.Config
) -> None:
    """Serve `add` and `tran` until asked to stop."""
    board = Scoreboard(wire.factory(make_logger)(), args)
    directory = pathlib.Path(args.logdir).expanduser() / "ckpt" / "logger"
    checkpoint = Checkpoint(directory, {"logger": board})
    checkpoint.load_or_save()
    server = rpc.Server(args.logger_addr, "logger", keys=wire.server_keys(args))
    server.bind("add", board.add)
    server.bind("tran", board.tran)
    server.start(block=False)
    due_log, due_save = Seconds(args.log_every), Seconds(args.save_every)
    try:
        while not role.wait_stop(0.2):
            role.beat()
            if due_log():
                board.add(wire.prefixed("server/logger", server.stats()))
                board.write()
            if due_save():
                checkpoint.save()
    finally:
        server.close()
        board.write()
        checkpoint.save(wait=True)
        checkpoint.close()
        board.close()


class Scoreboard:
    """Collects metrics and episodes and writes them all at the current step."""

    def __init__(self, logger: elements.Logger, args: elements.Config):
        self._logger = logger
        self._lock = threading.Lock()  # The logger is not safe for threads.
        self._train = EpisodeTracker(args.episode_timeout, record=0)
        self._eval = EpisodeTracker(args.episode_timeout, record=args.envs)
        self._stats = elements.Agg()

    def add(self, metrics: base.Metrics) -> None:
        """Metrics of a role, by their full names."""
        with self._lock:
            self._logger.add(metrics)

    def tran(self, steps: base.Batch) -> None:
        """Steps that the replay has stored, with the number of all training steps."""
        total = int(steps.pop("step"))
        with self._lock:
            self._logger.step.load(max(total, int(self._logger.step)))
            is_eval = steps[wire.IS_EVAL]
            for rows, tracker, prefix in (
                (~is_eval, self._train, ""),
                (is_eval, self._eval, "eval/"),
            ):
                if rows.any():
                    part = {key: value[rows] for key, value in steps.items()}
                    self._add_steps(part, tracker, prefix)

    def write(self) -> None:
        """Hand everything since the last call to the outputs."""
        with self._lock:
            dropped = [*self._train.drop_stale(), *self._eval.drop_stale()]
            self._logger.add(self._stats.result())
            self._logger.add({"parallel/stale_episodes": len(dropped)})
            self._logger.write()

    def save(self) -> int:
        return self._logger.step.save()

    def load(self, data: int) -> None:
        self._logger.step.load(data)

    def close(self) -> None:
        self._logger.close()

    def _add_steps(
        self, steps: base.Batch, tracker: EpisodeTracker, prefix: str
    ) -> None:
        for episode in tracker.add_batch(steps, steps[wire.ENVID].tolist()):
            self._logger.add(episode.metrics(), prefix=f"{prefix}episode")
            self._logger.add(episode.videos, prefix=f"{prefix}epstats")
            self._stats.add(wire.prefixed(f"{prefix}epstats", episode.stats))
