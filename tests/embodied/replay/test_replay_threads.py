"""Adders, samplers, updaters and a saver at the same time."""

import threading

import numpy as np
import pytest

from embodied.replay import Mixture, Prioritized, Replay, ReplayClosedError, Uniform
from embodied.testing.replay_model import all_items

ADDERS, STEPS, LENGTH = 3, 600, 6


def make_batch(adder, index):
    code = np.array([adder * 2, adder * 2 + 1], np.int32) * 100_000 + index
    return {
        "code": code,
        "image": np.repeat((code % 251).astype(np.uint8)[:, None], 5000, 1),
        "latent": np.zeros((2, 3000), np.float32),
        "is_first": np.zeros(2, bool),
        "is_last": np.zeros(2, bool),
    }


def check(batch):
    code = batch["code"]
    assert (np.diff(code, axis=1) == 1).all(), "a window has steps of two streams"
    assert (batch["image"] == (code % 251)[..., None]).all(), "a step is torn"
    latent = batch["latent"]
    assert (latent == latent[..., :1]).all(), "an update is torn"


class Crew:
    """Threads whose first error fails the test."""

    def __init__(self):
        self.threads, self.errors = [], []

    def start(self, function, *args):
        def run():
            try:
                function(*args)
            except BaseException as error:
                self.errors.append(error)

        self.threads.append(threading.Thread(target=run))
        self.threads[-1].start()

    def join(self):
        for thread in self.threads:
            thread.join(60)
        if self.errors:
            raise self.errors[0]
        assert not any(thread.is_alive() for thread in self.threads)


def add(replay, adder):
    for index in range(STEPS):
        replay.add_batch(make_batch(adder, index), [adder * 2, adder * 2 + 1])


def sample(replay, count):
    for index in range(count):
        check(replay.sample(4, "train" if index % 2 else "report"))


def update(replay, count, seed):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        batch = replay.sample(4)
        value = rng.random((4, LENGTH - 1, 1), np.float32)
        latent = np.repeat(value, 3000, -1)
        data = {"stepid": batch["stepid"][:, 1:], "latent": latent}
        replay.update({**data, "priority": value[..., 0]})


def save(replay, count):
    for _ in range(count):
        replay.save()
        replay.stats()
        replay.flush()


@pytest.mark.parametrize("disk", [False, True])
def test_all_at_once(tmp_path, disk):
    parts = {"uniform": Uniform(), "priority": Prioritized(zero_on_sample=True)}
    selector = Mixture(parts, {"uniform": 0.5, "priority": 0.5})
    options = {"directory": tmp_path, "compress": True, "memory": 1 << 21}
    replay = Replay(
        LENGTH,
        700,
        chunksize=32,
        online=True,
        selector=selector,
        **(options if disk else {}),
    )
    crew = Crew()
    for adder in range(ADDERS):
        crew.start(add, replay, adder)
    for _ in range(3):
        crew.start(sample, replay, 150)
    for seed in range(2):
        crew.start(update, replay, 100, seed)
    crew.start(save, replay, 20)
    crew.join()
    assert len(replay) == 700
    # Streams take turns as the threads happen to run, but each is served in order.
    starts = replay.sample(500)["code"][:, 0]
    assert (starts % 100_000 < STEPS).all()
    check(replay.sample(50))
    replay.close()
    if disk:
        replay = Replay(LENGTH, 700, tmp_path, chunksize=32)
        assert len(replay) == 700
        check(replay.sample(200))
        replay.close()


def test_many_adders_of_one_worker_lose_nothing():
    replay = Replay(1, 10_000, chunksize=16)
    crew = Crew()

    def work(first):
        for code in range(first, first + 200):
            replay.add({"code": np.int32(code), "is_first": False, "image": b"x"[0]}, 7)

    for thread in range(8):
        crew.start(work, 1000 * thread)
    crew.join()
    index = replay._index
    codes = [
        chunk.columns["code"][row]
        for chunk in index.chunks.values()
        for row in range(chunk.count)
    ]
    assert sorted(codes) == [1000 * t + i for t in range(8) for i in range(200)]
    assert len(replay) == 1600
    replay.close()


def test_resending_threads_store_each_step_once(tmp_path):
    replay = Replay(3, 10_000, tmp_path, chunksize=16)
    crew = Crew()

    def work():
        for seq in range(300):
            step = {"code": np.int32(seq), "image": np.uint8(seq % 251)}
            replay.add({**step, "is_first": False}, 7, seq)

    for _ in range(4):
        crew.start(work)
    crew.join()
    stats = replay.stats()
    assert stats["inserts"] + stats["duplicates"] == 1200
    assert stats["steps"] == stats["inserts"] <= 300
    codes = [c for chunk in replay._index.chunks.values() for c in _codes(chunk)]
    assert len(set(codes)) == len(codes)
    replay.close()


def _codes(chunk):
    return chunk.columns["code"][: chunk.count].tolist()


def test_close_wakes_up_those_who_wait():
    replay = Replay(3, 10)
    outcomes = []
    waiting = threading.Event()

    def work():
        waiting.set()
        try:
            replay.sample(1)
        except ReplayClosedError:
            outcomes.append("closed")

    thread = threading.Thread(target=work)
    thread.start()
    waiting.wait(10)
    replay.close()
    thread.join(10)
    assert outcomes == ["closed"]


def test_items_of_one_stream_stay_in_order():
    replay = Replay(2, 100, chunksize=4)
    crew = Crew()
    for adder in range(4):
        crew.start(_add_few, replay, adder)
    crew.join()
    by_worker: dict[int, list[int]] = {}
    for item in all_items(replay):
        by_worker.setdefault(item[0] // 1000, []).append(item[0])
    for starts in by_worker.values():
        assert starts == sorted(starts)
    replay.close()


def _add_few(replay, worker):
    from embodied.testing.replay_model import make_step

    for index in range(100):
        replay.add(make_step(worker, index), worker)
