"""Damage inside stored steps is found, named and dropped; all other steps stay."""

import json
import subprocess
import sys

import numpy as np
import pytest

from embodied.replay import Replay, checksums, verifier
from embodied.replay import chunk as chunklib
from embodied.replay.layout import RECORDS

LENGTH, CHUNK, WORKERS, STEPS = 4, 8, 3, 40
OPTIONS = {"length": LENGTH, "capacity": 1000, "chunksize": CHUNK}


def fill(directory, start=0, steps=STEPS, **options):
    """Store steps of several workers whose values follow from their numbers."""
    replay = Replay(directory=directory, **OPTIONS, **options)
    for seq in range(start, start + steps):
        for worker in range(WORKERS):
            replay.add(step(worker, seq), worker, seq)
    return replay


def step(worker, seq):
    return {
        "image": np.full((16, 32), (worker * 50 + seq) % 251, np.uint8),
        "latent": np.zeros(128, np.float32),
        "code": np.int64(1000 * worker + seq),
        "is_first": seq == 0,
    }


def flip(path, key):
    """Flip one bit of the third step, in the column that holds a key."""
    with path.open("r+b") as file:
        header = chunklib._read_header(file)
        column = next(x for x in header.columns if x.field.name == key)
        at = column.offset + 2 * column.field.nbytes
        if column.codec != "raw":
            at = column.offset + column.nbytes // 2
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 4]))


def codes(replay):
    """What can be sampled, by worker."""
    found = set()
    for _ in range(100):
        found |= set(replay.sample(16)["code"].ravel().tolist())
    return found


def expect(worker, first, last):
    """All codes but those of some steps."""
    every = {1000 * w + s for w in range(WORKERS) for s in range(STEPS)}
    return every - {1000 * worker + s for s in range(first, last)}


@pytest.mark.parametrize("key", ["image", RECORDS])
@pytest.mark.parametrize("compress", [False, True])
def test_a_flipped_bit_costs_one_file(tmp_path, caplog, key, compress):
    replay = fill(tmp_path, compress=compress)
    replay.flush()
    number = next(c.number for c in replay._index.chunks.values() if c.prev and c.next)
    worker, first = (lambda h: (h.worker, h.start))(replay._index.chunks[number].header)
    replay.close()
    path = tmp_path / f"{number:010d}.chunk"
    flip(path, key)
    for _ in range(2):  # The second start has nothing to report.
        replay = Replay(directory=tmp_path, **OPTIONS, compress=compress)
        assert replay.verify(10)
        assert codes(replay) == expect(worker, first, first + CHUNK)
        replay.close()
    named = [r.getMessage() for r in caplog.records if path.name in r.getMessage()]
    assert len(named) == 1
    assert "8 steps are dropped" in named[0]
    assert path.with_suffix(".damaged").exists()


def test_a_stream_continues_after_damage(tmp_path):
    fill(tmp_path, steps=12).close()
    flip(tmp_path / f"{WORKERS + 1:010d}.chunk", "image")  # Half full, of worker 0.
    replay = fill(tmp_path, start=12, steps=28)
    assert replay.verify(10)
    assert codes(replay) >= expect(0, 8, STEPS)
    for _ in range(100):
        drawn = np.diff(replay.sample(16)["code"], axis=1)
        assert (drawn == 1).all(), "a sequence spans the gap"
    assert replay.newest() == dict.fromkeys(range(WORKERS), STEPS - 1)
    replay.close()


def test_nothing_is_left(tmp_path):
    replay = Replay(directory=tmp_path, **OPTIONS)
    for seq in range(CHUNK):
        replay.add(step(0, seq), 0, seq)
    replay.close()
    flip(tmp_path / "0000000001.chunk", RECORDS)
    replay = Replay(directory=tmp_path, **OPTIONS)
    assert replay.verify(10)
    assert len(replay) == 0
    with pytest.raises(TimeoutError):
        replay.sample(2, timeout=0.01)
    for seq in range(CHUNK, 2 * CHUNK):
        replay.add(step(0, seq), 0, seq)
    assert replay.sample(2)["code"].min() >= CHUNK
    replay.close()


def test_sampling_finds_damage_first(tmp_path, monkeypatch):
    replay = fill(tmp_path, compress=True)
    replay.flush()
    replay.close()
    for path in sorted(tmp_path.glob("*.chunk"))[:3]:
        flip(path, "image")
    monkeypatch.setattr(verifier.Verifier, "_verify", lambda self, chunk: None)
    replay = Replay(directory=tmp_path, **OPTIONS, compress=True)
    assert len(codes(replay)) == WORKERS * (STEPS - CHUNK)
    assert replay.stats()["skipped_files"] == 3
    replay.close()


def test_values_that_are_written_back_are_not_damage(tmp_path):
    replay = fill(tmp_path)
    replay.close()
    replay = Replay(directory=tmp_path, **OPTIONS)  # Every key has a checksum now.
    assert replay.verify(10)
    batch = replay.sample(16)
    replay.update({"stepid": batch["stepid"], "latent": batch["latent"] + 1})
    replay._store.close()  # As a process that is killed.
    replay = Replay(directory=tmp_path, **OPTIONS)
    assert replay.verify(10)
    assert codes(replay) == expect(0, 0, 0)
    replay.close()


@pytest.mark.parametrize("kind", ["missing", "empty", "torn", "garbage"])
def test_replays_without_checksums_load(tmp_path, kind):
    fill(tmp_path).close()
    path = tmp_path / checksums.FILE
    content = path.read_bytes()
    path.write_bytes({"torn": content[:-30], "garbage": b"x y\n"}.get(kind, b""))
    if kind == "missing":
        path.unlink()
    replay = Replay(directory=tmp_path, **OPTIONS)
    assert replay.verify(10)
    assert codes(replay) == expect(0, 0, 0)
    replay.close()
    flip(tmp_path / "0000000001.chunk", "image")  # Each file is covered by now.
    replay = Replay(directory=tmp_path, **OPTIONS)
    assert replay.verify(10)
    assert replay.stats()["skipped_files"] == 1
    replay.close()


@pytest.mark.process
def test_steps_of_a_killed_process_are_covered(tmp_path):
    """Full files get their checksums while the process runs, not at its end."""
    script = (
        "import os, sys, time\n"
        "from embodied.replay import verifier\n"
        "from tests.embodied.replay import test_damage\n"
        "verifier.EVERY = 0.1\n"
        "replay = test_damage.fill(sys.argv[1])\n"
        "while replay._checksums.covered(replay._index.chunks[1]) < 8:\n"
        "    time.sleep(0.01)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    made = subprocess.run([sys.executable, "-c", script, tmp_path], timeout=60)
    assert made.returncode == -9
    flip(tmp_path / "0000000001.chunk", "image")
    replay = Replay(directory=tmp_path, **OPTIONS)
    assert replay.verify(10)
    assert codes(replay) == expect(0, 0, CHUNK)
    replay.close()


def test_a_newer_file_is_rejected(tmp_path):
    fill(tmp_path, steps=8).close()
    path = tmp_path / checksums.FILE
    line = checksums._line({"rewritten": []}).replace(b'"version": 1', b'"version": 2')
    text = line.rpartition(b" ")[0]
    path.write_bytes(b"%s %08x\n" % (text, checksums.zlib.crc32(text)))
    assert json.loads(text)["version"] == 2
    with pytest.raises(Exception, match="newer release"):
        Replay(directory=tmp_path, **OPTIONS)
