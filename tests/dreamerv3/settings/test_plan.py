"""What a run tells before it starts."""

import json
import re
import shlex
import types

import pytest

from dreamerv3.settings import config, plan
from embodied.core import machine

BLOCKS = config.read_blocks()
HINT = "--configs size1m or size12m"


def describe(**changes):
    values = {**BLOCKS.defaults, "jax.platform": "cpu"}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return plan.describe(config.to_config(values), {}, {})


def test_the_default_size_on_a_cpu_is_pointed_out():
    assert HINT in describe()


@pytest.mark.parametrize(
    "changes",
    [
        {"jax__platform": "cuda"},
        {"agent__dyn__rssm__deter": 512},
        {"random_agent": True},
        {"script": "eval_only"},
    ],
)
def test_no_hint_without_need(changes):
    assert HINT not in describe(**changes)


def test_without_an_accelerator_jax_takes_the_cpu(monkeypatch):
    monkeypatch.setattr(machine, "ACCELERATORS", {})
    assert HINT in describe(jax__platform="auto")
    gpu = machine.Accelerator("NVIDIA GPU", ("/dev/null",), ("numpy",), "gpu")
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": gpu})
    assert HINT not in describe(jax__platform="auto")


def test_the_device_is_told(monkeypatch):
    text = describe(jax__platform="cpu")
    assert re.search(r"^Device:   CPU with \d+ cores?$", text, re.M)
    assert "split into 4" in describe(jax__mock_devices=4)
    assert "Device:   none, actions are random" in describe(random_agent=True)
    gpu = machine.Accelerator("NVIDIA GPU", ("/dev/null",), ("numpy",), "gpu")
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": gpu})
    assert "Device:   cuda, 1 NVIDIA GPU" in describe(jax__platform="auto")
    unused = gpu._replace(plugins=("no_such_plugin",))
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": unused})
    text = describe(jax__platform="auto")
    assert "Device:   CPU with" in text
    assert "has a NVIDIA GPU, but JAX is installed without cuda: pip install" in text


def test_the_hint_names_the_size_that_was_chosen():
    assert "12,288 recurrent units" in describe(agent__dyn__rssm__deter=12288)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"run__steps": 10}, False),
        ({"replay__size": 10}, False),
        ({"run__remote_replay": True}, False),
        ({"script": "eval_only"}, False),
    ],
)
def test_a_disk_that_is_too_small_is_pointed_out(tmp_path, monkeypatch, changes, told):
    usage = types.SimpleNamespace(free=10**6)
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: usage)
    text = describe(logdir=str(tmp_path / "new" / "run"), **changes)
    assert (f"the disk of {tmp_path} has 1 MB free; --replay.size" in text) == told


def test_no_word_on_the_disk_to_a_run_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(plan.shutil, "disk_usage", lambda path: 1 / 0)
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    assert "free" not in describe(logdir=str(tmp_path)).split("Training:")[1]


def test_whether_the_run_is_new(tmp_path):
    assert f"{tmp_path} (a new run)" in describe(logdir=str(tmp_path))
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    assert f"{tmp_path} (resuming the existing run)" in describe(logdir=str(tmp_path))


def test_a_complete_run_says_so(tmp_path):
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text('{"step": 90}\n{"step": 100}\n{"step": 1')  # Half a line.
    text = describe(logdir=str(tmp_path), run__steps=100)
    assert "complete with 100 steps: give a larger --run.steps" in text
    assert "resuming the existing run" in describe(logdir=str(tmp_path), run__steps=101)
    metrics.write_text("no metrics\n")
    assert "resuming the existing run" in describe(logdir=str(tmp_path), run__steps=100)


@pytest.mark.parametrize(("steps", "flags"), [(50, " --run.steps 200"), (101, "")])
def test_the_command_to_go_on(tmp_path, steps, flags):
    (tmp_path / "metrics.jsonl").write_text('{"step": 100}\n')
    values = {**BLOCKS.defaults, "logdir": str(tmp_path), "run.steps": steps}
    lines = plan.closing(config.to_config(values)).splitlines()
    assert f"Resume:   dreamerv3 --logdir {tmp_path}{flags}" in lines


def test_commands_are_quoted_for_the_shell(tmp_path):
    logdir = tmp_path / "my runs; rm"
    values = {**BLOCKS.defaults, "logdir": str(logdir), "run.steps": 10}
    resume = plan.closing(config.to_config(values)).splitlines()[1]
    assert shlex.split(resume)[1:] == ["dreamerv3", "--logdir", str(logdir)]


def test_an_evaluation_goes_on_with_nothing(tmp_path):
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    (tmp_path / "metrics.jsonl").write_text('{"step": 100}\n')
    text = describe(logdir=str(tmp_path), run__steps=100, script="eval_only")
    assert f"{tmp_path}\n" in f"{text}\n"
    assert "complete" not in text


def closing(logdir, **changes):
    values = {**BLOCKS.defaults, "logdir": str(logdir), **changes}
    return plan.closing(config.to_config(values)).splitlines()[0]


def write(path, key, scores, rest=""):
    rows = [json.dumps({"step": i, key: score}) for i, score in enumerate(scores)]
    path.write_text("".join(f"{row}\n" for row in rows) + rest)


def test_the_score_of_the_last_episodes(tmp_path):
    assert "no episode has ended yet" in closing(tmp_path)
    write(tmp_path / "scores.jsonl", "episode/score", [9] * 5 + [1, 3] * 9 + [None, 2])
    assert "the last 19 episodes 2.00" in closing(tmp_path)


def test_half_a_line_is_not_read(tmp_path):
    torn = '{"step": 7, "episode/score": 1'
    write(tmp_path / "scores.jsonl", "episode/score", [4], torn)
    assert "the last 1 episodes 4.00" in closing(tmp_path)


@pytest.mark.parametrize(
    "changes", [{"logger.outputs": ("terminal",)}, {"run.remote_logger": True}]
)
def test_scores_that_are_elsewhere(tmp_path, changes):
    assert "not kept on this machine" in closing(tmp_path, **changes)


def test_the_score_of_the_last_evaluation(tmp_path):
    changes = {"script": "train_offline", "run.eval_episodes": 2}
    path = tmp_path / "metrics.jsonl"
    write(path, "train/loss", [1.0])
    assert "no evaluation was completed" in closing(tmp_path, **changes)
    write(path, "eval/episode/score", [8.0, 1.0, 2.0])
    assert "the last 2 evaluated episodes 1.50" in closing(tmp_path, **changes)
