"""Faults: what is done to a run, to which part of it, when and for how long."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
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
# outcomes occur. After a crash the run needs the time of several other faults.
KINDS = {
    KILL: Kind(4, 0.0, 0.0),  # A role dies.
    STOP: Kind(4, 0.5, 10.0),  # A role is suspended.
    PARTITION: Kind(3, 0.5, 20.0),  # The two machines cannot reach each other.
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
    """Injects faults into a run, and notes when it took the agent's memory."""

    def __init__(self, run: TortureRun):
        self._run = run
        self.deaths: list[float] = []  # Of agents, as the clock of the journals says.
        self.killed: list[str] = []  # Roles, in the order of their deaths.
        self._stopped: dict[Fault, psutil.Process] = {}
        self._open: dict[str, int] = {PARTITION: 0, DISK: 0}  # Faults that overlap.

    def inject(self, faults: Sequence[Fault], seconds: float) -> None:
        """Begin and end each fault at its time, or as soon as its target is there."""
        events = [(f.at, self._begin, f) for f in faults]
        events += [(f.at + f.seconds, self._end, f) for f in faults if f.seconds]
        pause, start = threading.Event(), time.monotonic()
        for at, act, fault in sorted(events, key=lambda event: event[0]):
            pause.wait(max(0.0, start + at - time.monotonic()))
            self._run.check_running()
            act(fault)
        pause.wait(max(0.0, start + seconds - time.monotonic()))

    def _begin(self, fault: Fault) -> None:
        print(fault, file=sys.stderr, flush=True)
        match fault.kind:
            case "kill":
                self._kill(fault.target)
            case "stop":
                process = self._run.process(fault.target)
                process.suspend()
                self._stopped[fault] = process
            case "crash":
                self.deaths.append(time.time())
                self._run.crash()
                self._run.launch()
            case "partition":
                self._open[PARTITION] += 1
                self._run.network.cable.unplug()
            case "disk":
                self._open[DISK] += 1
                self._run.disk.fill()

    def _end(self, fault: Fault) -> None:
        match fault.kind:
            case "stop":
                process = self._stopped.pop(fault)
                if process.is_running():  # Else it has been replaced.
                    process.resume()
            case "partition":
                self._open[PARTITION] -= 1
                if not self._open[PARTITION]:
                    self._run.network.cable.plug_in()
            case "disk":
                self._open[DISK] -= 1
                if not self._open[DISK]:
                    self._run.disk.free()

    def _kill(self, role: str) -> None:
        process = self._run.process(role)
        if role == "agent":
            self.deaths.append(time.time())
        process.send_signal(signal.SIGKILL)
        self.killed.append(role)
