"""`dreamerv3 benchmark` with real trainings: killed, interrupted, failing, on Ray."""

import json
import os
import signal
import textwrap

import psutil
import pytest

from dreamerv3.benchmarking import results
from tests.e2e.command import Command, wait_for
from tests.e2e.test_ray import BROKEN, ENV, Cluster, ancestors

FLAGS = ("--configs", "debug", "--random_agent", "--script", "train")
FLAGS += ("--run.env_processes", "False", "--run.save_every", 1, "--run.log_every", 1)
BUDGET = 60_000  # Some ten seconds.
LENGTH = 17  # Steps of an episode.


@pytest.fixture
def start(tmp_path):
    commands = []

    def start(*words, budget=BUDGET):
        words = ["benchmark", "builtin", *words, "--budget", budget]
        words += ["--logdir", tmp_path / "bench", *FLAGS]
        commands.append(Command(tmp_path / "output.txt", *words, env=ENV))
        return commands[-1]

    yield start
    for command in commands:
        command.kill()


def trainings():
    """Programs of jobs, by process id."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "dreamerv3.benchmarking.training" in words:
            found[process.pid] = words
    return found


def of_seed(directory, seed):
    """The process that trains with a seed in a directory."""
    word = str(directory / f"seed{seed}")
    return {pid for pid, words in trainings().items() if word in words}


def steps(directory, seed=0):
    return results.episodes(directory / f"seed{seed}")[0].tolist()


def check_whole(directory):
    """Both trainings are whole; each start begins and breaks off two episodes."""
    most = 2 * (BUDGET // 2 // LENGTH)
    for seed in range(2):
        found = steps(directory, seed)
        assert found == sorted(found)
        assert most - 10 <= len(found) <= most + 10


def test_a_killed_benchmark_resumes_and_repeats_nothing(start, tmp_path):
    track = tmp_path / "bench" / "track_7"
    words = ("--tasks", "track_7", "--seeds", 2, "--slots", 2)
    first = start(*words)
    wait_for(lambda: steps(track) and steps(track, 1), "episodes", [first])
    mine = of_seed(track, 0) | of_seed(track, 1)
    os.kill(first.process.pid, signal.SIGKILL)
    wait_for(lambda: not mine & set(trainings()), "end of the trainings")
    second = start(*words)
    wait_for(lambda: steps(track)[-1] > BUDGET / 4, "more episodes", [second])
    assert second.stop(signal.SIGINT) == 130
    assert "To resume: dreamerv3 benchmark builtin --tasks track_7" in second.text()
    assert not of_seed(track, 0) | of_seed(track, 1)
    assert start(*words).wait(120) == 0
    check_whole(track)
    log = (track / "seed0" / "job.log").read_text()
    assert start(*words).wait(60) == 0
    assert (track / "seed0" / "job.log").read_text() == log, "nothing was started"
    data = json.loads((tmp_path / "bench" / "benchmark.json").read_text())
    assert data["done"] == 2


def test_a_failing_task_is_told_and_the_others_finish(start, tmp_path):
    path = tmp_path / "stuck.py"
    path.write_text(textwrap.dedent(BROKEN))
    run = start("--tasks", f"{path}:Env", "track_7", "--seeds", 1, budget=400)
    assert run.wait(120) == 2
    assert "the motor is stuck" in run.text()
    assert "1 of 2 runs are not done" in run.text()
    data = json.loads((tmp_path / "bench" / "benchmark.json").read_text())
    assert data["done"] == 1
    assert len(data["failed"]) == 1
    assert "track_7" in data["tasks"]


@pytest.mark.slow
def test_a_lost_machine_of_a_cluster(start, tmp_path):
    """Its training resumes on another one."""
    if not os.environ.get("CI"):
        pytest.importorskip("ray")
    track = tmp_path / "bench" / "track_7"
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        other = cluster.add("--address", cluster.address)
        where = ("--on", "ray", "--cores", 2, "--ray.address", cluster.address)
        run = start("--tasks", "track_7", "--seeds", 2, *where)
        wait_for(lambda: steps(track) and steps(track, 1), "episodes", [run])
        assert run.stop(signal.SIGINT, 60) == 130
        assert not of_seed(track, 0) | of_seed(track, 1)
        assert "Stopped at step" in (track / "seed0" / "job.log").read_text()
        run = start("--tasks", "track_7", "--seeds", 2, *where)
        wait_for(lambda: of_seed(track, 0) and of_seed(track, 1), "trainings", [run])
        lost = [
            seed
            for seed in range(2)
            if any(other.process.pid in ancestors(p) for p in of_seed(track, seed))
        ]
        assert len(lost) == 1, "each machine has room for one training"
        cluster.lose(other)
        assert run.wait(180) == 0, run.text()
    finally:
        cluster.close()
    check_whole(track)
