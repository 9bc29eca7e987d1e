"""How fast the replay inserts, samples, updates, saves and loads, beside the floor.

    python bench/replay.py [--directory /tmp] [--steps 100000] [--threads 8]
    python bench/replay.py --larger-than-memory 26 [--directory /tmp]

Rates are the best of a few repeats, and what is compared is measured in turns, as the
machine may be busy. The floor is what copying the same bytes takes: windows at random
places of a large array into a buffer that is there already. Ratios to the public
implementation are also given scaled by memory bandwidth, as its figures were taken on
a machine that copied 10.1 GB/s.
"""

from __future__ import annotations

import argparse
import collections
import gc
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import history
import numpy as np
from replay_large import measure as measure_large

from embodied.replay import Replay

LENGTH, BATCH, ENVS = 65, 16, 16
CHUNK = 1024  # Steps per file, the replay's default.
PUBLIC = {
    "insert": 12.8e3,
    "sample": 377.0,
    "capacity": 12.1e3,
    "save": 19.4,
    "load": 3.3,
}
PUBLIC_COPY = 10.1e9
Step = dict[str, Any]


def make_steps(count: int, seed: int = 0) -> Step:
    """Steps of 16.4 kB as in the issue, stacked."""
    rng = np.random.default_rng(seed)
    return {
        "image": rng.integers(0, 256, (count, 64, 64, 3), np.uint8),
        "latent": rng.random((count, 1024), np.float32),
        "vector": rng.random((count, 12), np.float32),
        "reward": rng.random(count, np.float32),
        "is_first": np.zeros(count, bool),
        "is_last": np.zeros(count, bool),
        "is_terminal": np.zeros(count, bool),
    }


def best(function: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest call."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def in_turns(functions: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Seconds of the fastest call of each function; none pays for what others wrote."""
    times = [[timed(function) for function in functions] for _ in range(rounds)]
    return [min(column) for column in zip(*times, strict=True)]


def there_and_back(
    functions: list[Callable[[], Any]], rounds: int
) -> list[list[float]]:
    """Seconds of every call, in sorted order for each function.

    The order of the functions is reversed from round to round. The first round is not
    counted: in it the files and pages of all that follows are made for the first time.
    """
    times = []
    order = list(range(len(functions)))
    for _ in range(rounds + 1):
        seconds = {index: timed(functions[index]) for index in order}
        times.append([seconds[index] for index in range(len(functions))])
        order.reverse()
    return [sorted(column) for column in zip(*times[1:], strict=True)]


def timed(function: Callable[[], Any]) -> float:
    """Seconds of a call, once the steps of earlier ones are on the disk."""
    os.sync()  # Or the system writes old steps to the disk while new ones come.
    return best(function, 1)


def copy_rate() -> float:
    """Bytes per second of `np.copyto` of 128 MiB, the calibration of the baseline."""
    source = np.ones(128 << 20, np.uint8)
    target = np.ones_like(source)
    return source.nbytes / best(lambda: np.copyto(target, source), 5)


class Floor:
    """Copies as many bytes as a batch holds, in windows from random places."""

    def __init__(self, nbytes: int, source: np.ndarray):
        self._window = nbytes // BATCH
        self._source = source
        self._target = np.ones((BATCH, self._window), np.uint8)
        self._rng = np.random.default_rng(0)

    def __call__(self) -> None:
        """Copy one batch."""
        limit = len(self._source) - self._window
        for index, start in enumerate(self._rng.integers(0, limit, BATCH).tolist()):
            self._target[index] = self._source[start : start + self._window]


def insert_batches(replay: Replay, steps: Step, batches: int, first: int = 0) -> None:
    """Insert `batches` times one step of each environment."""
    workers = range(first, first + ENVS)
    for _ in range(batches):
        replay.add_batch(steps, workers)


def insert_rate(replay: Replay, batches: int, repeats: int = 5) -> float:
    """Steps per second through `add_batch` of all environments."""
    steps = make_steps(ENVS)
    seconds = best(lambda: insert_batches(replay, steps, batches // repeats), repeats)
    return batches // repeats * ENVS / seconds


class Ring:
    """A plain ring buffer of arrays: what storing a step costs at least."""

    def __init__(self, capacity: int, step: Step):
        self._arrays = {
            key: np.ones((capacity, *value.shape), value.dtype)
            for key, value in step.items()
        }
        self._capacity, self._next = capacity, 0

    def add(self, step: Step, worker: int) -> None:
        """Overwrite the oldest step."""
        del worker
        for key, value in step.items():
            self._arrays[key][self._next] = value
        self._next = (self._next + 1) % self._capacity


def measure_single(replay: Replay, report: Report, count: int = 4096) -> None:
    """One step at a time, in turns with a plain ring buffer."""
    stacked = make_steps(ENVS)
    steps = [{k: v[i] for k, v in stacked.items()} for i in range(ENVS)]

    def insert(target: Replay | Ring) -> None:
        for index in range(count):
            target.add(steps[index % ENVS], 100 + index % ENVS)

    ring = Ring(16384, steps[0])
    floor, single = in_turns([lambda: insert(ring), lambda: insert(replay)], 12)
    report.rate("floor: ring buffer of arrays", count / floor)
    report.rate("insert one by one", count / single, "insert", 2)
    print(f"{'':<34}{floor / single:>12.2f}x the ring buffer (goal 0.25x)", flush=True)
    report.record("insert one by one to a ring buffer", floor / single)


def threaded(work: Callable[[int], None], threads: int) -> float:
    """Seconds until all threads have done their work."""
    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return time.perf_counter() - begin


def update_rate(replay: Replay) -> float:
    """Batches per second whose 16x64 latents are written back."""
    sampled = replay.sample(BATCH)
    data = {key: sampled[key][:, 1:].copy() for key in ("stepid", "latent")}
    return 1 / best(lambda: replay.update(data), 30)


class Report:
    """Prints one line per measurement, and records ratios."""

    def __init__(self, scale: float):
        self._scale = scale  # How much faster this machine copies.
        self._place = ""

    def begin(self, place: str, text: str) -> None:
        """What follows is measured in memory or on disk."""
        self._place = place
        print(f"\n{text}")

    def record(self, name: str, ratio: float) -> None:
        """Keep a ratio in the history of speed."""
        history.record("replay", {f"{name}, {self._place}": ratio})

    def rate(self, name: str, value: float, public: str = "", goal: float = 0) -> float:
        """A rate, and how it compares with the public implementation."""
        line = f"{name:<34}{value:>12,.0f} /s"
        if public:
            plain = value / PUBLIC[public]
            line += f"{plain:>8.2f}x public, {plain / self._scale:.2f}x scaled"
            self.record(f"{name} to public", plain / self._scale)
            line += f" (goal {goal}x)"
        print(line, flush=True)
        return value

    def ratio(self, value: float, to: str) -> None:
        """How the rate above compares with another one."""
        print(f"{'':<34}{value:>12.2f}x the rate {to} (goal 1x)", flush=True)

    def seconds(self, name: str, value: float, note: str = "") -> None:
        """A duration."""
        print(f"{name:<34}{value:>12.3f} s  {note}", flush=True)


def measure_sampling(replay: Replay, report: Report, args: argparse.Namespace) -> None:
    """Sampling against the floor, alone and from several threads."""
    nbytes = sum(leaf.nbytes for leaf in replay.sample(BATCH).values())
    source = np.ones(1 << 30, np.uint8)
    floors = [Floor(nbytes, source) for _ in range(args.threads)]

    def sample() -> None:
        replay.sample(BATCH)

    one = in_turns([floors[0], sample], 100)
    report.rate("floor: copy 16x65", 1 / one[0])
    report.rate("sample 16x65", 1 / one[1], "sample", 1.2)
    speed = nbytes / one[1] / 1e9
    print(f"{'':<34}{speed:>12.1f} GB/s = {one[0] / one[1]:.0%} of floor (goal 70%)")
    report.record("sample 16x65 to floor", one[0] / one[1])
    count = 30

    def floor_threads() -> None:
        threaded(lambda index: repeat(floors[index], count), args.threads)

    def sample_alone() -> None:
        hold(replay, count * args.threads, args.threads)

    def sample_threads() -> None:
        threaded(lambda index: hold(replay, count, 1), args.threads)

    many = in_turns([floor_threads, sample_threads, sample_alone], 4)
    total = count * args.threads
    report.rate(f"floor, {args.threads} threads", total / many[0])
    report.rate(f"sample, {args.threads} threads", total / many[1], "sample", 1.2)
    report.rate("sample, 1 thread, as many batches", total / many[2])
    report.ratio(many[2] / many[1], "of one thread")
    report.rate("update 16x64 latents", update_rate(replay))


def measure_threaded_inserts(
    replay: Replay, report: Report, args: argparse.Namespace
) -> None:
    """The same inserts from one thread and from several, by the median of ten turns.

    Each turn fills a chunk of every environment, so all turns create and drop as many
    files. On disk they still differ by a factor of up to two, for one as for many.
    """
    steps, count = make_steps(ENVS), CHUNK

    def insert(index: int) -> None:
        insert_batches(replay, steps, count, 1000 + index * ENVS)

    def one_thread() -> None:
        for _ in range(count):
            for index in range(args.threads):
                insert_batches(replay, steps, 1, 1000 + index * ENVS)

    def many_threads() -> None:
        threaded(insert, args.threads)

    turns = there_and_back([one_thread, many_threads], 10)
    one, many = (statistics.median(seconds) for seconds in turns)
    total = count * args.threads * ENVS
    report.rate(f"insert, {args.threads * ENVS} envs, 1 thread", total / one)
    name = f"insert, {args.threads * ENVS} envs, {args.threads} threads"
    report.rate(name, total / many, "insert", 5)
    report.ratio(one / many, "of one thread")
    for threads, seconds in zip((1, args.threads), turns, strict=True):
        shown = " ".join(f"{x:.2f}" for x in seconds)
        print(f"{'':<34}turns with {threads}: {shown} s")


def hold(replay: Replay, count: int, amount: int) -> None:
    """Sample and keep the last few batches: what threads touch together, one does."""
    held: collections.deque[Step] = collections.deque(maxlen=amount)
    for _ in range(count):
        held.append(replay.sample(BATCH))


def repeat(function: Callable[[], Any], count: int) -> None:
    """Call a function several times."""
    for _ in range(count):
        function()


def measure(directory: str | None, report: Report, args: argparse.Namespace) -> None:
    """All measurements of one kind of storage."""
    replay = Replay(LENGTH, args.steps, directory)
    batches = args.steps // ENVS
    begin = time.perf_counter()
    fresh = report.rate(
        "insert, batches of 16", insert_rate(replay, batches), "insert", 5
    )
    report.seconds("insert, all of it", time.perf_counter() - begin)
    measure_sampling(replay, report, args)
    if directory:
        replay = measure_restart(replay, directory, report, args)
    insert_rate(replay, batches // 10)
    rate = insert_rate(replay, batches)
    report.rate("insert at capacity", rate, "capacity", 5)
    report.ratio(rate / fresh, "before it")
    measure_single(replay, report)
    measure_threaded_inserts(replay, report, args)
    replay.close()


def measure_restart(
    replay: Replay, directory: str, report: Report, args: argparse.Namespace
) -> Replay:
    """Save, close, and open the directory again."""
    report.seconds(f"save {args.steps} steps", best(replay.save, 3), "goal 1 s")
    items = len(replay)
    replay.close()
    begin = time.perf_counter()
    replay = Replay(LENGTH, args.steps, directory)
    seconds = time.perf_counter() - begin
    assert len(replay) == items, (len(replay), items)
    report.seconds(f"load {args.steps} steps", seconds, "goal 1 s")
    begin = time.perf_counter()
    replay.sample(BATCH)
    report.seconds("first sample after load", time.perf_counter() - begin)
    begin = time.perf_counter()
    replay.flush()
    report.seconds("flush to the disk itself", time.perf_counter() - begin)
    return replay


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=tempfile.gettempdir())
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--larger-than-memory", type=float, metavar="GB")
    args = parser.parse_args()
    if args.larger_than_memory:
        with tempfile.TemporaryDirectory(dir=args.directory) as directory:
            measure_large(directory, make_steps(ENVS), args.larger_than_memory)
        return
    copy = copy_rate()
    print(f"np.copyto of 128 MiB: {copy / 1e9:.1f} GB/s (public: 10.1 GB/s)")
    report = Report(copy / PUBLIC_COPY)
    directory = tempfile.mkdtemp(dir=args.directory)
    try:
        report.begin("on disk", f"On disk, in {directory}")
        measure(directory, report, args)
    finally:
        shutil.rmtree(directory)
    gc.collect()  # The mapped files go, so that both kinds have the same room.
    report.begin("in memory", "In memory")
    measure(None, report, args)


if __name__ == "__main__":
    main()
