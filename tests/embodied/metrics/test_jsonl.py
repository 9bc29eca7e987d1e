"""JSON lines: always valid, never lost, repaired after a kill."""

import json

import numpy as np

from embodied.metrics import JSONLOutput


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_scalars_are_grouped_by_step(tmp_path):
    output = JSONLOutput(tmp_path)
    output([(1, "a", np.float32(0.5)), (1, "b", 2), (2, "a", 3), (2, "c", "text")])
    output([(2, "image", np.zeros((4, 4, 3), np.uint8))])
    assert read(tmp_path / "metrics.jsonl") == [
        {"step": 1, "a": 0.5, "b": 2},
        {"step": 2, "a": 3},
    ]


def test_episodes_at_the_same_step_are_all_kept(tmp_path):
    JSONLOutput(tmp_path)(
        [
            (4, "episode/score", 1.0),
            (4, "episode/length", 9),
            (4, "episode/score", 2.0),
            (4, "episode/length", 8),
        ]
    )
    assert len(read(tmp_path / "metrics.jsonl")) == 2
    assert read(tmp_path / "scores.jsonl") == [
        {"step": 4, "episode/score": 1.0},
        {"step": 4, "episode/score": 2.0},
    ]


def test_values_that_are_not_finite_become_null(tmp_path):
    JSONLOutput(tmp_path)([(1, "a", np.nan), (1, "b", np.float32(np.inf))])
    assert read(tmp_path / "metrics.jsonl") == [{"step": 1, "a": None, "b": None}]


def test_a_torn_last_line_is_removed(tmp_path):
    JSONLOutput(tmp_path)([(1, "a", 1)])
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as file:
        file.write('{"step": 2, "a"')
    JSONLOutput(tmp_path)([(3, "a", 3)])
    assert read(path) == [{"step": 1, "a": 1}, {"step": 3, "a": 3}]
