"""All runs that are looked at, kept up to date by one thread."""

from __future__ import annotations

import contextlib
import pathlib
import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import elements
import numpy as np

from dreamerv3.viewing import cache, curves, runs
from dreamerv3.viewing.curves import Curve
from dreamerv3.viewing.table import Table
from dreamerv3.viewing.tail import LONGEST, Tail
from embodied.core import runfiles
from embodied.metrics.jsonl import SCORE as SCORE

SLICE = 1 << 22  # Bytes of a file that are read before the next run has its turn.
WORTH = 1 << 20  # Bytes read from which columns are kept for the next start.
RESCAN = 5.0  # Seconds after which new runs are looked for.


class Axis(NamedTuple):
    """What is along x, and how much of it."""

    name: str  # step or time
    low: float  # NaN: from the first value
    high: float  # NaN: to the last value
    amount: int  # Points of a curve at most.


class RunData:
    """The metrics of one run, which grow by `advance`."""

    def __init__(self, run: runs.Run, store: pathlib.Path | None):
        self.run = run
        self._store = store and store / f"{run.id}.columns"
        names = runfiles.SCORES, runfiles.METRICS
        self._files = {name: run.path / name for name in names}
        loaded = cache.load(self._store, self._files) if self._store else None
        self._parts = loaded or self._fresh()
        self._saved = self.position()
        self._failure = ""  # Of a program error; the run is no longer read then.

    def _fresh(self) -> dict[str, tuple[Tail, Table]]:
        return {name: (Tail(path), Table()) for name, path in self._files.items()}

    def advance(self, name: str) -> bool:
        """Read on in one of the files; returns whether there was something new.

        Whatever a file holds, it ends in an error of this run and not of the others.
        """
        if self._failure:
            return False
        try:
            return self._advance(name)
        except Exception as error:
            self._failure = f"{name}: {type(error).__name__}: {error}"
            return True

    def _advance(self, name: str) -> bool:
        tail, table = self._parts[name]
        if tail.changed():
            # Scores may be taken from either file, so both are read again.
            self._parts, self._saved = self._fresh(), 0
            tail, table = self._parts[name]
        before = tail.offset, tail.error
        lines = tail.read(SLICE)
        if lines:
            # The scores are in both files, and the small one is read first.
            known = (
                name == runfiles.METRICS and self._parts[runfiles.SCORES][0].usable()
            )
            table.add_lines(lines, frozenset([SCORE] if known else []))
        return (tail.offset, tail.error) != before

    def error(self) -> str:
        """What cannot be read, and why; empty if all can."""
        found = [self.run.error, self._failure]
        for name, (tail, table) in self._parts.items():
            if tail.error:
                found.append(f"{name}: {tail.error}")
            elif self.bad(name):
                reason = table.problem or f"longer than {LONGEST:,} bytes"
                found.append(
                    f"{name}: {_lines(self.bad(name))} cannot be read: {reason}"
                )
            elif table.problem:
                found.append(f"{name}: {table.problem}")
        return "; ".join(filter(None, found))

    def position(self) -> int:
        """Bytes read."""
        return sum(tail.offset for tail, _ in self._parts.values())

    def pending(self) -> int:
        """Bytes that wait to be read."""
        return sum(tail.pending() for tail, _ in self._parts.values())

    def keep(self) -> None:
        """Save the columns if much was read, and use the saved ones from then on."""
        fresh = self.position() - self._saved
        if self._store is None or fresh < max(WORTH, self._saved // 4):
            return
        try:
            cache.save(self._store, self._parts)
        except OSError as error:
            elements.print(f"Not kept for the next start: {error}", color="yellow")
            self._store = None
            return
        self._parts = cache.load(self._store, self._files) or self._parts
        self._saved = self.position()

    def names(self) -> list[str]:
        """Metrics of this run."""
        parts = tuple(self._parts.values())
        return [key for _, table in parts for key in tuple(table.columns)]

    def table(self, key: str) -> Table | None:
        """Where a metric is."""
        parts = tuple(self._parts.values())
        return next((table for _, table in parts if key in table.columns), None)

    def start(self) -> float:
        """Unix seconds of the first row that has a time; NaN if none has."""
        times = [table.times.view()[:1000] for _, table in self._parts.values()]
        known = np.concatenate(times)
        known = known[np.isfinite(known)]
        return float(known.min()) if len(known) else np.nan

    def step(self) -> int:
        """The last step."""
        steps = [t.steps.view()[-1] for _, t in self._parts.values() if len(t.steps)]
        return int(max(steps, default=0))

    def updated(self) -> float:
        """When a metrics file was last written, in Unix seconds; 0 for never."""
        times = [0.0]
        for path in self._files.values():
            with contextlib.suppress(OSError):
                times.append(path.stat().st_mtime)
        return max(times)

    def bad(self, name: str) -> int:
        """Lines of a file that could not be read."""
        tail, table = self._parts[name]
        return table.bad + tail.skipped

    def count(self) -> int:
        """Values of all metrics."""
        return sum(table.count for _, table in self._parts.values())

    def recent(self, key: str, amount: int = 20) -> float:
        """Mean of the last values of a metric; NaN if it has none."""
        table = self.table(key)
        if table is None:
            return np.nan
        last = table.columns[key].parts["values"].view()[-amount:]
        last = last[np.isfinite(last)]
        return float(last.mean()) if len(last) else np.nan

    def extent(self, key: str, axis: str) -> tuple[float, float]:
        """First and last x of a metric; NaN if it has none."""
        table = self.table(key)
        if table is None:
            return np.nan, np.nan
        return curves.extent(table, key, axis, self.start())

    def curve(self, key: str, axis: Axis) -> Curve:
        """A metric between two limits."""
        table = self.table(key)
        if table is None:
            return curves.EMPTY
        limits = (axis.low, axis.high)
        return curves.curve(table, key, axis.name, self.start(), limits, axis.amount)


class Store:
    """Runs found at some places. `refresh` asks its thread to read what is new."""

    def __init__(self, places: Sequence[str], store: pathlib.Path | None = None):
        self._places = list(places)
        self._store = store
        self._runs: dict[str, RunData] = {}
        self._order: list[str] = []
        self._scanned = -RESCAN
        self._wanted = threading.Event()
        self._closing = False
        self._total = 1
        self.version = 0  # Changes whenever there is something new.
        self.ready = threading.Event()  # Set once everything was read.
        self._scan(strict=False)
        self._thread = threading.Thread(target=self._work, daemon=True, name="index")

    def start(self) -> None:
        """Begin to read in the background."""
        self._wanted.set()
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing = True
        self._wanted.set()
        self._thread.join()

    def refresh(self) -> None:
        """Read what was appended, soon."""
        self._wanted.set()

    def read_all(self) -> None:
        """Read everything, now, in this thread; for commands without a page."""
        while self._pass():
            pass

    def all(self) -> list[RunData]:
        """All runs by name."""
        return [self._runs[name] for name in tuple(self._order)]

    def select(self, names: Iterable[str]) -> list[RunData]:
        """Runs by id, without those that are not there."""
        return [self._runs[name] for name in names if name in self._runs]

    def progress(self) -> float:
        """Part of the files that was read, 0 to 1."""
        if self.ready.is_set():
            return 1.0
        done = sum(data.position() for data in self.all())
        return min(1.0, done / max(1, self._total))

    def names(self) -> list[str]:
        """Metrics of any run."""
        return sorted({key for data in self.all() for key in data.names()})

    def limits(self, chosen: Sequence[RunData], key: str, axis: Axis) -> Axis:
        """The axis with its open limits set to the extent of the runs."""
        ends = np.array([data.extent(key, axis.name) for data in chosen])
        ends = ends[np.isfinite(ends).all(1)] if len(ends) else ends
        if not len(ends):
            return axis._replace(low=0.0, high=1.0)
        low = ends[:, 0].min() if np.isnan(axis.low) else axis.low
        high = ends[:, 1].max() if np.isnan(axis.high) else axis.high
        return axis._replace(low=float(low), high=float(high))

    def _scan(self, strict: bool) -> None:
        found = runs.find(self._places, strict)
        fresh = {
            run.id: self._runs.get(run.id) or RunData(run, self._store) for run in found
        }
        for run in found:
            fresh[run.id].run = run  # Its settings may have been written since.
        if list(fresh) != self._order:
            self.version += 1
        self._runs, self._order = fresh, list(fresh)
        self._scanned = time.monotonic()

    def _work(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._closing:
                return
            if time.monotonic() > self._scanned + RESCAN:
                self._scan(strict=False)
            everything = self.all()
            self._total = sum(d.position() + d.pending() for d in everything)
            while self._pass():
                pass
            for data in everything:
                data.keep()
            if not self.ready.is_set():
                self.ready.set()
                self.version += 1

    def _pass(self) -> bool:
        """Give every run a turn: first with the scores, which people look at first."""
        return self._turns(runfiles.SCORES) or self._turns(runfiles.METRICS)

    def _turns(self, name: str) -> bool:
        more = False
        for data in self.all():
            if self._closing:
                return False
            if data.advance(name):
                more = True
                self.version += 1
                if not data.pending():
                    data.keep()
        return more


def _lines(amount: int) -> str:
    return f"{amount:,} {'line' if amount == 1 else 'lines'}"
