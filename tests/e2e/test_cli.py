"""The command as a user meets it: helpful words, no tracebacks, resume."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

from embodied.jax import orbax_tree

ROOT = pathlib.Path(__file__).parents[2]
DREAMER = [sys.executable, "-m", "dreamerv3"]
SERIAL = ["--configs", "debug", "--random_agent", "--script", "train"]
QUICK = [*SERIAL, "--run.env_processes", "False"]


def call(*args, command=DREAMER):
    return subprocess.run(
        [*command, *map(str, args)], capture_output=True, text=True, timeout=300
    )


def refused(*args, command=DREAMER):
    """What a user's mistake prints: a message, a non-zero exit, no traceback."""
    result = call(*args, command=command)
    assert result.returncode == 2, result
    assert "Traceback" not in result.stderr
    assert "nothing was started" in result.stderr
    return result.stderr


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_help_lists_keys_with_type_default_and_meaning():
    result = call("--help")
    assert result.returncode == 0
    assert "--run.train_ratio  (number, 32)" in result.stdout
    assert "Replayed steps trained on per environment step." in result.stdout


def test_help_as_a_command(tmp_path):
    assert call("help").stdout == call("--help").stdout
    assert "--video" in call("help", "eval").stdout
    found = call("help", "train_ratio").stdout
    assert "--run.train_ratio  (number, 32)" in found
    assert "Usage" not in found


def test_a_dry_run_starts_and_writes_nothing(tmp_path):
    logdir = tmp_path / "run"
    flags = ("--configs", "debug", "--task", "dummy_disc", "--logdir", logdir)
    result = call("train", *flags, "--dry-run")
    assert result.returncode == 0, result.stderr
    assert "Task:     dummy_disc" in result.stdout
    assert "nothing was started" in result.stdout
    assert not logdir.exists()
    assert "run.envs = many" in refused(*flags, "--run.envs", "many", "--dry-run")


def test_a_quiet_run_prints_its_result_alone(tmp_path):
    flags = (*QUICK, "--task", "dummy_disc", "--logdir", tmp_path / "run")
    result = call(*flags, "--run.steps", 50, "--quiet")
    assert result.returncode == 0, result.stderr
    assert "Task:" not in result.stdout
    assert "steps/s" not in result.stdout
    assert "Score:" in result.stdout
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "terminal" in saved  # The next run is not quiet.


def test_script_without_a_value_lists_the_choices():
    result = call("--script")
    assert result.returncode == 0
    assert "eval_only" in result.stdout


def test_a_misspelt_key():
    message = refused("--run.train_ratoi", 64)
    assert "run.train_ratoi = 64" in message
    assert "did you mean run.train_ratio?" in message


def test_a_misspelt_run_to_go_on_with(tmp_path):
    (tmp_path / "walk").mkdir()
    (tmp_path / "walk" / "config.yaml").write_text("task: bounce_32\n")
    message = refused("--logdir", tmp_path / "wlak")
    assert "there is no run to resume" in message
    assert f"did you mean {tmp_path / 'walk'}?" in message
    assert not (tmp_path / "wlak").exists()


def test_a_file_without_its_class():
    assert "name the class in it, as my_env.py:Name" in refused("--task", "my_env.py")


def test_a_bad_value():
    message = refused("--run.envs", "many")
    assert "must be an integer" in message
    assert "for example --run.envs 16" in message


def test_an_unknown_task():
    assert "did you mean bounce_32?" in refused("--task", "bonce_32")


def test_an_unknown_gymnasium_environment(tmp_path):
    message = refused("--task", "gymnasium_CardPole-v1", "--logdir", tmp_path)
    assert "CardPole" in message
    assert not list(tmp_path.iterdir())  # Nothing was started, nothing was written.
    assert "CartPole" in message


def test_a_reader_that_goes_away_is_no_error():
    command = " ".join([*DREAMER, "--help", "|", "head", "-1"])
    result = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert result.stdout.startswith("Usage")
    assert result.stderr == ""


def test_a_log_directory_that_cannot_be_written():
    assert "cannot write to" in refused("--logdir", "/proc/nowhere/x")


def test_a_missing_extra(tmp_path):
    code = "import sys; sys.modules['gymnasium'] = None; import dreamerv3.cli as m; "
    command = [sys.executable, "-c", code + "m.cli()"]
    message = refused("--task", "gymnasium_CartPole-v1", command=command)
    assert "pip install 'dreamerv3-distributed[gymnasium]'" in message


def test_all_problems_come_together():
    message = refused("--run.envs", 0, "--run.setps", 5, "--task", "x_y")
    assert "3 problems" in message


def test_train_says_what_it_does_and_goes_on(tmp_path):
    logdir = tmp_path / "run"
    result = call(*QUICK, "--logdir", logdir, "--run.steps", 400)
    assert result.returncode == 0, result.stderr
    assert "bounce_32 in 2 environments" in result.stdout
    assert "image (32x32x3 pixels)" in result.stdout
    assert "Stopped at step 400: 400 steps reached." in result.stdout
    assert max(row["step"] for row in read(logdir / "metrics.jsonl")) == 400
    assert len(read(logdir / "scores.jsonl")) == 2
    # Only the log directory is named; the rest comes from there.
    result = call("--logdir", logdir, "--run.steps", 800)
    assert result.returncode == 0, result.stderr
    assert "Changed since the last run: run.steps from 400 to 800." in result.stdout
    assert "Resumed from" in result.stdout
    assert "Stopped at step 800" in result.stdout
    result = call("--logdir", logdir, "--script", "eval_only")
    assert result.returncode == 0, result.stderr
    assert "Changed since the last run" not in result.stdout
    assert re.search(r"Score of 4 episodes: mean \d", result.stdout)
    message = refused("--logdir", logdir, "--task", "bounce_64", "--seed", 3)
    assert "2 problems" in message
    assert "this log directory was made with bounce_32" in message


@pytest.mark.slow
def test_a_seed_gives_the_same_run_whenever_something_is_logged(tmp_path):
    start = ["--configs", "debug", "--script", "train", "--run.env_processes", False]
    start += ["--run.steps", 150, "--run.train_ratio", 16, "--seed", 3]
    states = []
    for every in (0.1, 1000):
        logdir = tmp_path / str(every)
        often = ["--run.log_every", every, "--run.report_every", every]
        result = call(*start, *often, "--logdir", logdir)
        assert result.returncode == 0, result.stderr
        newest = max((logdir / "ckpt" / "agent").glob("0*"))
        states.append(orbax_tree.read(newest / "agent"))
    assert states[0].keys() == states[1].keys()
    for key, value in states[0].items():
        np.testing.assert_array_equal(value, states[1][key], err_msg=key)


def test_train_eval(tmp_path):
    script = ["--script", "train_eval", "--run.steps", 300]
    result = call(*QUICK, *script, "--logdir", tmp_path)
    assert result.returncode == 0, result.stderr
    names = {name for row in read(tmp_path / "metrics.jsonl") for name in row}
    assert "eval/episode/score" in names


def test_eval_only_without_a_run_says_so(tmp_path):
    message = refused(*QUICK, "--script", "eval_only", "--logdir", tmp_path / "x")
    assert "holds no checkpoint to evaluate" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_saves_and_exits_with_zero(tmp_path, number):
    args = [*DREAMER, *SERIAL, "--logdir", str(tmp_path)]
    process = subprocess.Popen(
        args, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step "):  # The first metrics: it is under way.
            os.killpg(process.pid, number)  # As a terminal does, to the whole group.
            break
    rest = process.stdout.read()
    assert process.wait(60) == 0
    assert f"{number.name} received" in rest
    saved = max((tmp_path / "ckpt" / "agent").glob("0*/step/tree.json"))
    steps = json.loads(saved.read_text())
    assert f"Stopped at step {steps:,}" in rest
    assert f"Report:   {tmp_path / 'report.html'}" in rest
    assert "Train this again" in (tmp_path / "report.html").read_text()
    # Nothing that was added is lost.
    assert max(row["step"] for row in read(tmp_path / "metrics.jsonl")) == steps


def test_a_parallel_run_goes_on_and_can_be_evaluated(tmp_path):
    """What the README says, with the default script."""
    logdir = tmp_path / "run"
    start = ["--configs", "debug", "--random_agent", "--logdir", logdir]
    result = call(*start, "--run.steps", 500)
    assert result.returncode == 0, result.stderr
    assert "The run ended: agent completed the run." in result.stdout
    assert "Score:    mean score of the last" in result.stdout
    steps = len((logdir / "scores.jsonl").read_text())
    result = call("--logdir", logdir)  # It is complete: nothing more is collected.
    assert result.returncode == 0, result.stderr
    assert len((logdir / "scores.jsonl").read_text()) == steps
    result = call("--logdir", logdir, "--script", "eval_only")
    assert result.returncode == 0, result.stderr
    assert "Changed since the last run" not in result.stdout
    assert re.search(r"Score of 4 episodes: mean \d", result.stdout)
    result = call("--logdir", logdir, "--run.steps", 900)
    assert result.returncode == 0, result.stderr
    assert "The run ended: agent completed the run." in result.stdout
    other = ["--run.from_checkpoint", logdir, "--logdir", tmp_path / "other"]
    result = call(*QUICK, *other, "--run.steps", 20)
    assert result.returncode == 0, result.stderr
    assert "Took the agent from" in result.stdout


def test_the_dreamer_trains_and_its_predictions_can_be_seen(tmp_path):
    logdir = tmp_path / "run"
    result = call("--configs", "debug", "--logdir", logdir, "--run.steps", 300)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "  total" in result.stdout  # Parameters by module.
    names = {name for row in read(logdir / "metrics.jsonl") for name in row}
    assert {"train/loss/total", "train/loss/image", "report/loss/total"} <= names
    example = [sys.executable, str(ROOT / "examples" / "openloop.py")]
    picture = tmp_path / "openloop.png"
    result = call(logdir, "--output", picture, command=example)
    assert result.returncode == 0, result.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
