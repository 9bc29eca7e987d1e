"""The logger role: metrics and episodes of all roles to the outputs."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import elements
import numpy as np

from embodied.core import base, disk, runfiles
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.episodes import Episode, EpisodeTracker
from embodied.core.usage import Processes, Usage
from embodied.metrics.summary import kind
from embodied.process.context import Context
from embodied.run import restore
from embodied.run.parallel import connections, routing, shutdown
from embodied.run.parallel.bottleneck import SHARES, TRAINED, Bottleneck
from embodied.run.parallel.journal import Entry, Journal
from embodied.run.parallel.outbox import PARTIAL, STEP
from embodied.run.parallel.steps import StepsError, receive
from embodied.run.settings import Given, RunSettings
from embodied.run.written import Written

ROOM = 4 << 20  # Bytes that a write and its checkpoint may need.
MAX_SENDERS = 256  # Senders to track; a restarted role counts as a new sender.
NEEDED = (base.REWARD, base.IS_FIRST, base.IS_LAST)  # To follow episodes.


def parallel_logger(
    make_logger: bytes | Callable[[], elements.Logger],
    args: Given,
    ctx: Context | None = None,
) -> None:
    """Serve `add` and `tran` until asked to stop."""
    args, ctx = RunSettings.of(args), ctx or Context()
    directory = restore.directory(args, "logger")
    board = Scoreboard(connections.factory(make_logger)(), directory, args)
    server = connections.serve(args.logger_addr, "logger", args)
    ending = shutdown.Ending(ctx)
    server.bind("add", board.add)
    server.bind("tran", board.tran)
    server.bind("drain", board.drain)
    server.bind("seen", board.seen)
    server.bind("end", ending)
    server.start(block=False)
    due_log, due_save = Seconds(args.log_every), Seconds(args.save_every)
    usage = Usage(args.usage)
    envs = Processes(directory.parents[1] / runfiles.ROLES, ("env", "eval"))
    try:
        while not ctx.wait_stop(0.2):
            ctx.beat()
            connections.check(server)
            if due_log():
                board.write(
                    connections.prefixed("server/logger", server.stats())
                    | connections.prefixed("usage/logger", usage.stats())
                    | connections.prefixed("usage/envs", envs.stats())
                )
            elif due_save():
                board.write()
    finally:
        board.write()
        ending.done()  # The caller was the last one to send something.
        board.drain()
        server.close()
        board.write()
        board.close()
    if board.unwritten:
        raise board.unwritten


class Scoreboard:
    """Collects metrics and episodes and writes them at the current step.

    Every call is journaled. Each write ends with a checkpoint of the state and of the
    positions of the outputs, and clears the journal. After a crash, the logger rolls
    the outputs back to the checkpoint and replays the journal, so nothing is lost or
    duplicated.
    """

    def __init__(
        self, logger: elements.Logger, directory: pathlib.Path, args: RunSettings
    ):
        self._logger = logger
        self._written = Written(logger)
        self._lock = threading.Lock()  # The logger is not safe for threads.
        self._train = EpisodeTracker(args.episode_timeout, record=0)
        self._eval = EpisodeTracker(args.episode_timeout, record=args.envs)
        self._stats = elements.Agg()
        self._bottleneck = Bottleneck()
        self._seqs: dict[int, int] = {}  # Environment to its last step seen.
        self._senders: dict[str, int] = {}  # To the number of their last metrics.
        meta = restore.meta(args)
        self._checkpoint = Checkpoint(directory, {"logger": self}, meta=meta)
        self._journal = Journal(directory / "journal")
        self._directory = directory
        self._room = disk.Room("logger")
        self.unwritten: OSError | None = None  # Why the last `write` failed.
        self._noted = 0  # Entries of the journal that the checkpoint contains.
        self._recover()

    def add(self, metrics: base.Metrics, number: Sequence[Any] | None = None) -> None:
        """Metrics of a role, by their full names.

        `number` is a sender and an increasing count, used to ignore repeated calls.
        """
        if number is None:
            self._note("add", metrics)
        else:
            self._note("numbered", [metrics, *number])

    def tran(self, steps: base.Batch) -> None:
        """Steps that the replay has stored, with the number of all training steps.

        Without that count (`step`), the logger counts training steps itself. Steps
        without `seq` are counted twice if the call is repeated. Of `partial` steps the
        values to log are unknown, so that only the score of their episode is.
        """
        self._note("tran", steps)

    def drain(self) -> None:
        """Reject what finds no room from now on, as the run ends."""
        self._room.give_up()

    def seen(self) -> base.Batch:
        """Environments and the number of the last step of each."""
        with self._lock:
            return {
                routing.ENVID: np.array(list(self._seqs), np.int64),
                routing.SEQ: np.array(list(self._seqs.values()), np.int64),
            }

    def write(self, metrics: base.Metrics | None = None) -> None:
        """Hand everything since the last call to the outputs, and save.

        On a full disk that is left to a later call, as the journal has it all; only
        these `metrics`, which are the logger's own, are dropped.
        """
        try:
            disk.require(self._directory, ROOM, "metrics and the logger's state")
            if metrics:
                self._try_note("add", metrics)
            self._write()
        except OSError as error:
            if not disk.is_full(error):
                raise
            self.unwritten = error
            self._room.lack(error)
        else:
            self.unwritten = None
            self._room.found()
            self._room.give_up(False)  # A role that ended was not the whole run.

    def _write(self) -> None:
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
        return {
            "step": int(self._logger.step),
            "noted": self._noted,
            "train": self._train.save(),
            "eval": self._eval.save(),
            "seqs": {str(envid): seq for envid, seq in self._seqs.items()},
            "senders": dict(self._senders),
            "outputs": self._written.save(),
        }

    def load(self, data: dict[str, Any]) -> None:
        self._logger.step.load(data["step"])
        self._noted = data["noted"]
        self._train.load(data["train"])
        self._eval.load(data["eval"])
        self._seqs = {int(envid): seq for envid, seq in data["seqs"].items()}
        self._senders = dict(data.get("senders", {}))  # Not in runs of release 0.1.
        self._written.load(data["outputs"])

    def close(self) -> None:
        self._checkpoint.close()
        self._journal.close()
        self._logger.close()

    def _recover(self) -> None:
        restored = self._checkpoint.load_or_save()
        self._journal.number = max(self._journal.number, self._noted)
        # Without a checkpoint, the outputs have what was noted before the last one.
        former = self._journal.former if restored else []
        for entry in (*former, *self._journal.entries):
            if entry.number > self._noted:
                self._redo(entry)
        self._journal.former = self._journal.entries = []  # They hold images.

    def _redo(self, entry: Entry) -> None:
        """Apply a call again; one that was rejected when it came is so again."""
        try:
            self._apply(entry.method, entry.payload)
        except Exception as error:
            text = f"The logger rejected a call of {entry.method} again: {error}"
            elements.print(text, color="yellow", flush=True)

    def _note(self, method: str, payload: Any) -> None:
        """Take a call and write it down; waits for room to do so."""
        self._room.retry(partial(self._try_note, method, payload))

    def _try_note(self, method: str, payload: Any) -> None:
        with self._lock:
            self._journal.append(method, payload)
            try:
                self._apply(method, payload)
            except BaseException:
                self._journal.undo()  # What is rejected is not noted.
                raise

    def _apply(self, method: str, payload: Any) -> None:
        """Apply a call, or raise without changes: validation comes first."""
        if method == "numbered":
            metrics, sender, number = payload
            if number > self._senders.get(sender, 0):
                self._add_metrics(metrics)
                self._senders.pop(sender, None)  # The newest sender is the last one.
                self._senders[sender] = number
                while len(self._senders) > MAX_SENDERS:
                    del self._senders[next(iter(self._senders))]
        elif method == "add":
            self._add_metrics(payload)
        else:
            arrays = receive(payload, NEEDED)
            total = arrays.pop(STEP, None)
            partial = bool(arrays.pop(PARTIAL, False))
            _check_arrays(arrays)
            self._add_steps(arrays, None if total is None else int(total), partial)

    def _add_metrics(self, metrics: base.Metrics) -> None:
        for name, value in metrics.items():
            kind(name, value)  # Rejects what no output could show.
        for name in (TRAINED, *SHARES):
            float(metrics.get(name, 0))
        self._logger.add(metrics)
        self._bottleneck.see(metrics)

    def _add_steps(self, steps: base.Batch, total: int | None, partial: bool) -> None:
        """Count steps that are new; a step may be sent again after a restart."""
        envids, seqs = steps[routing.ENVID].tolist(), steps[routing.SEQ].tolist()
        new = np.array(list(map(self._is_new, envids, seqs)), bool)
        is_eval = steps[routing.IS_EVAL]
        step = int(self._logger.step)
        if total is None:
            total = step + int(np.count_nonzero(new & ~is_eval))
        self._logger.step.load(max(total, step))
        for chosen, tracker, prefix in (
            (~is_eval, self._train, ""),
            (is_eval, self._eval, "eval/"),
        ):
            rows = new & chosen
            if rows.any():
                part = {key: value[rows] for key, value in steps.items()}
                workers = part[routing.ENVID].tolist()
                self._log(tracker.add_batch(part, workers, partial), prefix)

    def _is_new(self, envid: int, seq: int) -> bool:
        if seq == routing.UNNUMBERED:
            return True
        if seq <= self._seqs.get(envid, -1):
            return False
        self._seqs[envid] = seq
        return True

    def _log(self, episodes: Sequence[Episode], prefix: str) -> None:
        for episode in episodes:
            self._logger.add(episode.metrics(), prefix=f"{prefix}episode")
            self._logger.add(episode.videos, prefix=f"{prefix}epstats")
            self._stats.add(connections.prefixed(f"{prefix}epstats", episode.stats))


def _check_arrays(steps: base.Batch) -> None:
    """Reject steps that could only be counted in part."""
    rows = len(steps[routing.ENVID])
    for key, value in steps.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biuf":
            raise StepsError(f"'{key}' is not an array of numbers but {type(value)}")
        if value.shape[:1] != (rows,):
            raise StepsError(f"'{key}' has shape {value.shape} for {rows} rows")
