"""Fills, samples and reopens a replay of many streams with few open files allowed."""

import resource
import sys
from pathlib import Path

import numpy as np

from embodied.replay import Replay

STREAMS, AT_ONCE, LENGTH = 10_000, 1000, 3
FILES = 1024  # The usual limit of open files.
CHUNK = 4  # Steps; `wide` fills a page, so that pages are made in advance.


def add(replay: Replay, seqs: range) -> None:
    """Add a step of each number to all streams."""
    for seq in seqs:
        for first in range(0, STREAMS, AT_ONCE):
            workers = np.arange(first, first + AT_ONCE)
            wide = np.repeat(workers[:, None] * 100 + seq, 128, axis=1)
            steps = {"wide": wide.astype(np.int32), "is_first": workers < 0}
            added = replay.add_batch(steps, workers.tolist(), [seq] * AT_ONCE)
            assert added == AT_ONCE, added


def check(replay: Replay, steps: int) -> None:
    """Every step is there, and sequences are of one stream."""
    assert replay.total == STREAMS * steps, replay.total
    assert len(replay) == STREAMS * (steps - LENGTH + 1), len(replay)
    batch = replay.sample(1000)
    codes = batch["wide"][..., 0]
    assert (np.diff(codes, axis=1) == 1).all(), codes
    assert len(np.unique(codes // 100)) > 500, "few streams are sampled"


def main(directory: Path) -> None:
    """Run it all; fails as soon as too many files are open."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))
    steps = 0
    for more in (3, 2):  # The second time, all streams also enter another chunk.
        replay = Replay(LENGTH, 10**7, directory, chunksize=CHUNK)
        add(replay, range(steps, steps + more))
        steps += more
        check(replay, steps)
        replay.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
