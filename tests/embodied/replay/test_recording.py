"""Recorded steps are read back as they were added, without touching the files."""

import numpy as np
import pytest

from embodied.replay import Replay
from embodied.replay.recording import Recording, holds_steps


def step(number):
    return {"image": np.full((16, 16, 1), number % 256, np.uint8), "number": number}


def fill(directory, **options):
    """Two workers, the second with a gap."""
    replay = Replay(3, 1000, directory, chunksize=8, **options)
    for number in range(20):
        replay.add(step(number), worker=4)
    for number in (*range(5), *range(7, 10)):
        replay.add(step(number), worker=1, seq=number)
    return replay


def read(recording, size=3):
    found = {}
    for block in recording.blocks(size):
        assert 0 < len(block.seqs) <= size
        assert len(block.steps["number"]) == len(block.seqs)
        assert (block.steps["image"][:, 0, 0, 0] == block.steps["number"] % 256).all()
        numbers = found.setdefault(block.worker, {})
        pairs = zip(block.seqs, block.steps["number"].tolist(), strict=True)
        numbers.update(pairs)
    return found


EXPECTED = {
    1: {n: n for n in (*range(5), *range(7, 10))},
    4: {n: n for n in range(20)},
}


@pytest.mark.parametrize("compress", [False, True])
def test_all_steps_in_order(tmp_path, compress):
    replay = fill(tmp_path, compress=compress)
    replay.flush()
    recording = Recording(tmp_path)  # The replay is still open.
    assert len(recording) == 28
    assert recording.streams == 2
    assert list(read(recording)) == [1, 4]
    assert read(recording) == EXPECTED
    replay.close()


def test_sequences_do_not_go_over_gaps(tmp_path):
    replay = fill(tmp_path)
    recording = Recording(tmp_path)
    assert recording.sequences(3) == len(replay) == 18 + 3 + 1
    assert recording.sequences(9) == 12
    replay.close()


def test_files_stay_as_they_are(tmp_path):
    fill(tmp_path).close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for path in tmp_path.iterdir():
        path.chmod(0o400)
    tmp_path.chmod(0o500)
    try:
        assert read(Recording(tmp_path)) == EXPECTED
    finally:
        tmp_path.chmod(0o700)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_broken_and_vanished_files_are_left_out(tmp_path):
    fill(tmp_path).close()
    paths = sorted(tmp_path.glob("*.chunk"))
    paths[0].write_bytes(paths[0].read_bytes()[:-5])
    paths[1].write_bytes(b"")
    recording = Recording(tmp_path)
    assert len(recording) == 28 - 8 - 8
    paths[2].unlink()
    assert read(recording) == {1: EXPECTED[1]}


def test_whether_there_are_steps(tmp_path):
    assert not holds_steps(tmp_path / "nowhere")
    assert not holds_steps(tmp_path)
    fill(tmp_path).close()
    assert holds_steps(tmp_path)
