"""JSON lines: always valid, never lost, repaired after a kill."""

import json
import resource
import signal

import numpy as np
import pytest

from embodied.metrics import JSONLOutput


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def output(tmp_path):
    return JSONLOutput(tmp_path, clock=lambda: 1234.5678)


def test_scalars_are_grouped_by_step(tmp_path, output):
    output([(1, "a", np.float32(0.5)), (1, "b", 2), (2, "a", 3), (2, "c", "text")])
    output([(2, "image", np.zeros((4, 4, 3), np.uint8))])
    assert read(tmp_path / "metrics.jsonl") == [
        {"step": 1, "time": 1234.568, "a": 0.5, "b": 2},
        {"step": 2, "time": 1234.568, "a": 3},
    ]


def test_episodes_at_the_same_step_are_all_kept(tmp_path, output):
    output(
        [
            (4, "episode/score", 1.0),
            (4, "episode/length", 9),
            (4, "episode/score", 2.0),
            (4, "episode/length", 8),
        ]
    )
    assert len(read(tmp_path / "metrics.jsonl")) == 2
    assert read(tmp_path / "scores.jsonl") == [
        {"step": 4, "time": 1234.568, "episode/score": 1.0},
        {"step": 4, "time": 1234.568, "episode/score": 2.0},
    ]


def test_values_that_are_not_finite_become_null(tmp_path, output):
    output([(1, "a", np.nan), (1, "b", np.float32(np.inf))])
    (row,) = read(tmp_path / "metrics.jsonl")
    assert row == {"step": 1, "time": 1234.568, "a": None, "b": None}


@pytest.mark.parametrize("torn", ['{"step": 2, "a"', "x" * 200_000])
def test_a_torn_last_line_is_removed(tmp_path, output, torn):
    output([(1, "a", 1)])
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as file:
        file.write(torn)
    JSONLOutput(tmp_path)([(3, "a", 3)])
    assert [(row["step"], row["a"]) for row in read(path)] == [(1, 1), (3, 3)]


def test_a_file_that_is_only_a_torn_line_becomes_empty(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text("x" * 200_000)
    JSONLOutput(tmp_path)
    assert path.read_text() == ""


def test_a_full_disk_leaves_whole_lines(tmp_path, output):
    """A file may not grow beyond the limit, as if the disk were full."""
    output([(1, "a", 1)])
    path = tmp_path / "metrics.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, before[1]))
    try:
        with pytest.raises(OSError, match=r"metrics\.jsonl"):
            output([(2, "a", 2)])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    output([(3, "a", 3)])
    assert [row["step"] for row in read(path)] == [1, 3]
