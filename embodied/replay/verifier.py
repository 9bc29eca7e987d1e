"""Finds damage in stored steps, and notes the checksums of new ones, in the background.

Each chunk is read once after the directory is opened. The thread rests for a multiple
of the time it works, so that neither start-up nor sampling waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from embodied.replay.checksums import Checksums
from embodied.replay.chunk import Chunk
from embodied.replay.compression import DamagedError
from embodied.replay.memory_limit import MemoryLimit

EVERY = 10.0  # Seconds between looks for chunks that are full.
REST = 4.0  # Seconds of rest for each second of work.
CLOSING = 1.0  # Seconds that the last checksums may take.


class Verifier:
    """A thread that compares chunks with their checksums and reports damaged ones."""

    def __init__(
        self,
        checksums: Checksums,
        limit: MemoryLimit,
        chunks: Callable[[], list[Chunk]],
        report: Callable[[Chunk, str], None],
    ):
        self._checksums = checksums
        self._limit = limit
        self._chunks = chunks
        self._report = report
        self._stop = threading.Event()
        self._verified = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="verify")

    def start(self) -> None:
        """Begin with the chunks there are."""
        self._checksums.keep(self._chunks())
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait until each chunk of an earlier process was looked at."""
        return self._verified.wait(timeout)

    def close(self) -> None:
        """Stop, and note the checksums that are missing as far as time allows."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        end = time.monotonic() + CLOSING
        for chunk in self._chunks():
            if time.monotonic() < end:
                self._cover(chunk)

    def _run(self) -> None:
        for chunk in self._chunks():
            if not self._rest_after(self._verify, chunk):
                return
        self._verified.set()
        while not self._stop.wait(EVERY):
            for chunk in self._chunks():
                covered = self._checksums.covered(chunk) == chunk.size
                if chunk.full and not covered:
                    self._rest_after(self._cover, chunk)

    def _rest_after(self, work: Callable[[Chunk], None], chunk: Chunk) -> bool:
        """Whether there is more to do after some work and the rest that it earns."""
        begin = time.perf_counter()
        work(chunk)
        return not self._stop.wait(REST * (time.perf_counter() - begin))

    def _verify(self, chunk: Chunk) -> None:
        if chunk.gone:
            return
        try:
            with self._limit.hold(chunk):
                reason = self._checksums.check(chunk)
        except DamagedError as error:
            reason = str(error)
        if reason:
            self._report(chunk, reason)
        else:
            self._cover(chunk)

    def _cover(self, chunk: Chunk) -> None:
        count = chunk.count
        if chunk.gone or self._checksums.covered(chunk) >= count:
            return
        try:
            with self._limit.hold(chunk):
                self._checksums.add(chunk, count)
        except DamagedError as error:
            self._report(chunk, str(error))
