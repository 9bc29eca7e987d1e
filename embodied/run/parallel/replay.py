"""The replay role: stores steps, serves batches of sequences, takes latents back."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.timer import Timer
from embodied.core.usage import make_usage
from embodied.replay import SamplesPerInsert
from embodied.run import restore, role
from embodied.run.learn import MakeStream, least_steps
from embodied.run.parallel import bottleneck, options, outbox, wire
from embodied.run.parallel.lives import Lives

METHODS = (
    "add_batch", "sample_batch_train", "sample_batch_report", "sample_batch_eval",
    "update", "length", "total", "drain", "recent",
)  # fmt: skip
HOLD = 5.0  # Seconds that a call for a batch waits for the limiter.


def parallel_replay(
    make_replay_train: bytes | Callable[[], base.Replay],
    make_replay_eval: bytes | Callable[[], base.Replay],
    make_stream: bytes | MakeStream,
    args: elements.Config,
) -> None:
    """Serve steps and sequences until asked to stop."""
    args = options.complete(args)
    store = ReplayStore(
        wire.factory(make_replay_train)(),
        wire.factory(make_replay_eval)(),
        wire.factory(make_stream),
        args,
    )
    directory = restore.directory(args, "replay")
    meta = restore.meta(args)
    checkpoint = Checkpoint(directory, {"replay": store}, meta=meta)
    checkpoint.load_or_save()
    ending = wire.Ending()
    server = make_server(store, Lives(directory / "lives"), ending, args)
    with contextlib.ExitStack() as stack:
        for each in (store, checkpoint):
            stack.callback(each.close)
        logger = wire.LoggerLink("replay", args)
        stack.callback(logger.close)
        server.start(block=False)
        stack.callback(server.close)
        stack.callback(store.turn_away)
        serve(server, store, checkpoint, logger, args)
        store.turn_away()
        checkpoint.save(wait=True)
        logger.add(store.stats())
        logger.flush()
        ending.done()


def make_server(
    store: ReplayStore, lives: Lives, ending: wire.Ending, args: elements.Config
) -> rpc.Server:
    """A server, not started, with all that other roles may ask for."""
    server = rpc.Server(args.replay_addr, "replay", keys=wire.server_keys(args))
    for name in METHODS:
        server.bind(name, getattr(store, name))
    server.bind("enroll", lives.next)
    server.bind("end", ending)
    return server


def serve(
    server: rpc.Server,
    store: ReplayStore,
    checkpoint: Checkpoint,
    logger: wire.LoggerLink,
    args: elements.Config,
) -> None:
    """Log and save now and then, until asked to stop."""
    due_log, due_save = Seconds(args.log_every), Seconds(args.save_every)
    while not role.wait_stop(1.0):
        role.beat()
        wire.check(server)
        if due_log():
            metrics = wire.prefixed("server/replay", server.stats())
            metrics |= wire.prefixed("client/replay", logger.stats())
            logger.add(store.stats() | metrics)
        if due_save():
            checkpoint.save()


class ReplayStore:
    """Training and evaluation replay behind one door, with the limiter between."""

    def __init__(
        self,
        replay: base.Replay,
        replay_eval: base.Replay,
        make_stream: MakeStream,
        args: elements.Config,
    ):
        self._replay = replay
        self._replay_eval = replay_eval
        self._batch_size = args.batch_size
        self._limiter = SamplesPerInsert(
            args.train_ratio / args.batch_length,
            tolerance=4 * args.batch_size,
            minsize=least_steps(replay, args),
            ready=lambda: len(replay) > 0,
        )
        self._limiter.found(replay.total)
        self._streams = {
            "train": make_stream(replay, "train"),
            "report": make_stream(replay, "report"),
            "eval": make_stream(replay_eval, "eval"),
        }
        self._locks = {mode: threading.Lock() for mode in self._streams}
        self._recent: deque[base.Batch] = deque(maxlen=2 * outbox.MAX_PENDING)
        self._timer = Timer()
        self._usage = make_usage(args)

    def recent(self) -> list[base.Batch]:
        """Flags and rewards of the last steps, which a killed actor could not tell.

        A new actor asks for them, so there is a learner again: inserts are limited.
        """
        self._limiter.open(False)
        return list(self._recent)

    def add_batch(self, steps: base.Batch) -> int:
        """Store steps by environment; returns the training steps ever stored."""
        is_eval = steps[wire.IS_EVAL]
        for replay, rows in ((self._replay, ~is_eval), (self._replay_eval, is_eval)):
            count = int(np.count_nonzero(rows))
            if count == len(rows):
                self._add(replay, steps, count)
            elif count:
                self._add(replay, {k: v[rows] for k, v in steps.items()}, count)
        total = self._replay.total
        self._recent.append({**outbox.numbers(steps), outbox.STEP: total})
        return total

    def sample_batch_train(self) -> base.Batch:
        """The next training batch; none if the limiter holds it back for a while."""
        with self._timer.section("sample_wait"):
            allowed = self._limiter.sample(self._batch_size, timeout=HOLD)
        return self._next("train") if allowed else {}

    def sample_batch_report(self) -> base.Batch:
        """A batch of training data for a report."""
        return self._next("report")

    def sample_batch_eval(self) -> base.Batch:
        """A batch of held-out data for a report."""
        return self._next("eval")

    def total(self) -> int:
        """Training steps ever stored."""
        return self._replay.total

    def length(self, mode: base.Mode) -> int:
        """Number of sequences that can be sampled."""
        return len(self._replay_eval if mode == "eval" else self._replay)

    def update(self, data: base.Batch) -> None:
        """Write refreshed latents back by step id."""
        with self._timer.section("update"):
            self._replay.update(data)

    def drain(self) -> None:
        """Take steps that are on their way even though nobody learns any more."""
        self._limiter.open()

    def stats(self) -> base.Metrics:
        """Metrics since the last call."""
        timer = self._timer.stats()
        return {
            bottleneck.INSERT_WAIT: min(1.0, timer.get("insert_wait/share", 0.0)),
            bottleneck.SAMPLE_WAIT: min(1.0, timer.get("sample_wait/share", 0.0)),
            **wire.prefixed("timer/replay", timer),
            **wire.prefixed("usage/replay", self._usage.stats()),
            **wire.prefixed("limiter", self._limiter.stats()),
            **wire.prefixed("replay", self._replay.stats()),
            **wire.prefixed("replay_eval", self._replay_eval.stats()),
        }

    def save(self) -> dict[str, Any]:
        return {
            "replay": self._replay.save(),
            "replay_eval": self._replay_eval.save(),
            "limiter": self._limiter.save(),
        }

    def load(self, data: dict[str, Any]) -> None:
        self._replay.load(data["replay"])
        self._replay_eval.load(data["replay_eval"])
        self._limiter.load(data["limiter"])
        self._limiter.found(self._replay.total)

    def turn_away(self) -> None:
        """Let nobody wait any longer."""
        self._limiter.close()

    def close(self) -> None:
        """Release the directories."""
        self._replay.close()
        self._replay_eval.close()

    def _add(self, replay: base.Replay, steps: base.Batch, count: int) -> None:
        limiter = self._limiter if replay is self._replay else None
        if limiter:
            with self._timer.section("insert_wait"):
                limiter.insert(count)
        stored = {k: v for k, v in steps.items() if _is_stored(k)}
        envids, seqs = steps[wire.ENVID].tolist(), steps[wire.SEQ].tolist()
        added = 0
        try:
            with self._timer.section("add"):
                told = replay.add_batch(stored, envids, seqs)
            added = count if told is None else told  # A user's replay may not count.
        finally:
            if limiter and added < count:
                limiter.take_back(count - added)

    def _next(self, mode: str) -> base.Batch:
        with self._locks[mode], self._timer.section("sample"):
            return next(self._streams[mode])


def _is_stored(key: str) -> bool:
    return key not in wire.ROUTING and not key.startswith(base.LOG_PREFIX)
