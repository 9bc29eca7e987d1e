"""Downsampling keeps means and extremes; grids and bands are what they say."""

import json

import hypothesis
import hypothesis.strategies as st
import numpy as np

from dreamerv3.viewing import curves
from dreamerv3.viewing.table import Table


def table_of(steps, values, times=None):
    table = Table()
    rows = [{"step": s, "a": v} for s, v in zip(steps, values, strict=True)]
    for row, time in zip(rows, times or [], strict=False):
        row["time"] = time
    table.add_lines([json.dumps(row).encode() for row in rows], frozenset())
    return table


def curve(table, low, high, amount):
    return curves.curve(table, "a", "step", 0.0, (low, high), amount)


def test_few_points_stay_as_they_are():
    found = curve(table_of([1, 5, 9], [3, 1, 2]), 1, 9, 100)
    assert found.x.tolist() == [1, 5, 9]
    assert found.mean.tolist() == found.low.tolist() == found.high.tolist() == [3, 1, 2]


@hypothesis.given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=1, max_size=3000),
    st.integers(1, 20),
)
@hypothesis.settings(deadline=None, max_examples=60)
def test_extremes_and_mean_survive(values, amount):
    steps = np.arange(len(values))
    table = table_of(steps.tolist(), values)
    found = curve(table, 0, len(values) - 1, amount)
    assert len(found.x) <= max(amount, 1)
    assert np.all(np.diff(found.x) > 0)
    np.testing.assert_allclose(found.low.min(), min(values), rtol=1e-6)
    np.testing.assert_allclose(found.high.max(), max(values), rtol=1e-6)
    assert np.all(found.low <= found.mean + 1e-3)
    assert np.all(found.mean <= found.high + 1e-3)


def test_values_that_are_not_finite_are_left_out():
    values = [1.0, None, 3.0, None, None, None, 5.0, 7.0]
    found = curve(table_of(range(8), values), 0, 7, 4)
    np.testing.assert_array_equal(found.mean, [1, 3, np.nan, 6])


def test_zoom_has_a_neighbour_on_both_sides():
    table = table_of(range(0, 1000, 10), range(100))
    found = curve(table, 200, 300, 50)
    assert found.x.tolist() == [190, *range(200, 310, 10), 310]


def test_steps_that_went_back_are_sorted():
    found = curve(table_of([0, 10, 20, 5, 15], [0, 1, 2, 3, 4]), 0, 20, 10)
    assert found.x.tolist() == [0, 5, 10, 15, 20]
    assert found.mean.tolist() == [0, 3, 1, 4, 2]


def test_time_axis_and_files_without_time():
    table = table_of([1, 2, 3], [1, 2, 3], [100.0, 110.0, 130.0])
    assert curves.extent(table, "a", "time", 100.0) == (0, 30)
    found = curves.curve(table, "a", "time", 100.0, (0, 30), 10)
    assert found.x.tolist() == [0, 10, 30]
    table = table_of([1, 2, 3], [1, 2, 3])
    assert np.isnan(curves.extent(table, "a", "time", np.nan)).all()
    assert len(curves.curve(table, "a", "time", np.nan, (0, 1), 10).x) == 0


def test_partly_timed():
    table = table_of([1, 2, 3], [1, 2, 3], [100.0])
    table.add_lines([b'{"step": 4, "time": 150, "a": 4}'], frozenset())
    assert curves.extent(table, "a", "time", 100.0) == (0, 50)
    found = curves.curve(table, "a", "time", 100.0, (0, 50), 10)
    assert found.mean.tolist() == [1, 4]


def test_grid_interpolates_inside_only():
    grid = np.array([0.0, 1, 2, 3, 4, 5])
    found = curves.on_grid(np.array([1.0, 1.2, 3.0]), np.array([1.0, 3.0, 6.0]), grid)
    np.testing.assert_allclose(found, [np.nan, 2, 4, 6, np.nan, np.nan])


def test_band_ignores_missing_seeds():
    mean, std = curves.band(np.array([[1.0, 2, np.nan], [3.0, np.nan, np.nan]]))
    np.testing.assert_allclose(mean, [2, 2, np.nan])
    np.testing.assert_allclose(std, [1, 0, np.nan])
