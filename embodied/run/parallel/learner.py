"""The learner role: trains on batches from the replay, reports, saves the agent."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import methodcaller
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.core.usage import Usage
from embodied.process.context import Context, StoppedError
from embodied.run import restore
from embodied.run.learner import Learner, Reporter
from embodied.run.parallel import bottleneck, connections, metrics_client
from embodied.run.settings import Given, RunSettings

LOOKAHEAD = 2  # Batches asked for before they are needed.
MAX_UPDATES = 4  # Unacknowledged write-backs of latents before the learner blocks.
SAMPLE_TIMEOUT = 60.0  # Seconds; the replay replies sooner if it has no batch yet.
ATTEMPTS = 6  # Consecutive timeouts before failing; a hung replay restarts sooner.


def parallel_learner(
    agent: base.Agent,
    barrier: threading.Barrier,
    args: Given,
    ctx: Context | None = None,
) -> None:
    """Restore, let the actor start, and train until asked to stop."""
    args, ctx = RunSettings.of(args), ctx or Context.of(barrier)
    client = connections.connect(args.replay_addr, "learner", args, ctx)
    logger = metrics_client.LoggerLink("learner", args, ctx)
    part = ctx.part("learner")
    wait = partial(ctx.wait, beat=part.beat)
    wait_last = partial(ctx.wait_last, role="replay", beat=part.beat)
    replay, held_out = (
        RemoteReplay(client, mode, wait, wait_last) for mode in ("train", "eval")
    )
    learner = Learner(agent, replay, parallel_stream, args)
    evaluation = Reporter(agent, held_out, parallel_stream, args, mode="eval")
    items = {"agent": agent, "learner": learner}
    checkpoint = Checkpoint(restore.directory(args), items, meta=restore.meta(args))
    usage = Usage(args.usage)
    restore.restore(checkpoint, agent, replay, args)
    barrier.wait()
    due_log, due_report = Seconds(args.log_every), Seconds(args.report_every)
    due_save = Seconds(args.save_every)
    with contextlib.ExitStack() as stack:
        for each in (part, logger, client, checkpoint):
            stack.callback(each.close)
        if replay.total >= args.steps:  # The run was complete before it was started.
            ctx.complete()
            return
        with contextlib.suppress(StoppedError):  # While waiting for a batch.
            while not ctx.stopping():
                learner.update()
                part.unsaved = True
                part.beat()
                if due_report():
                    report(learner, evaluation, logger)
                if due_log():
                    logger.add(stats(learner, usage) | replay.stats())
                if due_save():
                    with learner.timer.section("save"):
                        checkpoint.save()
        # Only after a clean end: a failed update must not replace a good checkpoint.
        checkpoint.save(wait=True)
        replay.patient = held_out.patient = True
        learner.flush()
        if note := learner.untrained_note():
            elements.print(note, color="yellow", flush=True)
        if ctx.completed():
            report(learner, evaluation, logger)
        logger.add(learner.stats())


def report(
    learner: Learner, evaluation: Reporter, logger: metrics_client.LoggerLink
) -> None:
    """Log metrics and videos on replayed and on held-out data."""
    logger.add(connections.prefixed("report", learner.report()))
    logger.add(connections.prefixed("eval", evaluation()))


def stats(learner: Learner, usage: Usage) -> base.Metrics:
    """Metrics since the last call, and what share of the time it waited."""
    metrics = learner.stats()
    waited = min(1.0, metrics.get("timer/learner/batch/share", 0.0))
    figures = connections.prefixed("usage/agent", usage.stats())
    return {**metrics, **figures, bottleneck.LEARNER_WAIT: waited}


class RemoteReplay:
    """The replay role as the learner sees it: its training or evaluation data."""

    def __init__(
        self,
        client: rpc.Client,
        mode: base.Mode,
        wait: Callable[[rpc.Future], Any] = methodcaller("result"),
        wait_last: Callable[[rpc.Future], Any] = methodcaller("result"),
    ):
        """Waits for batches by `wait`, and by `wait_last` if asked to stop, too."""
        self.client = client
        self._mode = mode
        self._wait = wait
        self._wait_last = wait_last
        self._total = 0  # When it was last asked for.
        self.patient = False  # Whether to wait even after a stop request.
        self._updates: deque[rpc.Future] = deque()

    def __len__(self) -> int:
        return self._wait_last(self.client.length(self._mode))

    @property
    def total(self) -> int:
        """Training steps ever stored; the last known number if the replay is gone."""
        with contextlib.suppress(StoppedError):
            self._total = self._wait_last(self.client.total())
        return self._total

    def update(self, data: base.Batch) -> None:
        """Write latents back; blocks only if too many calls are in flight."""
        arrays = {key: np.asarray(value) for key, value in data.items()}
        self._updates.append(self.client.update(arrays))
        while len(self._updates) > MAX_UPDATES or (
            self._updates and self._updates[0].done()
        ):
            self._wait_last(self._updates.popleft())

    def wait(self, future: rpc.Future) -> base.Batch:
        """The result of a call for a batch."""
        return (self._wait_last if self.patient else self._wait)(future)

    def stats(self) -> base.Metrics:
        """Figures of the client."""
        return connections.prefixed("client/learner", self.client.stats())


def parallel_stream(replay: RemoteReplay, mode: base.Mode) -> RemoteStream:
    """Batches of a mode, as the replay role's own stream makes them."""
    lookahead = LOOKAHEAD if mode == "train" else 0
    return RemoteStream(replay, f"sample_batch_{mode}", lookahead)


class RemoteStream(base.Stream):
    """Calls a method ahead of time and returns the results in order.

    Retries on an empty batch, which means that the limiter blocked for too long.
    Training draws are numbered, so that a repeated one spends no credit.
    """

    def __init__(self, replay: RemoteReplay, method: str, lookahead: int):
        self._replay = replay
        self._method = method
        self.lookahead = lookahead
        self._futures: deque[rpc.Future] = deque()
        self._learner = secrets.randbits(62)
        self._draws = 0

    def __next__(self) -> base.Batch:
        batch: base.Batch = {}
        unanswered = 0
        while not batch:
            while len(self._futures) < 1 + self.lookahead:
                self._futures.append(self._draw())
            try:
                batch = self._replay.wait(self._futures.popleft())
                unanswered = 0
            except TimeoutError:
                unanswered += 1
                if unanswered == ATTEMPTS:
                    raise
        return batch

    def _draw(self) -> rpc.Future:
        self._draws += 1
        numbered = self._method == "sample_batch_train"
        args = ((self._learner, self._draws),) if numbered else ()
        return self._replay.client.call(self._method, args, timeout=SAMPLE_TIMEOUT)

    def save(self) -> None:
        return None

    def load(self, data: None) -> None:
        assert data is None, data
