"""Atari on the real emulator: the protocol of the literature, frame by frame."""

import numpy as np
import pytest

pytest.importorskip("ale_py")

import ale_py

from embodied import envs
from embodied.envs.atari import Atari
from embodied.envs.registry import TaskError
from embodied.testing import check_env

RESET = {"action": 0, "reset": True}


def act(action):
    return {"action": action, "reset": False}


def frames_of(env):
    return env._ale.getEpisodeFrameNumber()


def play(env, action=0):
    """Step until the episode ends; all observations."""
    obs = [env.step(RESET)]
    while not obs[-1]["is_last"]:
        obs.append(env.step(act(action)))
    return obs


@pytest.mark.parametrize("task", ["atari_pong", "atari100k_ms_pacman"])
def test_contract(task):
    assert check_env(lambda: envs.make(task, length=200)) > 3


def test_the_settings_of_both_benchmarks():
    full, small = envs.make("atari_pong"), envs.make("atari100k_pong")
    assert full.obs_space["image"].shape == (96, 96, 1)
    assert small.obs_space["image"].shape == (64, 64, 3)
    assert (full.act_space["action"].high, small.act_space["action"].high) == (18, 6)
    assert full._ale.getFloat("repeat_action_probability") == 0.25
    assert small._ale.getFloat("repeat_action_probability") == 0


def test_each_action_is_held_for_four_frames():
    env = Atari("pong", noops=0)
    env.step(RESET)
    start = frames_of(env)
    env.step(act(1))
    assert frames_of(env) - start == 4


def test_images_are_the_maximum_of_two_frames_also_at_reset():
    env = Atari("space_invaders", sticky=False, size=(210, 160))
    raw = ale_py.ALEInterface()
    raw.setFloat("repeat_action_probability", 0)
    raw.loadROM(ale_py.roms.get_rom_path("space_invaders"))
    raw.reset_game()
    noops = int(np.random.default_rng(0).integers(31))
    assert noops >= 2
    shown = [raw.getScreenGrayscale() for _ in range(noops) if raw.act(0) == 0]
    expected = np.maximum(shown[-2], shown[-1])
    assert (shown[-2] != shown[-1]).any()
    np.testing.assert_array_equal(env.step(RESET)["image"][..., 0], expected)
    shown = [raw.getScreenGrayscale() for _ in range(4) if raw.act(3) is not None]
    expected = np.maximum(shown[-2], shown[-1])
    np.testing.assert_array_equal(env.step(act(3))["image"][..., 0], expected)


def test_episodes_start_with_different_numbers_of_noops():
    env = Atari("pong", sticky=False)
    counts = set()
    for _ in range(20):
        env.step(RESET)
        counts.add(frames_of(env))
    assert len(counts) > 5
    assert min(counts) >= 0
    assert max(counts) <= 30


def test_a_cut_episode_is_last_but_not_terminal():
    env = Atari("pong", length=200, noops=0)
    obs = play(env)
    assert len(obs) == 51
    assert obs[-1]["is_last"]
    assert not obs[-1]["is_terminal"]


def test_a_lost_life_means_nothing_by_default():
    obs = play(Atari("ms_pacman", size=(16, 16)))
    assert [bool(o["is_terminal"]) for o in obs].count(True) == 1
    assert obs[-1]["is_terminal"]


def test_a_lost_life_can_end_bootstrapping():
    obs = play(Atari("ms_pacman", size=(16, 16), lives="discount"))
    assert [bool(o["is_terminal"]) for o in obs].count(True) == 3
    assert [bool(o["is_last"]) for o in obs].count(True) == 1


def test_a_lost_life_can_end_the_episode_and_the_game_goes_on():
    env = Atari("ms_pacman", size=(16, 16), lives="reset")
    lives = []
    for _ in range(4):
        obs = play(env)
        assert obs[-1]["is_terminal"]
        lives.append(env._ale.lives())
    assert lives == [2, 1, 0, 2]


def test_both_ways_to_resize_agree():
    area, bilinear = (
        Atari("breakout", sticky=False, interpolation=way).step(RESET)["image"]
        for way in ("area", "bilinear")
    )
    assert np.abs(area.astype(float) - bilinear).mean() < 5


def test_same_seed_same_episode():
    def rollout(seed):
        env = Atari("pong", seed=seed)
        rng = np.random.default_rng(0)
        first = env.step(RESET)["image"]
        return [first, *(env.step(act(rng.integers(18)))["image"] for _ in range(30))]

    np.testing.assert_array_equal(rollout(1), rollout(1))
    assert (np.asarray(rollout(1)) != np.asarray(rollout(2))).any()


def test_names_of_the_literature_are_known():
    assert envs.make("atari_james_bond").act_space["action"].high == 18
    with pytest.raises(TaskError, match="did you mean atari_breakout"):
        envs.make("atari_brekout")
