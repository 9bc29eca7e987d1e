"""The history of speed: what is recorded, and when a ratio fell."""

import importlib.util
import json
import pathlib

import pytest

FILE = pathlib.Path(__file__).parents[1] / "bench" / "history.py"


@pytest.fixture(scope="module")
def history():
    spec = importlib.util.spec_from_file_location("history", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def recorded(history, tmp_path, monkeypatch):
    path = tmp_path / "history.jsonl"
    monkeypatch.setenv(history.VARIABLE, str(path))
    monkeypatch.setattr(history, "commit", lambda: "abc")

    def record(*values):
        for value in values:
            history.record("rpc", {"act to floor": value})
        return history.read(path)

    return record


def test_nothing_is_recorded_outside_of_make_bench(history, tmp_path, monkeypatch):
    monkeypatch.delenv(history.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    history.record("rpc", {"act to floor": 1.0})
    assert not list(tmp_path.iterdir())


def test_rows_hold_the_commit(recorded):
    assert recorded(0.5) == {"rpc: act to floor": [("abc", 0.5)]}


@pytest.mark.parametrize(
    ("values", "fell"),
    [
        ((0.5,), False),  # There is nothing to compare with.
        ((0.5, 0.44), False),
        ((0.5, 0.42), True),
        ((0.5, 0.4, 0.36), False),  # Within 15 % of the lowest.
        ((0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.4), True),  # The first is too old.
    ],
)
def test_a_fall_beyond_the_spread_is_told(history, recorded, values, fell):
    found = history.warnings(recorded(*values))
    assert bool(found) == fell
    assert all("rpc: act to floor fell to" in line for line in found)


def test_the_page_has_a_chart_for_each_ratio(history, recorded):
    text = history.page(recorded(0.5, 0.6))
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert data["rpc: act to floor"]["series"][0]["y"] == [0.5, 0.6]
