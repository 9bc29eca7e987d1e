"""Environments by file and module: found, made, adapted, or explained."""

import sys
from functools import partial as bind

import numpy as np
import pytest

from embodied import envs
from embodied.core.driver import ProcessEnv
from embodied.envs import custom, registry
from embodied.envs.dummy import Dummy
from embodied.testing import check_env

SOURCE = """
import helper
from embodied.envs.dummy import Dummy

NUMBER = 3

class Plain(Dummy):
    pass

class Asking(Dummy):
    def __init__(self, index, seed, length=7):
        super().__init__("disc", length=length, seed=seed)
        self.given = index, seed, length

def make():
    return Dummy("cont", length=helper.LENGTH)

def wrong():
    return 3

def fails():
    return inner()

def inner():
    raise RuntimeError("no display")

class Holder:
    Inner = Plain
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(SOURCE)
    (tmp_path / "helper.py").write_text("LENGTH = 5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in ("mine", "helper"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["Plain", "make", "Holder.Inner"])
@pytest.mark.parametrize("source", ["mine.py", "mine", "./mine.py"])
def test_by_file_and_by_module(folder, source, name):
    check_env(lambda: envs.make(f"{source}:{name}"), steps=20)


def test_seed_and_index_are_given_to_those_who_ask(folder):
    env = envs.make("mine.py:Asking", seed=4, index=2, kwargs={"length": 9})
    assert env.given == (2, 4, 9)
    assert envs.make("mine.py:Plain", seed=4, index=2) is not None


def test_options(folder):
    env = envs.make("mine.py:Plain", resize=(32, 32), gray=True, time_limit=3)
    assert env.obs_space["image"].shape == (32, 32, 1)
    assert "--env.custom.resize" in env.notes[0]
    assert check_env(lambda: env, steps=20) > 3


@pytest.mark.process
def test_in_a_process_of_its_own(folder):
    path = f"{folder}/mine.py:make"
    env = ProcessEnv(lambda: envs.make(path))
    try:
        assert "act_cont" in env.act_space
    finally:
        env.close()


FAILING = """
from embodied.envs.dummy import Dummy

class OwnError(Exception):
    pass

class Fails(Dummy):
    def step(self, action):
        raise OwnError("out of fuel")
"""


@pytest.mark.process
@pytest.mark.parametrize("known", [True, False])
def test_an_exception_of_the_file_in_a_process_of_its_own(folder, known):
    (folder / "failing.py").write_text(FAILING)
    path = f"{folder}/failing.py"
    module = custom.load_file(path) if known else None
    env = ProcessEnv(bind(envs.make, f"{path}:Fails"))
    try:
        with pytest.raises(module.OwnError if module else RuntimeError) as info:
            env.step({"reset": True})
    finally:
        env.close()
    assert "out of fuel" in str(info.value)
    traceback = str(info.value.__cause__ if known else info.value)
    assert 'raise OwnError("out of fuel")' in traceback


@pytest.mark.parametrize(
    ("task", "rule", "remedy"),
    [
        ("mime.py:Plain", "there is no file mime.py in", "did you mean mine.py?"),
        ("no/where.py:X", "there is no file", "give the path"),
        ("mine.py:Plian", "mine.py has no 'Plian'", "did you mean Plain?"),
        ("mine.py:Zzz", "has no 'Zzz'", "Asking"),
        ("mine.py:NUMBER", "'NUMBER' is an object of builtins.int", "name a class"),
        ("mine.py:wrong", "made an object of builtins.int", "return one of these"),
        ("no_such_module:X", "there is no module 'no_such_module'", "name the file"),
        ("python:lambda", "dreamerv3.train", "run the program again"),
    ],
)
def test_mistakes(folder, task, rule, remedy):
    with pytest.raises(registry.TaskError) as info:
        envs.make(task)
    assert rule in info.value.rule
    assert remedy in info.value.remedy


def test_a_constructor_that_raises_shows_only_its_own_frames(folder):
    with pytest.raises(registry.TaskError) as info:
        envs.make("mine.py:fails")
    assert "in inner" in info.value.rule
    assert "RuntimeError: no display" in info.value.rule
    assert "custom.py" not in info.value.rule
    assert info.value.__suppress_context__


def test_a_file_that_cannot_be_imported(folder):
    (folder / "broken.py").write_text("def f(:\n")
    with pytest.raises(registry.TaskError, match="SyntaxError"):
        envs.make("broken.py:f")
    (folder / "needs.py").write_text("import not_there\n")
    with pytest.raises(registry.TaskError, match="No module named 'not_there'"):
        envs.make("needs.py:f")


def test_missing_arguments_name_the_option(folder):
    (folder / "args.py").write_text("def f(size): pass\n")
    with pytest.raises(registry.TaskError, match=r"env\.custom\.kwargs"):
        envs.make("args.py:f")


def test_a_held_factory():
    custom.hold("python:test", lambda seed: Dummy("disc", seed=seed))
    assert "act_disc" in envs.make("python:test", seed=3).act_space


@pytest.mark.parametrize(
    ("options", "rule", "remedy"),
    [
        ({"render": True}, "env.custom.render True needs", "leave it False"),
        ({"vector": False}, "env.custom.vector False needs", "leave it True"),
    ],
)
@pytest.mark.parametrize("task", ["mine.py:Plain", "dms.py:Nested"])
def test_options_for_gymnasium_only(folder, task, options, rule, remedy):
    if task.startswith("dms"):
        pytest.importorskip("dm_env")
        (folder / "dms.py").write_text(DM_ENV)
    with pytest.raises(registry.TaskError) as info:
        envs.make(task, **options)
    assert rule in info.value.rule
    assert remedy in info.value.remedy


def test_gymnasium_classes(folder):
    pytest.importorskip("gymnasium")
    (folder / "gyms.py").write_text(
        "from gymnasium.envs.classic_control import CartPoleEnv as Pole\n"
    )
    assert check_env(lambda: envs.make("gyms.py:Pole")) > 5
    env = envs.make("gyms.py:Pole", render=True, vector=False)
    assert [k for k in env.obs_space if k == "image" or k == "obs"] == ["image"]
    with pytest.raises(registry.TaskError, match=r"env\.custom\.vector is False"):
        envs.make("gyms.py:Pole", vector=False)


DM_ENV = """
import dm_env
import numpy as np
from dm_env import specs

class Nested(dm_env.Environment):
    def __init__(self, discount=0.0):
        self._discount = discount
    def observation_spec(self):
        return {
            "a": {"b": specs.Array((2,), np.float64)},
            "c": [specs.DiscreteArray(3), specs.BoundedArray((), np.int32, 1, 4)],
            "frame": specs.BoundedArray((64, 64, 3), np.uint8, 0, 255),
        }
    def action_spec(self):
        return specs.BoundedArray((2,), np.float64, [-1, 0], [1, 3])
    def reset(self):
        self._count = 0
        return dm_env.restart(self._obs())
    def step(self, action):
        self.action_spec().validate(action)
        self._count += 1
        if self._count == 3 and self._discount:
            return dm_env.truncation(2.0, self._obs(), self._discount)
        if self._count == 3:
            return dm_env.termination(2.0, self._obs())
        return dm_env.transition(1.0, self._obs())
    def _obs(self):
        image = np.full((64, 64, 3), self._count, np.uint8)
        vector = np.zeros(2)
        return {"a": {"b": vector}, "c": [np.int32(2), np.int32(4)], "frame": image}
"""


def test_dm_env(folder):
    pytest.importorskip("dm_env")
    (folder / "dms.py").write_text(DM_ENV)
    assert check_env(lambda: envs.make("dms.py:Nested"), steps=60) > 10
    env = envs.make("dms.py:Nested")
    assert list(env.obs_space)[:4] == ["a/b", "c/0", "c/1", "frame"]
    for discount in (0.0, 0.9):
        env = envs.make("dms.py:Nested", kwargs={"discount": discount})
        obs = env.step({"reset": True})
        assert obs["is_first"]
        assert obs["reward"] == 0
        assert obs["c/1"] == 3
        while not obs["is_last"]:
            obs = env.step({"reset": False, "action": np.zeros(2, np.float32)})
        assert obs["reward"] == 2
        assert obs["is_terminal"] == (discount == 0)
