"""Kills a process that fills a replay, many times, and looks for every step."""

import argparse
import os
import random
import signal
from pathlib import Path

import numpy as np

from embodied.replay import Replay
from embodied.testing.replay_model import stored_codes

WORKERS = 3
LENGTH = 4


def add_until_killed(directory: Path, starts: list[int], acks: int) -> None:
    """Add batches and acknowledge each with a byte."""
    replay = Replay(LENGTH, 10**6, directory, chunksize=16, compress=True)
    for offset in range(10**6):
        seqs = [start + offset for start in starts]
        steps = [small_step(w, seq) for w, seq in enumerate(seqs)]
        batch = {k: np.stack([x[k] for x in steps]) for k in steps[0]}
        replay.add_batch(batch, range(WORKERS), seqs)
        os.write(acks, b"x")


def small_step(worker: int, seq: int) -> dict:
    """A step whose every byte follows from who made it and when."""
    code = worker * 1_000_000 + seq
    return {
        "code": np.int32(code),
        "image": np.full(400, code % 251, np.uint8),
        "latent": np.full(100, code, np.float32),
    }


def kill_after(directory: Path, starts: list[int], wanted: int) -> int:
    """Acknowledged batches of a process that is killed after about `wanted`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            add_until_killed(directory, starts, writer)
        finally:
            os._exit(1)
    os.close(writer)
    acked = 0
    while acked < wanted:
        data = os.read(reader, wanted - acked)
        assert data, "the process died by itself"
        acked += len(data)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while data := os.read(reader, 1 << 16):
        acked += len(data)
    os.close(reader)
    return acked


def check(directory: Path, acked: list[int]) -> list[int]:
    """Steps of each worker that are there: all acknowledged ones, each once."""
    replay = Replay(LENGTH, 10**6, directory, chunksize=16)
    codes = stored_codes(replay)
    for worker in range(WORKERS):
        first = worker * 1_000_000
        assert codes[worker] == list(range(first, first + len(codes[worker])))
        assert len(codes[worker]) >= acked[worker], (worker, acked)
    assert len(replay) == sum(len(x) - LENGTH + 1 for x in codes.values())
    batch = replay.sample(20)
    assert (batch["image"] == (batch["code"] % 251)[..., None]).all()
    assert (batch["latent"] == batch["code"][..., None]).all()
    replay.close()
    return [len(codes[worker]) for worker in range(WORKERS)]


def main() -> None:
    """Kill and check again and again."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--kills", type=int, default=50)
    args = parser.parse_args()
    rng = random.Random(0)
    stored = [0] * WORKERS
    for _ in range(args.kills):
        # The client did not see the last answers and sends those steps again.
        starts = [max(0, count - rng.randrange(3)) for count in stored]
        count = kill_after(args.directory, starts, rng.randrange(LENGTH, 80))
        stored = check(args.directory, [start + count for start in starts])
    assert min(stored) > 10 * args.kills
    print(f"{args.kills} kills, {sum(stored)} steps, none lost, none twice")


if __name__ == "__main__":
    main()
