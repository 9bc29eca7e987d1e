"""Columns hold what the lines said, also in blocks and after a restart."""

import json
import os

import numpy as np
import pytest

from dreamerv3.viewing import cache, curves
from dreamerv3.viewing.table import BLOCK, Table
from dreamerv3.viewing.tail import Tail


def lines(*rows):
    return [json.dumps(row).encode() for row in rows]


def filled(amount, seed=0):
    random = np.random.default_rng(seed)
    values = random.normal(size=amount)
    table = Table()
    rows = [{"step": 10 * i, "time": 5.0 + i, "a": v} for i, v in enumerate(values)]
    table.add_lines(lines(*rows), frozenset())
    return table, values


def test_values_that_are_no_numbers():
    table = Table()
    rows = lines({"step": 1, "a": 1.5}, {"step": 2, "a": None}, {"step": 3, "a": "NaN"})
    rows += lines(
        {"step": 4, "a": "Infinity"}, {"step": 5, "a": "word"}, {"step": 6, "a": 2}
    )
    table.add_lines(rows, frozenset())
    values = table.columns["a"].parts["values"].view()
    np.testing.assert_array_equal(
        values, np.float32([1.5, np.nan, np.nan, np.inf, np.nan, 2])
    )


def test_bad_lines_are_counted_and_left_out():
    table = Table()
    table.add_lines([b'{"step": 1, "a": 1}', b'{"ste', b"[]", b'{"a": 2}'], frozenset())
    assert table.bad == 3
    assert table.steps.view().tolist() == [1]


def test_metrics_to_skip():
    table = Table()
    table.add_lines(lines({"step": 1, "a": 1, "b": 2}), frozenset(["a"]))
    assert list(table.columns) == ["b"]
    assert table.count == 1


def test_a_view_taken_before_stays_as_it_was():
    table, values = filled(100)
    before = table.columns["a"].parts["values"].view()
    table.add_lines(lines({"step": 5000, "a": 7}), frozenset())
    np.testing.assert_allclose(before, values.astype(np.float32))


@pytest.mark.parametrize("amount", [BLOCK - 1, 20 * BLOCK + 5])
def test_blocks_summarise_all_values(amount):
    table, values = filled(amount)
    points = table.points("a", 0, amount, most=10)
    total = (points.mean * points.weight).sum()
    assert points.weight.sum() == amount
    np.testing.assert_allclose(total, values.sum(), rtol=1e-4)
    np.testing.assert_allclose(points.low.min(), values.min(), rtol=1e-6)
    np.testing.assert_allclose(points.high.max(), values.max(), rtol=1e-6)


def test_saved_columns_go_on(tmp_path):
    source, store = tmp_path / "metrics.jsonl", tmp_path / "kept" / "run.columns"
    rows = [{"step": i, "time": float(i), "a": i / 2, "b": -i} for i in range(500)]
    source.write_bytes(b"\n".join(lines(*rows)) + b"\n")
    tail, table = Tail(source), Table()
    table.add_lines(tail.read(), frozenset())
    cache.save(store, {"metrics": (tail, table)})
    loaded = cache.load(store, {"metrics": source})
    tail, table = loaded["metrics"]
    with source.open("ab") as file:
        file.write(b'{"step": 500, "a": 250}\n')
    assert not tail.changed()
    table.add_lines(tail.read(), frozenset())
    curve = curves.curve(table, "a", "step", 0.0, (0, 500), 1000)
    np.testing.assert_allclose(curve.x, np.arange(501))
    np.testing.assert_allclose(curve.mean, np.arange(501) / 2)


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"dreamerv3 view\n\0" + b"\xff" * 8]
)
def test_a_broken_file_is_not_loaded(tmp_path, content):
    path = tmp_path / "run.columns"
    path.write_bytes(content)
    assert cache.load(path, {"metrics": tmp_path / "metrics.jsonl"}) is None


def test_files_that_nobody_used_are_deleted(tmp_path):
    torn = ".torn.columns.0123.tmp"  # A viewer was killed while it wrote.
    for name in ("old.columns", "new.columns", torn):
        (tmp_path / name).touch()
    for name in ("old.columns", torn):
        os.utime(tmp_path / name, (1, 1))
    cache.forget_unused(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new.columns"]
