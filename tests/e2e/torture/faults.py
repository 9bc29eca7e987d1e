"""Faults: what is done to a run, to which part of it, when and for how long."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import psutil

from tests.e2e.torture.run import LAUNCHER, TortureRun

KILL, STOP, CRASH, PARTITION, DISK = "kill", "stop", "crash", "partition", "disk"


class Kind(NamedTuple):
    """How often a kind of fault happens, and for how long."""

    often: int  # In each round of faults.
    shortest: float  # Seconds.
    longest: float


# A stopped environment is replaced after half of the longest stop, so that both
# outcomes occur. So they do with partitions: after 35 s, connections are made anew. A
# crash costs the run the time of several other faults.
KINDS = {
    KILL: Kind(4, 0.0, 0.0),  # A role dies.
    STOP: Kind(4, 0.5, 10.0),  # A role is suspended.
    PARTITION: Kind(2, 0.5, 45.0),  # The two machines cannot reach each other.
    DISK: Kind(3, 0.5, 10.0),  # No machine can write a byte.
    CRASH: Kind(1, 0.0, 0.0),  # The launcher dies with its roles; the run is resumed.
}
TARGETS = {CRASH: [LAUNCHER], PARTITION: ["network"], DISK: ["disk"]}  # Not roles.
BETWEEN = (4.0, 12.0)  # Seconds from one fault to the next; they may overlap.


class Fault(NamedTuple):
    """Something that is done to a run."""

    at: float  # Seconds since the first fault could happen.
    kind: str
    target: str  # A role, or what is meant by the kind.
    seconds: float

    def __str__(self) -> str:
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:7.1f} s  {self.kind} {self.target}{lasts}"


def plan(
    seed: int, seconds: float, kinds: Sequence[str], roles: Sequence[str]
) -> list[Fault]:
    """Faults of some kinds for some time; the same seed gives the same ones."""
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"unknown faults {sorted(unknown)}; there are {list(KINDS)}")
    rng, faults = random.Random(seed), []
    rounds = deal(rng, [kind for kind in kinds for _ in range(KINDS[kind].often)])
    targets = {kind: deal(rng, TARGETS.get(kind, roles)) for kind in kinds}
    at = rng.uniform(*BETWEEN)
    while kinds and at < seconds:
        kind = next(rounds)
        lasts = rng.uniform(KINDS[kind].shortest, KINDS[kind].longest)
        faults.append(Fault(at, kind, next(targets[kind]), lasts))
        at += rng.uniform(*BETWEEN)
    return faults


def deal(rng: random.Random, cards: Sequence[str]) -> Iterator[str]:
    """Cards in random order, all of them before one comes again."""
    while True:
        yield from rng.sample(cards, len(cards))


class Injector:
    """Injects faults into a run, and notes when it took the agent's memory.

    Each fault ends in a thread of its own, as the next one may have to wait for that:
    a role that dies while the disk is full is not there before.
    """

    def __init__(self, run: TortureRun):
        self._run = run
        self.deaths: list[float] = []  # Of agents, as the clock of the journals says.
        self.killed: list[str] = []  # Roles, in the order of their deaths.
        self._changed = threading.Condition()
        self._open = {PARTITION: 0, DISK: 0}  # Faults that overlap.

    def inject(self, faults: Sequence[Fault], seconds: float) -> None:
        """Begin each fault at its time, or as soon as its target is there."""
        pause, start, timers = threading.Event(), time.monotonic(), []
        for fault in faults:
            pause.wait(max(0.0, start + fault.at - time.monotonic()))
            self._run.check_running()
            print(fault, file=sys.stderr, flush=True)
            if end := self._begin(fault):
                timers.append(threading.Timer(fault.seconds, end))
                timers[-1].start()
        for timer in timers:
            timer.join()
        pause.wait(max(0.0, start + seconds - time.monotonic()))

    def _begin(self, fault: Fault) -> Callable[[], None] | None:
        """Begin a fault; returns what ends it."""
        run = self._run
        match fault.kind:
            case "kill":
                return self._kill(fault.target)
            case "stop":
                return self._stop(fault.target)
            case "crash":
                self.deaths.append(time.time())
                run.crash()
                with self._changed:  # A run cannot start on a full disk.
                    self._changed.wait_for(lambda: not self._open[DISK])
                return run.launch()
            case "partition":
                return self._overlap(PARTITION, run.cable.unplug, run.cable.plug_in)
            case "disk":
                return self._overlap(DISK, run.disk.fill, run.disk.free)
        raise ValueError(fault.kind)

    def _kill(self, role: str) -> None:
        process = self._run.process(role)
        if role == "agent":
            self.deaths.append(time.time())
        process.kill()
        self.killed.append(role)

    def _stop(self, role: str) -> Callable[[], None]:
        process = self._run.process(role)
        process.suspend()

        def resume() -> None:
            with contextlib.suppress(psutil.NoSuchProcess):  # It has been replaced.
                process.resume()

        return resume

    def _overlap(
        self, kind: str, begin: Callable[[], None], end: Callable[[], None]
    ) -> Callable[[], None]:
        """Begin a fault that ends with the last one of its kind."""
        with self._changed:
            self._open[kind] += 1
            if self._open[kind] == 1:
                begin()

        def finish() -> None:
            with self._changed:
                self._open[kind] -= 1
                if not self._open[kind]:
                    end()
                    self._changed.notify_all()

        return finish
