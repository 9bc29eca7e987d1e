"""Published curves over runs in plot, report and view."""

import json
import re

import numpy as np
import pytest

from dreamerv3.commands import plot, report
from dreamerv3.viewing import published, runs
from dreamerv3.viewing.store import Store

TASK = "dmc_cartpole_swingup"


@pytest.fixture
def run(make_run):
    settings = {"env": "{dmc: {repeat: 2, proprio: true, image: false}}"}
    run = make_run("run", task=TASK, **settings)
    run.add_episodes(200)  # To step 20,000.
    return run


def test_seeds_are_read_as_runs_over_agent_steps(run):
    with published.overlay([str(run.path)]) as places:
        store = Store(places)
        store.read_all()
        found = [d for d in store.all() if d.run.method == "DreamerV3 2023"]
    assert len(found) == 5
    assert {data.run.task for data in found} == {TASK}
    assert {data.step() for data in found} == {245_000}, "490,000 simulator steps"
    assert all(data.run.name.startswith("published-curves/") for data in found)
    assert not any(data.updated() for data in found), "they are no active runs"


def test_own_names_do_not_change(run, make_run):
    make_run("other", task=TASK).add_episodes(2)
    folder = str(run.path.parent)
    before = {each.name for each in runs.find([folder])}
    with published.overlay([folder]) as places:
        after = {each.name for each in runs.find(places)}
    assert before == {"run", "other"} < after


def test_plot_shows_them_near_the_runs(run, tmp_path, capsys):
    path = tmp_path / "curves.html"
    plot.run([str(run.path), "-o", str(path), "--published"])
    text = capsys.readouterr().out
    assert "DreamerV3 2023 (danijar" in text
    assert "divided by the action repeat 2" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text())[1])
    names = [series["name"] for series in data[TASK]["series"]]
    assert names == ["DreamerV3 2023 (5 seeds)", "dreamerv3 (1 seed)"]
    assert max(data[TASK]["series"][0]["x"]) <= 30_000


def test_report_shows_mean_and_deviation(run, tmp_path):
    path = tmp_path / "report.html"
    report.run([str(run.path), "-o", str(path), "--published"])
    data = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text())[1])
    series = {each["name"]: each for each in data["episode/score"]["series"]}
    curve = series["DreamerV3 2023"]
    assert curve["x"][:2] == [5000, 10_000]
    assert curve["y"][0] == pytest.approx(62.766)


def test_without_published_curves_plot_says_so(make_run, tmp_path, capsys):
    run = make_run()
    run.add_episodes(5)
    plot.run([str(run.path), "-o", str(tmp_path / "a.png"), "--published"])
    assert "There are no published curves of these tasks" in capsys.readouterr().out


def test_every_set_is_whole():
    sets = published.load()
    assert {each.name for each in sets} >= {"dmc_proprio_2023", "atari100k_nature"}
    for each in sets:
        assert each.source
        assert each.protocol["repeat"] in (2, 4)
        for task, seeds in each.tasks.items():
            assert seeds.shape[0] >= 2, task
            assert np.isfinite(seeds).any(0).mean() > 0.8, task
