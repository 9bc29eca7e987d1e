"""Every environment passes the contract, and tasks are found or explained."""

import importlib.metadata
import sys

import numpy as np
import pytest

from embodied import envs
from embodied.core import base
from embodied.envs import registry
from embodied.run.parallel import routing
from embodied.testing import check_env

TASKS = [
    "bounce_32",
    "bounce_64",
    "dummy_disc",
    "dummy_cont",
    "dummy_both",
    "pinpad_three",
]


@pytest.mark.parametrize("task", TASKS)
def test_contract(task):
    assert check_env(lambda: envs.make(task, length=20)) > 5


@pytest.mark.parametrize("task", [*TASKS, "gymnasium_CartPole-v1"])
def test_same_seed_same_observations(task):
    def rollout(seed):
        env = envs.make(task, seed=seed)
        action = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
        obs = [env.step({**action, "reset": i == 0}) for i in range(5)]
        return [o for step in obs for o in step.values()]

    for first, second in zip(rollout(3), rollout(3), strict=True):
        np.testing.assert_array_equal(first, second)
    pairs = zip(rollout(3), rollout(4), strict=True)
    assert any(not np.array_equal(first, second) for first, second in pairs)


def test_gym_is_short_for_gymnasium():
    pytest.importorskip("gymnasium")
    assert registry.suite_of("gym_CartPole-v1") == "gymnasium"
    assert envs.make("gym_CartPole-v1").act_space["action"].high == 2


@pytest.mark.parametrize(
    ("task", "suite"),
    [
        ("bounce_32", "bounce"),
        ("gym_file.py:Corridor", "custom"),
        ("path/to/gym_file.py:Corridor", "custom"),
        ("package.module:make", "custom"),
        ("gymnasium_minigrid:MiniGrid-Empty-5x5-v0", "gymnasium"),
        ("embodied.envs.bounce:Bounce", "custom"),
    ],
)
def test_suites_of_tasks(task, suite):
    assert registry.suite_of(task) == suite


def test_reserved_keys_are_those_a_run_adds():
    assert set(routing.SPACES) <= base.RESERVED


def test_unknown_suite_names_the_nearest():
    with pytest.raises(registry.TaskError, match="did you mean bounce_32"):
        envs.make("bonce_32")
    with pytest.raises(registry.TaskError, match=r"did you mean bounce\?"):
        registry.find("bounse")


def test_unknown_task_lists_the_known():
    with pytest.raises(registry.TaskError, match="bounce_16, bounce_32 or bounce_64"):
        envs.make("bounce_48")


def test_unknown_task_names_the_nearest_or_an_example():
    known = ("walk", "walker", "run")
    error = registry.unknown_task("far", "walke", known, "run")
    assert (error.task, error.rule) == (
        "far_walke",
        "the suite 'far' has no task 'walke'",
    )
    assert error.remedy == "did you mean far_walker or far_walk?"
    assert registry.unknown_task("far", "xyz", known, "run").remedy == "choose far_run"


def test_the_extra_is_of_the_package_that_is_installed(monkeypatch):
    def distribution(name):
        if name != "dreamerv3-distributed-env":
            raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)
    line = registry.install_line(registry.SUITES["atari"])
    assert line == "pip install 'dreamerv3-distributed-env[atari]'"


def test_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.delitem(sys.modules, "gymnasium", raising=False)
    with pytest.raises(registry.TaskError, match=r"distributed\[gymnasium\]"):
        envs.make("gymnasium_CartPole-v1")
