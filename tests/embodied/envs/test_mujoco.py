"""dm_control on the real package: vectors and images without a screen."""

import importlib.util
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("dm_control")

from embodied import envs
from embodied.envs import headless
from embodied.envs.registry import TaskError
from embodied.testing import check_env


@pytest.fixture(scope="module", autouse=True)
def renderer():
    """Skips what draws where no library can; CI has both."""
    try:
        return headless.choose()
    except headless.NoRendererError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def action(env, reset=False):
    space = env.act_space["action"]
    return {"action": np.zeros(space.shape, space.dtype), "reset": np.bool_(reset)}


@pytest.mark.parametrize("name", ["walker_walk", "cup_catch", "quadruped_run"])
def test_proprio_contract(name):
    check_env(lambda: envs.make(f"dmc_{name}", image=False), steps=50)


def test_vision_contract():
    make = {"proprio": False, "repeat": 2, "size": (32, 48)}
    check_env(lambda: envs.make("dmc_cartpole_swingup", **make), steps=20)


def test_what_is_observed():
    both = envs.make("dmc_walker_walk", size=(16, 16))
    assert set(both.obs_space) >= {"orientations", "height", "velocity", "image"}
    image = both.step(action(both, reset=True))["image"]
    assert image.shape == (16, 16, 3)
    assert image.std() > 5
    both.close()
    only = envs.make("dmc_walker_walk", proprio=False)
    assert set(only.obs_space) - {"image"} == set(envs.make("dummy_disc").obs_space) - {
        *("image", "vector", "token", "count", "float2d", "int2d")
    }
    only.close()
    with pytest.raises(TaskError, match="nothing is observed"):
        envs.make("dmc_walker_walk", proprio=False, image=False)


def test_episodes_last_a_thousand_simulator_steps_and_are_not_terminal():
    env = envs.make("dmc_cartpole_balance", image=False, repeat=4)
    obs, count, score = env.step(action(env, reset=True)), 0, 0.0
    while not obs["is_last"]:
        obs, count = env.step(action(env)), count + 1
        score += obs["reward"]
        assert 0 <= obs["reward"] <= 4
    assert count == 250
    assert score > 100
    assert not obs["is_terminal"]


def test_same_seed_same_start():
    def start(seed):
        env = envs.make("dmc_cheetah_run", seed=seed, image=False)
        return env.step(action(env, reset=True))["position"]

    np.testing.assert_array_equal(start(1), start(1))
    assert (start(1) != start(2)).any()


def test_unknown_tasks_name_the_nearest():
    with pytest.raises(TaskError, match="did you mean dmc_walker_walk"):
        envs.make("dmc_walker_wlak", image=False)


@pytest.mark.parametrize("name", ["ant_maze_m", "humanoid_target", "rodent_gaps"])
def test_loconav_contract(name):
    check_env(lambda: envs.make(f"loconav_{name}"), steps=6)


def test_ants_see_the_maze():
    env = envs.make("loconav_ant_maze_s")
    obs = env.step(action(env, reset=True))
    assert obs["image"].shape == (64, 64, 3)
    assert obs["image"].std() > 5
    assert obs["walker/joints_pos"].shape == (8,)
    env.close()


def test_memory_maze():
    if not importlib.util.find_spec("memory_maze"):  # Importing it needs gym.
        pytest.skip("memory-maze is not installed")
    check_env(lambda: envs.make("memmaze_9x9"), steps=6)
    env = envs.make("memmaze_15x15", layout=True, size=(32, 32))
    obs = env.step(action(env, reset=True))
    assert obs["image"].shape == (32, 32, 3)
    assert obs["maze_layout"].shape == (15, 15)
    assert env.act_space["action"].high == 6
    env.close()
    with pytest.raises(TaskError, match="square"):
        envs.make("memmaze_9x9", size=(32, 64))


def run_choose(required, **variables):
    code = f"from embodied.envs import headless; print(headless.choose({required}))"
    kept = {k: v for k, v in os.environ.items() if k != headless.VARIABLE}
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.process
@pytest.mark.parametrize("backend", headless.BACKENDS)
def test_both_libraries_work_where_they_are_installed(backend):
    reason = headless.attempt(backend)
    if reason and not os.environ.get("CI"):
        pytest.skip(reason)
    assert reason == ""


@pytest.mark.process
def test_what_the_user_chose_is_kept():
    done = run_choose(True, MUJOCO_GL="glfw")
    assert done.stdout.strip() == "glfw"


@pytest.mark.process
def test_a_machine_without_any_library_is_explained(monkeypatch):
    monkeypatch.delenv(headless.VARIABLE)
    monkeypatch.setattr(headless, "BACKENDS", ("nosuch",))
    with pytest.raises(headless.NoRendererError, match="libosmesa6") as info:
        headless.choose()
    assert "nosuch: " in str(info.value)
    assert headless.choose(required=False) == headless.OFF
    with pytest.raises(TaskError, match="forbids drawing"):
        headless.require("dmc_walker_walk")
