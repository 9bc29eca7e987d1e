"""Jobs of a benchmark, and their state from log directories alone."""

import fcntl
import json
import math
import re

import pytest

from dreamerv3.benchmarking import jobs
from dreamerv3.benchmarking.jobs import Request
from dreamerv3.settings.config import ConfigError

FLAGS = ("--configs", "debug")


@pytest.fixture
def make(tmp_path):
    def make(suite="builtin", **options):
        options = {"seeds": 1, "budget": 100, "flags": FLAGS, **options}
        return jobs.make(Request(suite, logdir=str(tmp_path / "bench"), **options))

    return make


def write(job, *steps, scores=()):
    job.logdir.mkdir(parents=True, exist_ok=True)
    (job.logdir / "config.yaml").write_text(f"task: {job.task}\n")
    rows = [{"step": step, "time": 1e9 + step / 10} for step in steps]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (job.logdir / "metrics.jsonl").write_text(text)
    rows = [{"step": 1, "episode/score": score} for score in scores]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (job.logdir / "scores.jsonl").write_text(text)


def test_every_task_seed_and_value_is_one_training(make):
    sweep = {"agent.opt.lr": ("1e-4", "4e-5"), "run.train_ratio": ("8", "16")}
    found = make(seeds=3, sweep=sweep)
    assert len(found) == 2 * 3 * 4
    assert len({job.logdir for job in found}) == len(found)
    assert len({job.method for job in found}) == 4
    assert "lr=4e-5 train_ratio=16" in {job.method for job in found}
    last = found[-1]
    assert last.values["agent.opt.lr"] == 4e-5
    assert last.values["batch_size"] == 4, "blocks of the user come last"


def test_budget_counts_what_the_simulator_does(make):
    found = make("dmc_proprio_2023", tasks=("dmc_walker_walk",), budget=50_001)
    assert found[0].repeat == 2
    assert found[0].steps == 25_001
    assert found[0].words[-2:] == ("--run.steps", "25001")


def test_tasks_of_a_published_suite_are_those_of_the_curves(make):
    pytest.importorskip("ale_py")
    found = make("atari100k", budget=0)
    assert len(found) == 26
    assert {job.steps for job in found} == {100_000}


def test_a_block_is_a_suite_with_its_own_task(make):
    (job,) = make("track", budget=0)
    assert (job.task, job.steps) == ("track_7", 15_000)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"suite": "buildin"}, "did you mean builtin"),
        ({"flags": ("--seed", "3")}, "set for each training by the benchmark"),
        ({"flags": ("--run.duration", "3")}, "set for each training by the benchmark"),
        ({"flags": ("--agent.horizont", "3")}, "agent.horizon"),
        ({"sweep": {"agent.opt.lr": ()}}, "needs a key and its values"),
        ({"seeds": 0}, "must be 1 or more"),
    ],
)
def test_mistakes_are_named_before_anything_starts(make, options, words):
    with pytest.raises(ConfigError) as caught:
        make(**options)
    text = " ".join(" ".join(problem) for problem in caught.value.problems)
    assert re.search(words, text)


def test_states(make):
    (job, _) = make()
    assert jobs.look(job).state == jobs.NEW
    write(job, 10, 50, scores=[1, 3])
    status = jobs.look(job)
    assert (status.state, status.step, status.score) == (jobs.PARTIAL, 50, 2)
    assert status.rate == pytest.approx(10)
    write(job, 10, 100)
    assert jobs.look(job).state == jobs.DONE
    assert math.isnan(jobs.look(job).score)


def test_a_larger_budget_makes_a_finished_job_partial(make):
    (job, _) = make()
    write(job, 100)
    (longer, _) = make(budget=200)
    assert jobs.look(longer).state == jobs.PARTIAL


def test_a_training_that_runs_holds_its_directory(make):
    (job, _) = make()
    write(job, 100)
    with (job.logdir / "run.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert jobs.look(job).state == jobs.HELD
    assert jobs.look(job).state == jobs.DONE


def test_a_torn_last_line_is_left_out(make):
    (job, _) = make()
    write(job, 10)
    with (job.logdir / "metrics.jsonl").open("a") as file:
        file.write('{"step": 10')
    assert jobs.look(job).step == 10
