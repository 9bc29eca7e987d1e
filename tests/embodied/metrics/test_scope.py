"""Scope files, read by Scope."""

import numpy as np
import pytest

from embodied.metrics import ScopeOutput

scope = pytest.importorskip("scope")


def test_every_kind(tmp_path, every_kind, frames):
    ScopeOutput(tmp_path, fps=7)(every_kind)
    reader = scope.Reader(tmp_path)
    assert set(reader.keys()) == {
        "episode/score",
        "train/count",
        "train/bad",
        "report/map",
        "report/image",
        "report/openloop/image",
        "epstats/stacked",
        "parallel/bottleneck",
    }
    steps, values = reader["episode/score"]
    assert (steps.tolist(), values.tolist()) == ([10, 20, 20], [1.5, 1.5, 2.5])
    assert np.isnan(reader["train/bad"][1]).all()
    assert load(reader, "parallel/bottleneck") == "actor: it is busy 90 %, é"
    assert (load(reader, "report/image") == frames[0]).all()
    video = load(reader, "report/openloop/image")
    assert video.shape == (6, 34, 48, 3)
    assert np.abs(video[:, :33, :47].astype(int) - frames).mean() < 8


def test_the_same_files_as_its_own_writer(tmp_path):
    """Names and tables match; ids hold a time and chance, and differ."""
    metrics = {"a/b": 0.5, "c": "text"}
    writer = scope.Writer(tmp_path / "theirs")
    for step in (3, 70_000):
        writer.add(step, metrics)
    writer.flush()
    writer.flush()  # The first one starts to write, this one waits for it.
    ours = ScopeOutput(tmp_path / "ours")
    ours([(step, k, v) for step in (3, 70_000) for k, v in metrics.items()])
    theirs, mine = (tmp_path / name / "scope" for name in ("theirs", "ours"))
    table = "a-b.float"
    assert (mine / table).read_bytes() == (theirs / table).read_bytes()
    for folder in (theirs / "c.txt", mine / "c.txt"):
        index = (folder / "index").read_bytes()
        for number, step in enumerate((3, 70_000)):
            record = index[16 * number : 16 * number + 16]
            assert record[:8] == step.to_bytes(8, "little")
            assert (folder / f"{step:020d}-{record[8:].hex()}.txt").exists()


def test_a_torn_record_is_cut(tmp_path):
    ScopeOutput(tmp_path)([(1, "a", 1.0), (1, "t", "x")])
    for name in ("a.float", "t.txt/index"):
        with (tmp_path / "scope" / name).open("ab") as file:
            file.write(b"torn")
    ScopeOutput(tmp_path)([(2, "a", 2.0), (2, "t", "y")])
    reader = scope.Reader(tmp_path)
    assert reader["a"][1].tolist() == [1, 2]
    assert reader["t"][0].tolist() == [1, 2]
    assert load(reader, "t") == "y"


def test_what_was_written_since_can_be_taken_back(tmp_path):
    output = ScopeOutput(tmp_path)
    output([(1, "a", 1.0), (1, "t", "x")])
    saved = output.save()
    output([(2, "a", 2.0), (2, "t", "y"), (2, "new", 3.0)])
    output.load(saved)
    output([(2, "a", 5.0)])
    reader = scope.Reader(tmp_path)
    assert reader["a"][1].tolist() == [1, 5]
    assert reader["t"][0].tolist() == [1]
    assert reader.length("new") == 0


def load(reader, key):
    return reader.load(key, reader[key][1][-1])
