"""The live state of a run: progress, scores, newest metrics."""

from __future__ import annotations

import collections
import math
import re
import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from embodied.metrics.jsonl import SCORE
from embodied.metrics.summary import Summary, is_scalar

TRAINED, BOTTLENECK = "fps/train", "parallel/bottleneck"
RECENT = 20  # Episodes of the running mean.
WINDOW = 300.0  # Seconds over which the speed is measured.


class Progress:
    """Progress of a run and its remaining time, estimated from step counts."""

    def __init__(self, steps: int, duration: float = 0.0):
        self.steps = steps
        self.step = 0
        self._duration = duration
        self._seen: collections.deque[tuple[float, int]] = collections.deque()

    @property
    def fraction(self) -> float:
        return min(1.0, self.step / self.steps)

    def see(self, elapsed: float, step: int) -> None:
        """Record the count; time before it first moves (compilation) is ignored."""
        self.step = step
        seen = self._seen
        if len(seen) == 1 and seen[0][1] == step:
            seen.pop()
        if not seen and not step:
            return
        if len(seen) < 2 or elapsed - seen[-2][0] >= WINDOW / 100:
            seen.append((elapsed, step))
        else:
            seen[-1] = (elapsed, step)
        while len(seen) > 2 and elapsed - seen[0][0] > WINDOW:
            seen.popleft()

    def forget(self) -> None:
        """Restart the measurement of speed, as training begins."""
        self._seen.clear()

    def rate(self) -> float:
        """Recent steps per second; 0 while unknown."""
        if len(self._seen) < 2:
            return 0.0
        (begin, first), (end, last) = self._seen[0], self._seen[-1]
        return (last - first) / (end - begin) if end > begin else 0.0

    def left(self, elapsed: float) -> float:
        """Seconds until the end; infinite while unknown."""
        rate = self.rate()
        missing = max(0, self.steps - self.step)
        by_steps = missing / rate if rate else math.inf
        by_time = self._duration - elapsed if self._duration else math.inf
        return max(0.0, min(by_steps, by_time))


class Curve:
    """A curve of any length in few points: if there are too many, pairs are merged."""

    def __init__(self, size: int = 256):
        self._size = size
        self._points: list[float] = []
        self._stride = 1  # Values per point.
        self._open: list[float] = []  # Values of the next point.

    def add(self, value: float) -> None:
        self._open.append(value)
        if len(self._open) == self._stride:
            self._points.append(float(np.mean(self._open)))
            self._open = []
        if len(self._points) == self._size:
            pairs = np.reshape(self._points, (-1, 2))
            self._points = pairs.mean(-1).tolist()
            self._stride *= 2

    def points(self, width: int) -> list[float]:
        """At most `width` means of neighbours."""
        rest = [float(np.mean(self._open))] if self._open else []
        points = self._points + rest
        if len(points) <= width:
            return points
        return [float(np.mean(part)) for part in np.array_split(points, width)]


class Status:
    """Collects metrics; those that do not match the pattern are not shown."""

    def __init__(
        self,
        pattern: str = ".*",
        steps: int = 0,
        duration: float = 0.0,
        step: Callable[[], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
        passed: float = 0.0,  # Seconds since the run started.
    ):
        self.progress = Progress(steps, duration)
        self.curve = Curve()
        self.recent: collections.deque[float] = collections.deque(maxlen=RECENT)
        self.odd = 0  # Scores that are not finite.
        self.metrics: dict[str, float] = {}  # Newest mean of each scalar.
        self.texts: dict[str, str] = {}
        self.written = self.trained = False
        self.lock = threading.RLock()
        self._pattern = re.compile(pattern)
        self._step = step
        self._clock = clock
        self._start = clock() - passed

    @property
    def elapsed(self) -> float:
        return self._clock() - self._start

    def tick(self) -> None:
        """Read the step counter, which also moves between writes."""
        with self.lock:
            step = self._step() if self._step else self.progress.step
            self.progress.see(self.elapsed, max(step, self.progress.step))

    def add(self, summaries: Sequence[Summary]) -> list[str]:
        """Add the metrics of a write; returns the names of those to show."""
        groups: dict[str, list[float]] = {}
        texts: dict[str, str] = {}
        with self.lock:
            self.written = True
            for _, name, value in summaries:
                if name == TRAINED and value and not self.trained:
                    self.trained = True
                    self.progress.forget()
                if not self._pattern.search(name):
                    continue
                if isinstance(value, str):
                    texts[name] = value
                elif is_scalar(value):
                    groups.setdefault(name, []).append(np.asarray(value).item())
            for score in groups.get(SCORE, ()):
                self.add_score(score)
            means = {name: float(np.mean(values)) for name, values in groups.items()}
            self.metrics |= means
            self.texts |= texts
            step = max((step for step, _, _ in summaries), default=0)
            self.progress.see(self.elapsed, max(int(step), self.progress.step))
        return [*means, *texts]

    def add_score(self, score: float) -> None:
        """Count the score of an episode."""
        if math.isfinite(score):
            self.recent.append(score)
            self.curve.add(score)
        else:
            self.odd += 1
