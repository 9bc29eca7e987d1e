"""The script that makes the published curves of the package."""

import importlib.util
import pathlib

FILE = pathlib.Path(__file__).parents[1] / "packaging" / "published.py"
SPEC = importlib.util.spec_from_file_location("published_script", FILE)
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


def test_bins_hold_their_right_edge():
    found = script.binned([1, 10, 11, 40, 99], [1, 3, 5, 7, 9], 10, 4)
    assert found == [2, 5, None, 7]


def test_pairs_leave_out_what_is_missing():
    assert script.pairs([1, 3, None, 5, None, None]) == [2, 5, None]


def test_cells_have_four_digits():
    assert script.rounded([[123.456, None, 0.00012345]]) == [[123.5, None, 0.0001234]]
