"""The learner role: trains on batches from the replay, reports, saves the agent."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Seconds
from embodied.run import restore, role
from embodied.run.learn import Learner, Reporter
from embodied.run.parallel import wire

LOOKAHEAD = 2  # Batches asked for before they are needed.
MAX_UPDATES = 4  # Latents on their way back before the learner waits for the replay.
SAMPLE_TIMEOUT = 1e6  # Seconds; how long it takes to collect a batch is up to the envs.


def parallel_learner(
    agent: base.Agent, barrier: threading.Barrier, args: elements.Config
) -> None:
    """Restore, let the actor go, and train until asked to stop."""
    client = wire.connect(args.replay_addr, "learner", args)
    logger = wire.LoggerLink("learner", args)
    replay, held_out = RemoteReplay(client, "train"), RemoteReplay(client, "eval")
    learner = Learner(agent, replay, make_stream, args)
    evaluation = Reporter(agent, held_out, make_stream, args, mode="eval")
    items = {"agent": agent, "learner": learner}
    checkpoint = Checkpoint(restore.directory(args), items)
    restore.restore(checkpoint, agent, args)
    barrier.wait()
    due_log, due_report = Seconds(args.log_every), Seconds(args.report_every)
    due_save = Seconds(args.save_every)

    def report() -> None:
        logger.add(wire.prefixed("report", learner.report()))
        logger.add(wire.prefixed("eval", evaluation()))

    with contextlib.ExitStack() as stack:
        for each in (logger, client, checkpoint):
            stack.callback(each.close)
        with contextlib.suppress(role.StoppedError):  # While waiting for a batch.
            while not role.stopping():
                learner.update()
                role.beat()
                if due_report():
                    report()
                if due_log():
                    logger.add(learner.stats() | replay.stats())
                if due_save():
                    checkpoint.save()
        # Only after a clean end: a failed update must not replace a good checkpoint.
        checkpoint.save(wait=True)
        replay.patient = held_out.patient = True
        if role.completed():
            report()
        logger.add(learner.stats())


class RemoteReplay:
    """The replay role as the learner sees it: its training or evaluation data."""

    def __init__(self, client: rpc.Client, mode: base.Mode):
        self.client = client
        self._mode = mode
        self.patient = False  # Whether to wait although asked to stop.
        self._updates: deque[rpc.Future] = deque()
        self._waited = 0.0
        self._since = time.monotonic()

    def __len__(self) -> int:
        return self.client.length(self._mode).result()

    @property
    def total(self) -> int:
        return self.client.total().result()

    def update(self, data: base.Batch) -> None:
        """Send latents back, waiting only if too many are on their way."""
        arrays = {key: np.asarray(value) for key, value in data.items()}
        self._updates.append(self.client.update(arrays))
        while len(self._updates) > MAX_UPDATES or (
            self._updates and self._updates[0].done()
        ):
            self._updates.popleft().result()

    def wait(self, future: rpc.Future) -> base.Batch:
        """The result, and how long it took."""
        start = time.monotonic()
        try:
            return future.result() if self.patient else role.await_result(future)
        finally:
            self._waited += time.monotonic() - start

    def stats(self) -> base.Metrics:
        """The share of time spent waiting for batches, and figures of the client."""
        now = time.monotonic()
        share = self._waited / max(now - self._since, 1e-9)
        self._waited, self._since = 0.0, now
        client = wire.prefixed("client/learner", self.client.stats())
        return {wire.LEARNER_WAIT: share, **client}


def make_stream(replay: RemoteReplay, mode: base.Mode) -> RemoteStream:
    """Batches of a mode, as the replay role's own stream makes them."""
    lookahead = LOOKAHEAD if mode == "train" else 0
    return RemoteStream(replay, f"sample_batch_{mode}", lookahead)


class RemoteStream(base.Stream):
    """Calls a method ahead of time and returns the results in order."""

    def __init__(self, replay: RemoteReplay, method: str, lookahead: int):
        self._replay = replay
        self._method = method
        self._lookahead = lookahead
        self._futures: deque[rpc.Future] = deque()

    def __next__(self) -> base.Batch:
        while len(self._futures) < 1 + self._lookahead:
            future = self._replay.client.call(self._method, timeout=SAMPLE_TIMEOUT)
            self._futures.append(future)
        return self._replay.wait(self._futures.popleft())

    def save(self) -> None:
        return None

    def load(self, data: None) -> None:
        assert data is None, data
