"""The Behaviour Suite on the real package."""

import numpy as np
import pytest

pytest.importorskip("bsuite")

from bsuite import sweep

from embodied import envs
from embodied.envs.registry import TaskError
from embodied.testing import check_env

EXPERIMENTS = sorted({name.split("/")[0] for name in sweep.SWEEP})
OFFLINE = [name for name in EXPERIMENTS if not name.startswith("mnist")]


@pytest.mark.parametrize("name", OFFLINE)
def test_contract(name):
    check_env(lambda: envs.make(f"bsuite_{name}/0"), steps=100)


def test_there_are_23_experiments():
    assert len(EXPERIMENTS) == 23


def test_catch_ends_after_nine_moves_with_its_regret_logged():
    env = envs.make("bsuite_catch/0")
    assert env.obs_space["obs"].shape == (10, 5)
    obs, count = env.step({"action": 0, "reset": True}), 0
    while not obs["is_last"]:
        obs, count = env.step({"action": 0, "reset": False}), count + 1
    assert count == 9
    assert obs["is_terminal"]
    assert abs(obs["reward"]) == 1
    assert obs["log/total_regret"] == 1 - obs["reward"]


def test_results_are_recorded_for_the_suites_own_analysis(tmp_path):
    env = envs.make("bsuite_catch/3", record=str(tmp_path))
    for index in range(40):
        env.step({"action": 0, "reset": index == 0})
    env.close()
    [file] = tmp_path.glob("*.csv")
    assert "total_regret" in file.read_text()


def test_unknown_settings_are_explained():
    with pytest.raises(TaskError, match="experiment/setting"):
        envs.make("bsuite_catch")


def test_data_that_cannot_be_fetched_is_explained(monkeypatch):
    import bsuite

    def offline(name, settings):
        raise OSError("no route to host")

    monkeypatch.setattr(bsuite, "load", offline)
    with pytest.raises(TaskError, match="could not be fetched"):
        envs.make("bsuite_mnist/0")


def test_same_seed_same_episodes():
    def starts(seed):
        env = envs.make("bsuite_catch/1", seed=seed)
        first = {"action": 0, "reset": True}
        return np.stack([env.step(first)["obs"] for _ in range(9)])

    np.testing.assert_array_equal(starts(5), starts(5))
    assert (starts(5) != starts(6)).any()
