"""Episode statistics, computed in one place for every loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from embodied.core import base

# Frames kept per recorded episode, to bound its memory.
MAX_FRAMES = 1000
# Seconds without any step after which the run itself holds its environments back, as it
# compiles, learns or is suspended.
PAUSE = 1.0


class Episode(NamedTuple):
    """A completed episode of one worker."""

    worker: int
    score: float  # Sum of rewards.
    length: int  # Steps, not counting the first observation.
    stats: dict[str, float]  # avg, max and sum of each scalar `log/` key.
    videos: dict[str, np.ndarray]  # [T, H, W, C] uint8 per image key, if recorded.

    def metrics(self) -> dict[str, float]:
        """What goes to the logger under `episode/`."""
        return {"score": self.score, "length": self.length}


class _Total:
    """What is left of the values of one key: as little after a million steps."""

    def __init__(self, total: float, largest: float, count: int):
        self.total = total
        self.largest = largest
        self.count = count

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1
        if value > self.largest:
            self.largest = value

    def save(self) -> list[float]:
        return [self.total, self.largest, self.count]


class _Record:
    """The unfinished episode of one worker."""

    def __init__(self, now: float):
        self.score = 0.0
        self.length = 0
        self.updated = now
        self.partial = False  # Values to log or images of some steps are unknown.
        self.logs: dict[str, _Total] = {}
        self.frames: dict[str, list[np.ndarray]] = {}


class EpisodeTracker:
    """Follows the steps of many workers and returns their episodes as they complete.

    An episode counts only if it was seen from its first step to its last. One that
    stays silent for `timeout` seconds while others have steps is dropped, since its
    environment is gone. Time without steps of any does not count.
    """

    def __init__(
        self,
        timeout: float = float("inf"),
        record: int | None = None,
        now: Callable[[], float] = time.monotonic,
    ):
        self._timeout = timeout
        self._record = record  # Worker whose image observations are kept as videos.
        self._now = now
        self._time = 0.0  # Seconds with steps, until the last one at `_last`.
        self._last = now()
        self._records: dict[int, _Record] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add_batch(
        self, steps: base.Batch, workers: Sequence[int], partial: bool = False
    ) -> list[Episode]:
        """Take steps of workers, leaves [N, ...]; return what completed.

        Of episodes with `partial` steps, which lack values, only the score counts.
        """
        now = self._time = self._clock()
        self._last = self._now()
        rewards = np.asarray(steps[base.REWARD], np.float64).tolist()
        firsts = np.asarray(steps[base.IS_FIRST]).tolist()
        lasts = np.asarray(steps[base.IS_LAST]).tolist()
        logs = _scalars(steps)
        episodes = []
        for index, worker in enumerate(workers):
            if firsts[index]:
                self._records[worker] = _Record(now)
            record = self._records.get(worker)
            if record is None:
                continue
            record.updated = now
            record.partial |= partial
            record.score += rewards[index]
            record.length += not firsts[index]
            for key, values in logs.items():
                if key in record.logs:
                    record.logs[key].add(values[index])
                else:
                    record.logs[key] = _Total(values[index], values[index], 1)
            if worker == self._record and record.length <= MAX_FRAMES:
                self._add_frames(record, steps, index)
            if lasts[index]:
                episodes.append(_finish(self._records.pop(worker), worker))
        return episodes

    def drop_stale(self) -> list[int]:
        """Forget episodes silent for `timeout` seconds; return their workers."""
        limit = self._clock() - self._timeout
        stale = [w for w, record in self._records.items() if record.updated < limit]
        for worker in stale:
            del self._records[worker]
        return stale

    def save(self) -> dict[str, Any]:
        """Unfinished episodes, without their videos."""
        saved = {}
        for worker, record in self._records.items():
            totals = {key: total.save() for key, total in record.logs.items()}
            figures = {"score": record.score, "length": record.length}
            figures["partial"] = record.partial
            saved[str(worker)] = {**figures, "totals": totals}
        return saved

    def load(self, data: dict[str, Any]) -> None:
        """Resume unfinished episodes."""
        for worker, saved in data.items():
            record = self._records[int(worker)] = _Record(self._clock())
            record.score, record.length = saved["score"], saved["length"]
            record.partial = saved.get("partial", False)  # Not in runs of release 0.1.
            for key, total in saved.get("totals", {}).items():
                record.logs[key] = _Total(*total)
            for key, values in saved.get("logs", {}).items():  # Of release 0.1.
                record.logs[key] = _Total(sum(values), max(values), len(values))

    def _clock(self) -> float:
        """Seconds in which steps came, with a short pause after the last one."""
        return self._time + min(self._now() - self._last, PAUSE)

    def _add_frames(self, record: _Record, steps: base.Batch, index: int) -> None:
        for key, value in steps.items():
            if (
                value.dtype == np.uint8
                and value.ndim == 4
                and value.shape[-1] in (1, 3)
            ):
                record.frames.setdefault(key, []).append(value[index].copy())


def _scalars(steps: base.Batch) -> dict[str, list[float]]:
    return {
        key: np.asarray(value, np.float64).tolist()
        for key, value in steps.items()
        if base.is_logged(key) and np.ndim(value) == 1
    }


def _finish(record: _Record, worker: int) -> Episode:
    if record.partial:
        return Episode(worker, record.score, record.length, {}, {})
    stats = {}
    for key, values in record.logs.items():
        stats[f"{key}/avg"] = values.total / values.count
        stats[f"{key}/max"] = values.largest
        stats[f"{key}/sum"] = values.total
    videos = {key: np.stack(frames) for key, frames in record.frames.items()}
    return Episode(worker, record.score, record.length, stats, videos)
