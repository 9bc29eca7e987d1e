"""What survives restarts, kills, broken files and a full disk."""

import concurrent.futures
import errno
import gc
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from embodied.replay import Prioritized, Replay, ReplayFullError, mapping
from embodied.testing.replay_model import all_items, make_step, stored_codes


def fill(replay, worker, start, stop, numbered=True):
    for index in range(start, stop):
        replay.add(make_step(worker, index), worker, index if numbered else None)


def test_restart_finds_everything(tmp_path):
    replay = Replay(length=5, capacity=37, directory=tmp_path, chunksize=4)
    for index in range(40):
        for worker in (1, 2):
            replay.add(make_step(worker, index), worker)
    batch = replay.sample(10)
    replay.update({"stepid": batch["stepid"], "latent": batch["latent"] + 0.25})
    before = all_items(replay)
    latents = _latents(replay)
    state = replay.save()
    replay.close()
    replay = Replay(length=5, capacity=37, directory=tmp_path, chunksize=4)
    replay.load(state)
    assert all_items(replay) == before
    assert _latents(replay) == latents
    assert len(list(tmp_path.glob("*.chunk"))) == replay.stats()["chunks"]
    replay.update({"stepid": batch["stepid"], "latent": batch["latent"] - 5000})
    assert replay.stats()["updates"] > 0
    replay.close()


def _latents(replay):
    return {
        int(code): float(latent)
        for chunk in replay._index.chunks.values()
        for code, latent in zip(
            chunk.columns["code"][: chunk.count],
            chunk.columns["latent"][: chunk.count, 0],
            strict=True,
        )
    }


def test_length_and_capacity_may_change_between_runs(tmp_path):
    replay = Replay(length=5, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 0, 30)
    replay.close()
    replay = Replay(length=9, capacity=10, directory=tmp_path, chunksize=7)
    assert all_items(replay)[0] == tuple(range(1012, 1021))
    fill(replay, 1, 30, 40)
    assert all_items(replay)[-1] == tuple(range(1031, 1040))
    replay.close()


def test_steps_sent_twice_are_stored_once_also_after_a_restart(tmp_path):
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 0, 10)
    fill(replay, 1, 5, 12)
    replay.close()
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 8, 15)
    assert stored_codes(replay) == {1: [1000 + i for i in range(15)]}
    assert len(replay) == 13
    assert replay.stats()["duplicates"] == 4
    replay.close()


def test_steps_without_numbers_start_a_new_segment_after_a_restart(tmp_path):
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 0, 6, numbered=False)
    replay.close()
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 6, 12, numbered=False)
    starts = [item[0] - 1000 for item in all_items(replay)]
    assert starts == [0, 1, 2, 3, 6, 7, 8, 9]
    replay.close()
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    assert [item[0] - 1000 for item in all_items(replay)] == starts
    replay.close()


def test_no_window_goes_over_a_long_silence_also_after_a_restart(tmp_path):
    replay = Replay(length=3, capacity=6, directory=tmp_path, chunksize=4)
    fill(replay, 1, 0, 4)  # A full chunk, whose items are not all evicted below.
    for index in range(6):
        replay.add(make_step(2 + index, 0), 2 + index, 0)
    fill(replay, 1, 4, 8)
    before = all_items(replay)
    assert [item[0] for item in before] == [1000, 1001, 1004, 1005]
    replay.close()
    replay = Replay(length=3, capacity=6, directory=tmp_path, chunksize=4)
    assert all_items(replay) == before
    replay.close()


def test_two_replays_in_one_directory_is_an_error(tmp_path):
    replay = Replay(length=3, capacity=10, directory=tmp_path)
    with pytest.raises(RuntimeError, match="in use"):
        Replay(length=3, capacity=10, directory=tmp_path)
    replay.close()
    Replay(length=3, capacity=10, directory=tmp_path).close()


def test_broken_and_foreign_files_are_reported_and_skipped(tmp_path, caplog):
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    fill(replay, 1, 0, 28)
    replay.close()
    files = sorted(tmp_path.glob("*.chunk"))
    assert len(files) == 7
    _damage(files)
    (tmp_path / "notes.txt").write_text("not ours")
    (tmp_path / "zzz.chunk").write_text("not ours either")
    (tmp_path / "0000000099.tmp").write_text("half made")
    replay = Replay(length=3, capacity=100, directory=tmp_path, chunksize=4)
    assert stored_codes(replay) == {1: [1004, 1005, 1006, 1007, 1024, 1025, 1026, 1027]}
    assert [x[0] for x in all_items(replay)] == [1004, 1005, 1024, 1025]
    assert replay.stats()["skipped_files"] == 6
    assert len([x for x in caplog.records if "Skipping" in x.message]) == 6
    fill(replay, 1, 28, 40)
    assert all_items(replay)[-1] == (1037, 1038, 1039)
    assert (tmp_path / "zzz.chunk").exists()
    replay.close()


def _damage(files):
    with files[0].open("r+b") as file:
        file.truncate(100)
    files[2].write_bytes(b"")
    with files[3].open("r+b") as file:
        file.seek(40)
        file.write(b"\xff")
    with files[4].open("r+b") as file:
        file.truncate(os.path.getsize(files[4]) - 1)
    files[5].write_bytes(os.urandom(20_000))


def test_steps_without_their_mark_are_not_there(tmp_path):
    replay = Replay(length=2, capacity=100, directory=tmp_path, chunksize=8)
    fill(replay, 1, 0, 6)
    next(iter(replay._index.chunks.values())).order[4] = 0
    replay.close()
    replay = Replay(length=2, capacity=100, directory=tmp_path, chunksize=8)
    assert stored_codes(replay) == {1: [1000, 1001, 1002, 1003]}
    fill(replay, 1, 4, 8)
    assert stored_codes(replay) == {1: [1000 + i for i in range(8)]}
    replay.close()


def test_other_schema_in_the_directory(tmp_path):
    replay = Replay(length=2, capacity=100, directory=tmp_path)
    fill(replay, 1, 0, 6)
    replay.close()
    replay = Replay(length=2, capacity=100, directory=tmp_path)
    with pytest.raises(ValueError, match="use another directory"):
        replay.add(make_step(1, 6, size=7), 1)
    assert len(replay) == 5
    replay.close()


def fill_until_full(replay):
    for index in range(10_000):
        steps = [make_step(worker, index, 9000) for worker in (1, 2)]
        batch = {k: np.stack([x[k] for x in steps]) for k in steps[0]}
        replay.add_batch(batch, [1, 2], [index, index])


def check_full(replay):
    """Fill until it raises; nothing is lost."""
    with pytest.raises(ReplayFullError, match="free disk space") as info:
        fill_until_full(replay)
    assert info.value.errno == errno.ENOSPC
    stored = len(stored_codes(replay)[1])
    expect = {w: [w * 1000 + i for i in range(stored)] for w in (1, 2)}
    assert stored_codes(replay) == expect
    assert len(all_items(replay)) == 2 * (stored - 2)
    return stored, expect


def test_full_disk_simulated(tmp_path, monkeypatch):
    replay = Replay(length=3, capacity=10_000, directory=tmp_path, chunksize=8)
    real, calls = mapping.allocate, []

    def allocate(fd, nbytes):
        calls.append(nbytes)
        if len(calls) in (6, 7):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(fd, nbytes)

    monkeypatch.setattr(mapping, "allocate", allocate)
    stored, _ = check_full(replay)
    assert stored == 16
    assert not list(tmp_path.glob("*.tmp"))
    with pytest.raises(ReplayFullError):
        replay.add(make_step(1, stored, 9000), 1, stored)
    replay.add(make_step(1, stored, 9000), 1, stored)
    replay.close()
    replay = Replay(length=3, capacity=10_000, directory=tmp_path, chunksize=8)
    assert len(stored_codes(replay)[1]) == 17
    assert len(stored_codes(replay)[2]) == 16
    replay.close()


@pytest.mark.process
def test_full_disk_for_real(small_disk):
    options = {"capacity": 10_000, "directory": small_disk(2), "chunksize": 8}
    replay = Replay(length=3, **options)
    stored, expect = check_full(replay)
    replay.close()
    replay = Replay(length=3, **options)
    assert stored_codes(replay) == expect
    assert stored > 8
    replay.close()


@pytest.mark.process
def test_50_kills_lose_nothing_acknowledged_and_store_nothing_twice(tmp_path):
    # In a process of its own, as it forks and other tests start threads.
    script = Path(__file__).with_name("replay_kills.py")
    command = [sys.executable, str(script), str(tmp_path), "--kills", "50"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "50 kills" in done.stdout


def test_compression_shrinks_files_and_keeps_content(tmp_path):
    replay = Replay(6, 1000, tmp_path, chunksize=64, compress=True)
    for index in range(300):
        replay.add(make_step(1, index, 9000), 1)
    replay.flush()
    assert sum(chunk.packed for chunk in replay._index.chunks.values()) == 4
    size = sum(x.stat().st_size for x in tmp_path.glob("*.chunk"))
    items = all_items(replay)
    assert len(items) == 295
    batch = replay.sample(50)
    latent, image = batch["latent"] + 0.5, batch["image"]
    replay.update({"stepid": batch["stepid"], "latent": latent})
    replay.close()
    assert size < 0.5 * 300 * 9000
    replay = Replay(6, 1000, tmp_path, chunksize=64)
    assert all_items(replay) == items
    codes = batch["code"]
    got = _latents(replay)
    assert all(got[int(c)] == c + 0.5 for c in codes.flat)
    replay.update({"stepid": batch["stepid"], "image": image})
    replay.close()
    replay = Replay(6, 1000, tmp_path, chunksize=64)
    assert all_items(replay) == items
    replay.close()


def test_updates_and_compression_do_not_undo_each_other(tmp_path):
    replay = Replay(4, 1000, tmp_path, chunksize=16, compress=True)
    expect = {}
    for index in range(400):
        replay.add(make_step(1, index, 3000), 1)
        expect[1000 + index] = (1000.0 + index, (1000 + index) % 251)
        if index >= 4:
            # Sometimes only latents, which are never compressed, sometimes images too.
            value, images = index % 100, index % 3 == 0
            batch = replay.sample(4)
            data = {"stepid": batch["stepid"]}
            data["latent"] = np.full_like(batch["latent"], value)
            if images:
                data["image"] = np.full_like(batch["image"], value)
            replay.update(data)
            for code in batch["code"].reshape(-1).tolist():
                expect[code] = (value, value if images else expect[code][1])
    replay.flush()
    assert _by_code(replay) == expect
    replay.close()
    replay = Replay(4, 1000, tmp_path, chunksize=16)
    assert _by_code(replay) == expect
    replay.close()


def _by_code(replay):
    return {
        int(chunk.columns["code"][row]): (
            float(chunk.columns["latent"][row, 0]),
            int(chunk.columns["image"][row : row + 1][0, 0]),
        )
        for chunk in replay._index.chunks.values()
        for row in range(chunk.count)
    }


def test_needs_no_file_descriptor_per_chunk(tmp_path):
    replay = Replay(2, 10**6, tmp_path, chunksize=2)
    fill(replay, 1, 0, 400)
    fill(replay, 2, 0, 400)
    assert len(os.listdir("/proc/self/fd")) < 100
    replay.close()


@pytest.mark.slow
@pytest.mark.process
def test_ten_thousand_streams_need_no_file_descriptor_each(tmp_path):
    script = Path(__file__).with_name("many_streams.py")
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="needs Linux")
@pytest.mark.parametrize("compress", [False, True])
def test_resident_memory_is_bounded(tmp_path, compress):
    image = np.random.default_rng(0).integers(0, 40, (16, 1024), np.uint8)
    step = {"image": image, "latent": np.ones(4096, np.float32)}
    chunk = 32 * sum(value.nbytes for value in step.values())
    options = {"chunksize": 32, "memory": 12 * chunk, "compress": compress}
    peaks = []

    def open_replay():
        return Replay(16, 10**6, tmp_path, selector=Prioritized(), **options)

    replay = open_replay()
    for index in range(1500):
        replay.add(step)
        if index % 50 == 0:
            peaks.append(resident(tmp_path))
    replay.close()
    del replay
    gc.collect()  # Chunks know their neighbours, so their mappings are still there.
    replay = open_replay()
    peaks.append(resident(tmp_path))
    for _ in range(20):
        use(replay)
        peaks.append(resident(tmp_path))
    # The mark of a step is written after the step itself: one page for the stream.
    assert max(peaks) <= 12 * chunk + resource.getpagesize()
    assert compress or max(peaks) > 9 * chunk, "the test has to come near it"
    # While threads are at work only the total of all files is exact.
    others = resident() - resident(tmp_path)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        busy = [pool.submit(use, replay) for _ in range(100)]
        while not all(future.done() for future in busy):
            peaks.append(resident() - others)
    for future in busy:
        future.result()
    assert max(peaks) < 12.5 * chunk
    replay.close()


def use(replay):
    """Sample and write back, also priorities."""
    batch = replay.sample(4)
    data = {"stepid": batch["stepid"], "latent": batch["latent"]}
    replay.update({**data, "priority": np.ones((4, 16), np.float32)})


def resident(path=None):
    """Bytes of the files under a path, or of all, that are mapped and in memory."""
    if path is None:
        status = Path("/proc/self/status").read_text()
        return int(status.split("RssFile:")[1].split()[0]) * 1024
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            ours = str(path) in line
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1]) * 1024
    return total
