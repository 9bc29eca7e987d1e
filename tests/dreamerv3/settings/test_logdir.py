"""The log directory keeps its settings and refuses those that do not fit."""

import os
import re
import socket

import elements
import numpy as np
import pytest

from dreamerv3.settings import config, logdir
from embodied.core import runfiles, spacefile
from embodied.envs.dummy import Dummy

DEFAULTS = config.read_blocks().defaults


def test_placeholders():
    problems = []
    values = {**DEFAULTS, "logdir": "x/{task}-{seed}/{timestamp}"}
    path = logdir.expand(values, problems)
    assert re.fullmatch(r"x/bounce_32-0/\d{8}T\d{6}\w*", path), path
    assert not problems
    values["logdir"] = "x/{nonsense}"
    logdir.expand(values, problems)
    assert "{timestamp}" in problems[0].remedy


def test_settings_survive_saving(tmp_path):
    values = {
        **DEFAULTS,
        "logdir": str(tmp_path / "new"),
        "logger.outputs": ("jsonl",),
        "run.train_ratio": 64.0,
        "method": "1e5",
        "replay.priority.initial": float("inf"),
    }
    logdir.save(values)
    assert logdir.load(tmp_path / "new") == values


def test_a_new_directory_has_no_settings(tmp_path):
    assert logdir.load(tmp_path) == {}


@pytest.fixture
def saved(tmp_path):
    """Settings of a run that has stored something."""
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    return {**DEFAULTS, "logdir": str(tmp_path)}


def test_what_results_depend_on_may_not_change(saved):
    changed = {
        **saved,
        "task": "bounce_64",
        "agent.dyn.rssm.deter": 512,
        "env.bounce.length": 7,
        "run.steps": 5,
        "agent.eval_mode": "greedy",
        "logger.fps": 3,
    }
    problems = logdir.check(saved, changed)
    keys = {problem.key for problem in problems}
    assert keys == {"task", "agent.dyn.rssm.deter", "env.bounce.length"}
    assert "made with bounce_32" in problems[0].rule
    assert "another --logdir" in problems[0].remedy
    assert set(logdir.differences(saved, changed)) - keys == {
        "run.steps",
        "agent.eval_mode",
        "logger.fps",
    }


def test_where_nothing_was_stored_everything_may_change(tmp_path):
    """As by a run that failed at its start."""
    values = {**DEFAULTS, "logdir": str(tmp_path)}
    (tmp_path / "ckpt" / "logger" / "00000001").mkdir(parents=True)
    assert not logdir.check(values, {**values, "task": "bounce_64", "seed": 7})


@pytest.mark.parametrize(
    ("old", "new", "fits"),
    [("parallel", "train", False), ("train", "parallel", True)],
)
def test_a_parallel_run_stays_one(saved, old, new, fits):
    problems = logdir.check({**saved, "script": old}, {**saved, "script": new})
    assert [problem.key for problem in problems] == ([] if fits else ["script"])


def test_another_size_is_one_problem(saved):
    size = config.layer(saved, config.read_blocks().presets["size12m"], [])
    problems = logdir.check(saved, {**size, "seed": 7})
    assert [problem.key for problem in problems] == ["seed", "agent"]
    assert "another model: agent.enc.simple.depth 64, not 16" in problems[1].rule


def spaces(size):
    """Those of an environment with a vector of that size."""
    obs = {"obs": elements.Space(np.float32, (size,))}
    return obs, {"action": elements.Space(np.int32, (), 0, 2)}


def test_the_environment_of_a_run_may_not_change(tmp_path):
    spacefile.write(tmp_path, *spaces(3))
    assert not logdir.check_spaces(tmp_path, *spaces(4))  # No run yet.
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    (problem,) = logdir.check_spaces(tmp_path, *spaces(4))
    assert problem[:2] == ("observation 'obs'", "float32[4]")
    assert "has float32[3]" in problem.rule
    assert "--logdir" in problem.remedy


def test_the_same_environment_goes_on(tmp_path):
    env = Dummy()
    spacefile.write(tmp_path, env.obs_space, env.act_space)
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    assert not logdir.check_spaces(tmp_path, env.obs_space, env.act_space)


def test_a_run_without_spaces_goes_on(tmp_path):
    (tmp_path / "ckpt" / "agent" / "00000001").mkdir(parents=True)
    assert not logdir.check_spaces(tmp_path, *spaces(3))


def test_the_file_of_a_task_may_move(saved):
    first = {**saved, "task": "/old/place/my.py:Env"}
    assert not logdir.check(first, {**saved, "task": "/new/my.py:Env"})
    assert not logdir.check({**saved, "task": "my.py:Env"}, first)
    for other in ("/old/place/my.py:Other", "/old/place/your.py:Env", "bounce_32"):
        (problem,) = logdir.check(first, {**saved, "task": other})
        assert problem.key == "task"


@pytest.mark.parametrize("text", ["run: {", "- a list", "", "task: \udcff"])
def test_broken_settings_are_named(tmp_path, text):
    path = tmp_path / runfiles.CONFIG
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(config.ConfigError) as info:
        logdir.load(tmp_path)
    (problem,) = info.value.problems
    assert problem.value == str(path)
    assert "cannot be read" in problem.rule


def test_one_run_at_a_time(tmp_path):
    with (
        logdir.hold(tmp_path / "run"),
        pytest.raises(
            config.ConfigError, match=f"under way there .process {os.getpid()} on "
        ),
        logdir.hold(tmp_path / "run"),
    ):
        raise AssertionError("two runs in one directory")
    lock = tmp_path / "run" / runfiles.LOCK
    with logdir.hold(tmp_path / "run"):
        assert lock.read_text() == f"{os.getpid()} on {socket.gethostname()}"
    assert lock.read_text() == "", "the run has ended"
