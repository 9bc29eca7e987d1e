"""The driver, serial and with processes."""

import os
import pathlib
import signal
import subprocess
import sys
import threading
from functools import partial as bind

import numpy as np
import psutil
import pytest

from embodied.core.driver import Driver, ProcessEnv
from embodied.core.random_agent import RandomAgent
from embodied.envs.dummy import Dummy
from embodied.testing import BrokenEnv, NumpyAgent, check_env


def make(length=10, size=(8, 8), task="both"):
    return Dummy(task, size=size, length=length)


def make_broken(fail_at):
    return BrokenEnv(make(), fail_at)


class SuicidalEnv(Dummy):
    def step(self, action):
        os.kill(os.getpid(), signal.SIGKILL)


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__("needs two arguments")


class UnpicklableEnv(Dummy):
    def step(self, action):
        raise UnpicklableError(1, 2)


class HangingEnv(Dummy):
    def step(self, action):
        threading.Event().wait()


def collect(driver, agent, **amount):
    batches = []
    driver.on_step(lambda steps, workers: batches.append((steps, list(workers))))
    driver.reset(agent.init_policy)
    driver(agent.policy, **amount)
    return batches


ORPHANAGE = """
import os
from functools import partial
from embodied.core.driver import ProcessEnv
from tests.embodied.core.test_driver import HangingEnv

env = ProcessEnv(partial(HangingEnv, "both"))
env.send({"reset": True})
print(env.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.process
def test_an_environment_that_hangs_does_not_outlive_a_killed_parent():
    root = pathlib.Path(__file__).parents[3]
    command = [sys.executable, "-c", ORPHANAGE]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = (
        psutil.Process(int(done.stdout))
        if psutil.pid_exists(int(done.stdout))
        else None
    )
    if left:
        left.wait(30)


@pytest.mark.process
@pytest.mark.parametrize("processes", [False, True])
def test_steps_of_all_environments_are_stacked(processes):
    driver = Driver([bind(make, 5), bind(make, 7)], processes)
    agent = RandomAgent(driver.obs_space, driver.act_space)
    batches = collect(driver, agent, steps=40)
    driver.close()
    assert len(batches) == 20
    steps, workers = batches[0]
    assert workers == [0, 1]
    assert steps["image"].shape == (2, 8, 8, 3)
    assert steps["act_cont"].shape == (2, 6)
    counts = np.stack([steps["count"] for steps, _ in batches])
    assert counts[:, 0].tolist() == (list(range(6)) * 4)[:20]
    assert counts[:, 1].tolist() == (list(range(8)) * 3)[:20]


@pytest.mark.process
@pytest.mark.parametrize("processes", [False, True])
def test_carry_stays_with_its_environment(processes):
    driver = Driver([bind(make, 5), bind(make, 7)], processes)
    agent = NumpyAgent(driver.obs_space, driver.act_space)
    batches = collect(driver, agent, steps=40)
    driver.close()
    for steps, _ in batches:
        np.testing.assert_array_equal(steps[agent.LATENT], steps["count"])


def test_runs_until_enough_episodes():
    driver = Driver([bind(make, 5), bind(make, 7)], processes=False)
    agent = RandomAgent(driver.obs_space, driver.act_space)
    batches = collect(driver, agent, episodes=3)
    assert sum(steps["is_last"].sum() for steps, _ in batches) == 3


def test_the_action_of_a_last_step_is_zero():
    driver = Driver([bind(make, 3)], processes=False)
    agent = RandomAgent(driver.obs_space, driver.act_space)
    for steps, _ in collect(driver, agent, steps=12):
        if steps["is_last"][0]:
            assert not steps["act_cont"].any()
        else:
            assert steps["act_cont"].any()


@pytest.mark.process
@pytest.mark.parametrize("processes", [False, True])
def test_an_exception_keeps_its_type(processes):
    driver = Driver([make, bind(make_broken, 3)], processes)
    agent = RandomAgent(driver.obs_space, driver.act_space)
    with pytest.raises(RuntimeError, match="broken on purpose") as info:
        collect(driver, agent, steps=20)
    driver.close()
    if processes:
        assert "in step\n    raise RuntimeError" in str(info.value.__cause__)


@pytest.mark.process
def test_an_exception_that_cannot_be_pickled_keeps_its_words():
    env = ProcessEnv(UnpicklableEnv)
    with pytest.raises(RuntimeError, match="UnpicklableError: needs two arguments"):
        env.step({"reset": True})
    env.close()


@pytest.mark.process
def test_a_killed_environment_is_reported():
    env = ProcessEnv(SuicidalEnv)
    with pytest.raises(RuntimeError, match="died with exit code -9"):
        env.step({"reset": True})
    env.close()


@pytest.mark.process
def test_a_factory_that_fails_is_reported():
    with pytest.raises(TypeError, match="unexpected keyword"):
        Driver([make, bind(make, nonsense=1)])


def test_wrong_actions_are_named():
    driver = Driver([make], processes=False)
    with pytest.raises(ValueError, match=r"returned actions \['wrong'\]"):
        driver(lambda carry, obs: (carry, {"wrong": np.zeros(1)}, {}), steps=1)


@pytest.mark.process
def test_process_env_is_an_environment():
    assert check_env(bind(ProcessEnv, make)) > 10
