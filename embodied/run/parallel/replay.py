"""The replay role: stores steps, serves batches of sequences, takes latents back."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from embodied import rpc
from embodied.core import base, disk
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.timer import Timer
from embodied.core.usage import Usage
from embodied.process.context import Context, StoppedError
from embodied.replay import Replay, SamplesPerInsert
from embodied.replay.tail import Tail
from embodied.run import restore
from embodied.run.learner import MakeStream, least_steps
from embodied.run.parallel import (
    bottleneck,
    connections,
    metrics_client,
    outbox,
    routing,
    shutdown,
)
from embodied.run.parallel.feed import StepFeed, flush
from embodied.run.parallel.steps import receive
from embodied.run.settings import Given, RunSettings

METHODS = (
    "add_batch", "sample_batch_train", "sample_batch_report", "sample_batch_eval",
    "update", "length", "total", "drain", "take_over", "unlogged",
)  # fmt: skip
FLAGS = tuple(base.special_spaces())  # Keys that every stored step has.
MAX_UNLOGGED = 4096  # Steps for the logger in one answer.
UNLOGGED_BATCH = 16  # Steps that the logger gets at once, at the step of the last one.
MAX_PAID = 64  # Remembered draws; exceeds the number ever in flight.
HOLD = 5.0  # Seconds that a call for a batch waits for the limiter.


def parallel_replay(
    make_replay_train: bytes | Callable[[], base.Replay],
    make_replay_eval: bytes | Callable[[], base.Replay],
    make_stream: bytes | MakeStream,
    args: Given,
    ctx: Context | None = None,
) -> None:
    """Serve steps and sequences until asked to stop."""
    args, ctx = RunSettings.of(args), ctx or Context()
    store = ReplayStore(
        connections.factory(make_replay_train)(),
        connections.factory(make_replay_eval)(),
        connections.factory(make_stream),
        args,
    )
    directory = restore.directory(args, "replay")
    meta = restore.meta(args)
    checkpoint = Checkpoint(directory, {"replay": store}, meta=meta)
    checkpoint.load_or_save()
    ending = shutdown.Ending(ctx)
    server = make_server(store, ending, args)
    with contextlib.ExitStack() as stack:
        for each in (store, checkpoint):
            stack.callback(each.close)
        server.start(block=False)
        stack.callback(server.close)
        stack.callback(store.turn_away)
        try:
            logger = metrics_client.LoggerLink("replay", args, ctx)
        except StoppedError:
            checkpoint.save(wait=True)
            raise
        stack.callback(logger.close)
        serve(server, store, checkpoint, logger, args, ctx)
        store.turn_away()
        checkpoint.save(wait=True)
        send_unlogged(store, logger)
        logger.add(store.stats())
        logger.flush()
        ending.done()


def make_server(
    store: ReplayStore, ending: shutdown.Ending, args: RunSettings
) -> rpc.Server:
    """A server, not started, with all that other roles may ask for."""
    server = connections.serve(args.replay_addr, "replay", args)
    for name in METHODS:
        server.bind(name, getattr(store, name))
    server.bind("end", ending)
    return server


def serve(
    server: rpc.Server,
    store: ReplayStore,
    checkpoint: Checkpoint,
    logger: metrics_client.LoggerLink,
    args: RunSettings,
    ctx: Context,
) -> None:
    """Log and save now and then, until asked to stop."""
    due_log, due_save = Seconds(args.log_every), Seconds(args.save_every)
    while not ctx.wait_stop(1.0):
        ctx.beat()
        connections.check(server)
        if due_log():
            metrics = connections.prefixed("server/replay", server.stats())
            metrics |= connections.prefixed("client/replay", logger.stats())
            logger.add(store.stats() | metrics)
        if due_save():
            checkpoint.save()


def send_unlogged(store: ReplayStore, logger: metrics_client.LoggerLink) -> None:
    """Send the logger the steps that it lacks, if the agent died before it did."""

    def unlogged(seen: base.Batch) -> Future:
        future: Future = Future()
        future.set_result(store.unlogged(seen))
        return future

    feed = StepFeed(logger.tran, logger.seen, unlogged)
    flush(feed, logger.patience)
    feed.close()


class ReplayStore:
    """Training and evaluation replay behind one interface, rate-limited."""

    def __init__(
        self,
        replay: base.Replay,
        replay_eval: base.Replay,
        make_stream: MakeStream,
        args: RunSettings,
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
        self._actor = 0  # Number of the newest actor.
        self._paid: deque[tuple] = deque(maxlen=MAX_PAID)  # Draws that spent credit.
        self._adding = threading.Lock()
        self._room = disk.Room("replay")
        self._timer = Timer()
        self._usage = Usage(args.usage)

    def take_over(self, actor: int | None = None) -> dict[str, Any]:
        """Admit a new actor, whose number goes with its steps and grows over restarts.

        Steps of earlier actors, which may still be on their way, are ignored from now
        on. With the new actor there is a learner again: inserts are limited.
        """
        self._limiter.open(False)
        self._room.give_up(False)
        with self._adding:
            actor = self._actor + 1 if actor is None else actor
            self._actor = max(self._actor, actor)
            stored = self._newest()
        return {
            "actor": actor,
            "total": self._replay.total,
            "stored": {
                routing.ENVID: np.array(list(stored), np.int64),
                routing.SEQ: np.array(list(stored.values()), np.int64),
            },
        }

    def _newest(self) -> dict[int, int]:
        """Environments and the number of the last step that is stored of each."""
        found: dict[int, int] = {}
        for replay in (self._replay, self._replay_eval):
            if isinstance(replay, Replay):
                for envid, seq in replay.newest().items():
                    found[envid] = max(seq, found.get(envid, seq))
        return found

    def unlogged(self, seen: base.Batch) -> dict[str, Any]:
        """Stored steps that the logger has not seen, and whether these are all.

        `seen` has the last number (`seq`) of environments (`envid`). Steps of others
        count if they have an incarnation: those of a serial run were logged by it.
        Nothing is known of steps that the replay has evicted, or of those in a replay
        of another kind.
        """
        seqs = dict(
            zip(seen[routing.ENVID].tolist(), seen[routing.SEQ].tolist(), strict=True)
        )
        steps: list[base.Batch] = []
        complete = True
        for replay, is_eval in ((self._replay, False), (self._replay_eval, True)):
            if isinstance(replay, Replay):
                first = (1 << routing.INCARNATION_BITS) - 1
                tail = replay.after(seqs, FLAGS, MAX_UNLOGGED, first)
                steps += _log_batches(tail, is_eval)
                complete &= len(tail.seqs) < MAX_UNLOGGED
        return {"steps": steps, "complete": complete}

    def add_batch(self, steps: base.Batch, actor: int | None = None) -> int:
        """Store steps by environment; returns the training steps ever stored.

        `steps` need `envid` and the flags of every observation. Steps without `seq`
        form a stream of their own, apart from numbered steps of the environment; they
        are stored again if the call is repeated. Steps of an `actor` that another one
        has replaced are ignored.
        """
        steps = receive(steps, FLAGS)
        is_eval = steps[routing.IS_EVAL]
        for replay, rows in ((self._replay, ~is_eval), (self._replay_eval, is_eval)):
            count = int(np.count_nonzero(rows))
            if count == len(rows):
                self._add(replay, steps, count, actor)
            elif count:
                part = {k: v[rows] for k, v in steps.items()}
                self._add(replay, part, count, actor)
        return self._replay.total

    def sample_batch_train(self, draw: Sequence[int] | None = None) -> base.Batch:
        """The next training batch; empty if the limiter blocks for too long.

        `draw` is a learner id and an increasing count. A draw that is repeated because
        its reply was lost does not spend credit again.
        """
        paid = draw is not None and tuple(draw) in self._paid
        if not paid:
            with self._timer.section("sample_wait"):
                if not self._limiter.sample(self._batch_size, timeout=HOLD):
                    return {}
            if draw is not None:
                self._paid.append(tuple(draw))
        return self._next("train")

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
        """Stop limiting inserts, so that steps in flight are stored.

        As the run ends, those that find no room are rejected and no longer wait.
        """
        self._limiter.open()
        self._room.give_up()

    def stats(self) -> base.Metrics:
        """Metrics since the last call."""
        timer = self._timer.stats()
        return {
            bottleneck.INSERT_WAIT: min(1.0, timer.get("insert_wait/share", 0.0)),
            bottleneck.SAMPLE_WAIT: min(1.0, timer.get("sample_wait/share", 0.0)),
            **connections.prefixed("timer/replay", timer),
            **connections.prefixed("usage/replay", self._usage.stats()),
            **connections.prefixed("limiter", self._limiter.stats()),
            **connections.prefixed("replay", self._replay.stats()),
            **connections.prefixed("replay_eval", self._replay_eval.stats()),
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
        if len(self._replay):  # Without its files, a batch must be collected first.
            self._limiter.load(data["limiter"])
            self._limiter.found(self._replay.total)

    def turn_away(self) -> None:
        """Wake blocked callers with an error."""
        self._limiter.close()
        self._room.give_up()

    def close(self) -> None:
        """Release the directories."""
        self._replay.close()
        self._replay_eval.close()

    def _add(
        self, replay: base.Replay, steps: base.Batch, count: int, actor: int | None
    ) -> None:
        """Store steps once the limiter allows it and the disk has room.

        The server runs one call at a time, so steps that wait keep their order.
        """

        def store() -> int:
            with self._adding, self._timer.section("add"):
                replaced = self._is_replaced(actor)
                return 0 if replaced else self._store(replay, steps, count)

        limiter = self._limiter if replay is self._replay else None
        if limiter:
            with self._timer.section("insert_wait"):
                limiter.insert(count)
        added = 0
        try:
            added = self._room.retry(store)
        finally:
            if limiter and added < count:
                limiter.take_back(count - added)

    def _is_replaced(self, actor: int | None) -> bool:
        """Whether a newer actor has taken over, perhaps before this replay started."""
        if actor is None:
            return False
        self._actor = max(self._actor, actor)
        return actor < self._actor

    def _store(self, replay: base.Replay, steps: base.Batch, count: int) -> int:
        """How many steps were new."""
        stored = {k: v for k, v in steps.items() if base.is_stored(k)}
        workers, seqs = _streams(steps)
        new = replay.add_batch(stored, workers, seqs)
        return count if new is None else new  # A user's replay may not count.

    def _next(self, mode: str) -> base.Batch:
        with self._locks[mode], self._timer.section("sample"):
            return next(self._streams[mode])


def _log_batches(tail: Tail, is_eval: bool) -> list[base.Batch]:
    """Steps as the logger takes them; it counts training steps only."""
    columns = {
        **tail.steps,
        routing.ENVID: tail.workers,
        routing.SEQ: tail.seqs,
        routing.IS_EVAL: np.full(len(tail.seqs), is_eval),
    }
    batches = []
    for start in range(0, len(tail.seqs), UNLOGGED_BATCH):
        rows = slice(start, start + UNLOGGED_BATCH)
        step = 0 if is_eval else int(tail.orders[rows][-1])
        batch = {key: value[rows] for key, value in columns.items()}
        batches.append({**batch, outbox.STEP: step, outbox.PARTIAL: True})
    return batches


def _streams(steps: base.Batch) -> tuple[list[int], list[int | None]]:
    """Worker and number of each step.

    Unnumbered steps get a separate stream per environment, since their numbers could
    collide with those of numbered steps.
    """
    workers: list[int] = steps[routing.ENVID].tolist()
    seqs: list[int | None] = steps[routing.SEQ].tolist()
    for row in np.flatnonzero(steps[routing.SEQ] == routing.UNNUMBERED):
        workers[row] += routing.MAX_ENVS
        seqs[row] = None
    return workers, seqs
