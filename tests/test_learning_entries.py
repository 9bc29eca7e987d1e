"""Entries of bench/learning.py: every one can be run, and crossings are right."""

import importlib.util
import json
import math
import pathlib

import pytest

from dreamerv3.benchmarking import jobs

FILE = pathlib.Path(__file__).parents[1] / "bench" / "learning.py"
SPEC = importlib.util.spec_from_file_location("learning", FILE)
learning = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(learning)
NEEDED = {"dmc": "dm_control", "gymnasium": "gymnasium", "minigrid": "minigrid"}


@pytest.mark.parametrize("name", learning.ENTRIES)
def test_an_entry_is_accepted(name, tmp_path):
    entry = learning.ENTRIES[name]
    if package := NEEDED.get(entry.task.partition("_")[0]):
        pytest.importorskip(package)
    request = learning.request(entry, 0, str(tmp_path))
    found = jobs.make(request)
    assert len(found) == entry.seeds * max(1, len(entry.sweep) - 1)
    assert {job.steps * job.repeat for job in found} == {entry.budget}


def test_crossings(tmp_path):
    entry = learning.ENTRIES["track"]
    found = jobs.make(learning.request(entry, 2, str(tmp_path)))
    for job, slope in zip(found, (0.004, 0.0001), strict=True):
        job.logdir.mkdir(parents=True)
        rows = [{"step": s, "episode/score": slope * s} for s in range(0, 12_000, 100)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (job.logdir / "scores.jsonl").write_text(text)
    assert learning.crossing(entry, found[0]) == 4000
    assert math.isinf(learning.crossing(entry, found[1]))
    values = learning.summary(entry, found)
    assert values["crossings"] == [4000, None]
    assert values["median"] == 4000
    assert values["median_interval"] == [4000, None]
    assert "above 12 by 4,000, never; median 4,000" in learning.describe(entry, values)
    learning.draw_crossings({"dreamerv3": values}, "track", tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000
