"""Curves on the bins of published ones, tables, aggregates and protocols."""

import json

import numpy as np
import pytest

from dreamerv3.benchmarking import aggregate, api, jobs, results
from dreamerv3.benchmarking.jobs import Request
from dreamerv3.benchmarking.schedule import Progress
from dreamerv3.viewing import published

TASK = "dmc_cartpole_swingup"


def write(job, points):
    job.logdir.mkdir(parents=True)
    rows = [{"step": s, "time": 1e9 + s, "episode/score": y} for s, y in points]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    for name in ("scores.jsonl", "metrics.jsonl"):
        (job.logdir / name).write_text(text)


@pytest.fixture
def request_(tmp_path):
    return Request("dmc_proprio_2023", (TASK,), 2, 60_000, {}, str(tmp_path))


@pytest.fixture
def curves():
    return {each.name: each for each in published.load()}["dmc_proprio_2023"]


def test_episodes_fall_into_the_bin_whose_right_edge_follows(request_):
    job, other = jobs.make(request_)
    write(job, [(4999, 1), (5000, 3), (5001, 10), (30_000, 7)])
    write(other, [])
    (found,) = results.collect([job, other])
    (ours,) = found.ours
    assert ours.x.tolist() == [10_000 * i for i in range(1, 7)]
    assert ours.seeds.shape == (1, 6), "a seed without an episode has no curve"
    assert ours.seeds[0, [0, 1, 5]].tolist() == [2, 10, 7]


def test_what_a_killed_training_repeats_counts_once(request_):
    job, _ = jobs.make(request_)
    write(job, [(10, 1), (20, 2), (30, 3), (15, 4), (25, 5)])
    steps, scores = results.episodes(job.logdir)
    assert steps.tolist() == [10, 15, 25]
    assert scores.tolist() == [1, 4, 5]


def test_the_table_of_the_published_curves(curves):
    """As the collection of published scores gives it, rounded."""
    group = results.group(TASK, "", curves.x(TASK), curves.tasks[TASK])
    cells = [results.cell(group, 10_000, s) for s in (10_000, 25_000, 50_000, 100_000)]
    found = [(round(c.mean), round(c.deviation), c.seeds) for c in cells]
    assert found == [(63, 13, 5), (225, 34, 5), (331, 26, 5), (513, 19, 5)]


def test_cells_compare_the_bins_that_ours_reached(curves):
    group = results.group(TASK, "", curves.x(TASK), curves.tasks[TASK])
    whole, part = (results.cell(group, 10_000, 50_000, x) for x in (np.inf, 50_000))
    assert part.mean < whole.mean
    assert part.mean == pytest.approx(curves.tasks[TASK][:, 3:5].mean())


def test_everything_is_written(request_, tmp_path):
    for number, job in enumerate(jobs.make(request_)):
        write(job, [(s, 100 * number + s / 100) for s in range(500, 30_001, 500)])
    progress = Progress(jobs.make(request_), 1)
    outcome = api.finish(request_, progress)
    assert outcome.done == 2
    data = json.loads((tmp_path / "benchmark.json").read_text())
    table = data["tasks"][TASK]["table"]
    assert [cell["step"] for cell in table["DreamerV3 2023"]] == [
        10_000,
        25_000,
        50_000,
    ]
    assert round(table["DreamerV3 2023"][1]["mean"]) == 225
    words = data["differences"]["dmc_proprio_2023"]
    assert "seeds: published 5, here 2" in words
    assert not [line for line in words if line.startswith(("action repeat", "envir"))]
    ours, theirs = data["aggregates"]
    assert ours["method"] == "dreamerv3 (ours)"
    assert theirs["runs"] == 5
    low, high = theirs["mean_interval"]
    assert low < theirs["mean"] < high
    page = (tmp_path / "benchmark.html").read_text()
    for text in (
        "Differences of protocol",
        "225 ± 34",
        "--budget 60000",
        "score / 1000",
    ):
        assert text.replace("225 ± 34", "224.8 ± 33.8") in page


def test_another_protocol_is_told(tmp_path):
    flags = ("--run.envs", "8", "--env.dmc.repeat", "1")
    request = Request("dmc_proprio_2023", (TASK,), 1, 20_000, {}, str(tmp_path), flags)
    (job,) = jobs.make(request)
    write(job, [(s, 1.0) for s in range(1000, 20_001, 1000)])
    (found,) = results.collect([job])
    words = results.differences(found.published[0][0], [job])
    assert "action repeat: published 2, here 1" in words
    assert "environments: published 4, here 8" in words
    assert not [line for line in words if line.startswith("train ratio")]


def test_a_curve_far_below_twice_in_a_row_is_a_finding(request_):
    good, bad = jobs.make(request_)
    write(good, [(s, 50 + s / 70) for s in range(500, 30_001, 500)])
    (found,) = results.collect([good])
    assert not results.findings(found)
    write(bad, [(s, 50.0) for s in range(500, 30_001, 500)])
    (found,) = results.collect([bad])
    (line,) = results.findings(found)
    assert "below DreamerV3 2023 at 20,000 and 30,000 simulator steps" in line


def test_bootstrap_intervals_hold_the_values():
    rng = np.random.default_rng(0)
    finals = [rng.normal(task, 0.1, 5) for task in range(4)]
    low, high = aggregate.bootstrap(finals)
    assert low[0] < np.mean([each.mean() for each in finals]) < high[0]
    assert all(a < b for a, b in zip(low, high, strict=True))
    same, also = aggregate.bootstrap([np.ones(3)])
    assert same == also == (1, 1, 1)


def test_images_are_compared_with_images():
    vision = {each.name: each for each in published.load()}["dmc_vision_nature"]
    values = {"env.dmc.image": True, "env.dmc.proprio": False}
    assert vision.find("dmc_walker_walk", values) == "dmc_walker_walk"
    values = {"env.dmc.image": False, "env.dmc.proprio": True}
    assert not vision.find("dmc_walker_walk", values)


def test_names_of_games_are_found_however_they_are_written():
    sets = {each.name: each for each in published.load()}
    for name in ("atari100k_nature", "atari100k_2023"):
        assert sets[name].find("atari100k_james_bond", {})
        assert not sets[name].find("atari_pong", {}), "the budget is another one"
