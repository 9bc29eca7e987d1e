"""Training from Python: names of environments, settings, mistakes, the guard."""

import functools
import importlib
import json
import pathlib
import subprocess
import sys

import pytest

import dreamerv3
from dreamerv3 import api
from dreamerv3.settings import config
from embodied.envs import custom
from embodied.envs.bounce import Bounce

ROOT = pathlib.Path(__file__).parents[2]
DEFAULTS = config.read_blocks().defaults

PROGRAM = """
import sys
import dreamerv3
from embodied.envs.bounce import Bounce

assert "jax" not in sys.modules

class Mine(Bounce):
    def __init__(self, index):
        super().__init__("32", length=20)

def run(env, logdir):
    run = {"steps": 120, "envs": 2, "envs_per_process": 2}
    flags = {"env.custom.repeat": 2}
    return dreamerv3.train(
        env, configs="debug", logdir=logdir, run=run, random_agent=True, **flags)
"""
GUARDED = """
if __name__ == "__main__":
    print("first", run(Mine, "logs/first"))
    print("second", run(lambda index: Mine(index), "logs/second"))
"""
MODULE = """
import dreamerv3
from .base import Base

class Mine(Base):
    pass

if __name__ == "__main__":
    run = {"steps": 60, "envs": 1}
    dreamerv3.train(
        Mine, "debug", logdir="logs", run=run, random_agent=True, script="train")
"""
BASE = """
from embodied.envs.bounce import Bounce

class Base(Bounce):
    def __init__(self, index):
        super().__init__("32", length=20)
"""
UNGUARDED = 'run(Mine, "logs/third")'


def start(folder, code, *argv):
    (folder / "program.py").write_text(PROGRAM + code)
    return subprocess.run(
        [sys.executable, *(argv or ["program.py"])],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.process
def test_a_program_trains_on_its_own_class_and_on_a_lambda(tmp_path):
    result = start(tmp_path, GUARDED)
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("The run ended: agent completed the run.") == 2
    assert "first logs/first" in result.stdout
    rows = (tmp_path / "logs/second/metrics.jsonl").read_text().splitlines()
    lengths = [json.loads(row).get("episode/length") for row in rows]
    assert 10 in lengths  # Twenty steps of the environment, two at a time.
    more = ["-m", "dreamerv3", "--logdir", "logs/first", "--run.steps", "200"]
    result = start(tmp_path, GUARDED, *more)  # The command goes on with the first.
    assert result.returncode == 0, result.stdout + result.stderr
    result = start(tmp_path, GUARDED, "-m", "dreamerv3", "--logdir", "logs/second")
    assert result.returncode == 2
    assert "run the program again" in result.stderr


@pytest.mark.process
def test_a_module_of_a_package_trains(tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    for name, code in (("__init__", ""), ("base", BASE), ("mine", MODULE)):
        (package / f"{name}.py").write_text(code)
    result = start(tmp_path, "", "-m", "package.mine")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "package.mine:Mine in 1 environment" in result.stdout
    assert "Stopped at step 60" in result.stdout
    more = ["-m", "dreamerv3", "--logdir", "logs", "--run.steps", "80"]
    result = start(tmp_path, "", *more)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.process
def test_a_program_without_guard_is_told(tmp_path):
    result = start(tmp_path, UNGUARDED)
    assert result.returncode == 1
    assert "GuardError" in result.stderr
    assert 'Put the call under if __name__ == "__main__":' in result.stderr
    assert not (tmp_path / "logs").exists()


def test_a_class_of_a_file_beside_the_program_is_named_by_the_file(
    tmp_path, monkeypatch
):
    (tmp_path / "lonely.py").write_text("class Lonely:\n    size = 1\n")
    (tmp_path / "social").mkdir()
    (tmp_path / "social" / "__init__.py").write_text("class Social:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    lonely, social = map(importlib.import_module, ("lonely", "social"))
    task = f"{tmp_path}/lonely.py:Lonely"
    assert api.name_task(lonely.Lonely) == (task, None)
    assert api.name_task(social.Social) == ("social:Social", None)
    lonely.Lonely.size = 2  # As programs do.
    assert custom.load(task).size == 2


def test_names():
    assert api.name_task("bounce_32") == ("bounce_32", None)
    assert api.name_task(Bounce) == ("embodied.envs.bounce:Bounce", None)
    for factory in (functools.partial(Bounce, "64"), lambda: Bounce()):
        task, held = api.name_task(factory)
        assert task.startswith("python:")
        assert held is factory
    with pytest.raises(config.ConfigError, match="give the class, not an object"):
        api.name_task(Bounce())


def test_settings_by_key_group_or_both():
    words = api.flag_values(
        {
            "seed": 3,
            "run": {"steps": 5, "duration": 0},
            "run.envs": 2,
            "logdir": pathlib.Path("x"),
            "logger": {"outputs": ["jsonl"]},
            "env.gymnasium.kwargs": {"a": True},
        },
        DEFAULTS,
    )
    assert words == {
        "seed": [3],
        "run.steps": [5],
        "run.duration": [0],
        "run.envs": [2],
        "logdir": ["x"],
        "logger.outputs": ["jsonl"],
        "env.gymnasium.kwargs": ['{"a": true}'],
    }


def test_mistakes_come_together(tmp_path):
    with pytest.raises(config.ConfigError) as info:
        dreamerv3.train(
            "bonce_32", run={"setps": 3, "envs": 0}, logdir=tmp_path / "x", run_steps=3
        )
    assert len(info.value.problems) == 4
    assert "did you mean run.steps" in str(info.value)
    assert not (tmp_path / "x").exists()


def test_the_package_knows_what_it_has():
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        _ = dreamerv3.tarin
