"""The logger role: metrics and episodes of all roles to the outputs."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.episodes import EpisodeTracker
from embodied.core.usage import Processes, make_usage
from embodied.metrics.summary import kind
from embodied.run import restore, role
from embodied.run.parallel import options, wire
from embodied.run.parallel.bottleneck import SHARES, TRAINED, Bottleneck
from embodied.run.parallel.journal import Journal
from embodied.run.parallel.outbox import FLAGS, STEP


def parallel_logger(
    make_logger: bytes | Callable[[], elements.Logger], args: elements.Config
) -> None:
    """Serve `add` and `tran` until asked to stop."""
    args = options.complete(args)
    directory = restore.directory(args, "logger")
    board = Scoreboard(wire.factory(make_logger)(), directory, args)
    server = rpc.Server(args.logger_addr, "logger", keys=wire.server_keys(args))
    ending = wire.Ending()
    server.bind("add", board.add)
    server.bind("tran", board.tran)
    server.bind("end", ending)
    server.start(block=False)
    due_log, due_save = Seconds(args.log_every), Seconds(args.save_every)
    usage = make_usage(args)
    envs = Processes(directory.parents[1] / "roles.json", ("env", "eval"))
    try:
        while not role.wait_stop(0.2):
            role.beat()
            wire.check(server)
            if due_log():
                board.add(wire.prefixed("server/logger", server.stats()))
                board.add(wire.prefixed("usage/logger", usage.stats()))
                board.add(wire.prefixed("usage/envs", envs.stats()))
                board.write()
            elif due_save():
                board.write()
    finally:
        ending.done()  # Whoever asked was the last to send something.
        server.close()
        board.write()
        board.close()


class Scoreboard:
    """Collects metrics and episodes and writes them at the current step.

    What came in is first noted in a journal. After each write a checkpoint holds the
    state and how much the outputs wrote, and the journal begins anew. So a killed
    logger takes back what it wrote since the checkpoint and does the journal again:
    nothing is missing and nothing there twice.
    """

    def __init__(
        self, logger: elements.Logger, directory: pathlib.Path, args: elements.Config
    ):
        self._logger = logger
        self._lock = threading.Lock()  # The logger is not safe for threads.
        self._train = EpisodeTracker(args.episode_timeout, record=0)
        self._eval = EpisodeTracker(args.episode_timeout, record=args.envs)
        self._stats = elements.Agg()
        self._bottleneck = Bottleneck()
        self._seqs: dict[int, int] = {}  # Environment to its last step seen.
        meta = restore.meta(args)
        self._checkpoint = Checkpoint(directory, {"logger": self}, meta=meta)
        self._journal = Journal(directory / "journal")
        self._noted = 0  # Entries of the journal that the checkpoint contains.
        self._recover()

    def add(self, metrics: base.Metrics) -> None:
        """Metrics of a role, by their full names."""
        self._note("add", metrics)

    def tran(self, steps: base.Batch) -> None:
        """Steps that the replay has stored, with the number of all training steps."""
        self._note("tran", steps)

    def write(self) -> None:
        """Hand everything since the last call to the outputs, and save."""
        with self._lock:
            dropped = [*self._train.drop_stale(), *self._eval.drop_stale()]
            self._logger.add(self._stats.result())
            self._logger.add({"parallel/stale_episodes": len(dropped)})
            if line := self._bottleneck.news():
                self._logger.add({"parallel/bottleneck": line})
            self._logger.write()
            self._noted = self._journal.number
            self._checkpoint.save(wait=True)
            self._journal.clear()

    def save(self) -> dict[str, Any]:
        outputs = self._logger.outputs
        return {
            "step": int(self._logger.step),
            "noted": self._noted,
            "train": self._train.save(),
            "eval": self._eval.save(),
            "seqs": {str(envid): seq for envid, seq in self._seqs.items()},
            "outputs": [o.save() if hasattr(o, "save") else None for o in outputs],
        }

    def load(self, data: dict[str, Any]) -> None:
        self._logger.step.load(data["step"])
        self._noted = data["noted"]
        self._train.load(data["train"])
        self._eval.load(data["eval"])
        self._seqs = {int(envid): seq for envid, seq in data["seqs"].items()}
        for output, written in zip(self._logger.outputs, data["outputs"], strict=False):
            if written is not None and hasattr(output, "load"):
                output.load(written)

    def close(self) -> None:
        self._checkpoint.close()
        self._journal.close()
        self._logger.close()

    def _recover(self) -> None:
        self._checkpoint.load_or_save()
        self._journal.number = max(self._journal.number, self._noted)
        for entry in self._journal.entries:
            if entry.number > self._noted:
                self._apply(entry.method, entry.payload)

    def _note(self, method: str, payload: Any) -> None:
        with self._lock:
            self._apply(method, payload)  # First, so that what fails is not noted.
            self._journal.append(method, payload)

    def _apply(self, method: str, payload: Any) -> None:
        """Take a call, or raise and be as before: all that can fail comes first."""
        if method == "add":
            for name, value in payload.items():
                kind(name, value)  # Refuses what no output could show.
            for name in (TRAINED, *SHARES):
                float(payload.get(name, 0))
            self._logger.add(payload)
            self._bottleneck.see(payload)
        else:
            _check_steps(payload)
            self._add_steps(payload)

    def _add_steps(self, steps: base.Batch) -> None:
        """Count steps that are new; a step may be sent again after a restart."""
        step = max(int(steps[STEP]), int(self._logger.step))
        self._logger.step.load(step)
        arrays = {key: value for key, value in steps.items() if key != STEP}
        envids, seqs = arrays[wire.ENVID].tolist(), arrays[wire.SEQ].tolist()
        new = np.array(list(map(self._is_new, envids, seqs)))
        is_eval = arrays[wire.IS_EVAL]
        self._add_rows(arrays, new & ~is_eval, self._train, "")
        self._add_rows(arrays, new & is_eval, self._eval, "eval/")

    def _is_new(self, envid: int, seq: int) -> bool:
        if seq <= self._seqs.get(envid, -1):
            return False
        self._seqs[envid] = seq
        return True

    def _add_rows(
        self, steps: base.Batch, rows: np.ndarray, tracker: EpisodeTracker, prefix: str
    ) -> None:
        if not rows.any():
            return
        part = {key: value[rows] for key, value in steps.items()}
        for episode in tracker.add_batch(part, part[wire.ENVID].tolist()):
            self._logger.add(episode.metrics(), prefix=f"{prefix}episode")
            self._logger.add(episode.videos, prefix=f"{prefix}epstats")
            self._stats.add(wire.prefixed(f"{prefix}epstats", episode.stats))


def _check_steps(steps: base.Batch) -> None:
    """Refuse steps of which a part could not be counted."""
    int(steps[STEP])
    rows = len(steps[wire.ENVID])
    for key in FLAGS:
        if np.shape(steps[key]) != (rows,):
            raise ValueError(f"'{key}' has shape {np.shape(steps[key])}, not ({rows},)")
    for key, value in steps.items():
        if key == STEP:
            continue
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            raise TypeError(f"'{key}' is no array of numbers but {type(value)}")
        if value.shape[:1] != (rows,):
            raise ValueError(f"'{key}' has shape {value.shape} for {rows} rows")
    if steps[wire.IS_EVAL].dtype != bool:
        raise TypeError(f"'{wire.IS_EVAL}' is {steps[wire.IS_EVAL].dtype}, not bool")
