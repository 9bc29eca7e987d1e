"""EnvPool on the real package: one instance serves many environments."""

import elements
import numpy as np
import pytest

pytest.importorskip("envpool")

from dreamerv3 import environments
from dreamerv3.settings import config as settings
from embodied import envs
from embodied.core.batchenv import SequentialEnvs, make_batch
from embodied.envs.envpool import Pool
from embodied.envs.registry import TaskError
from embodied.run.parallel.env import EnvWorker
from embodied.testing import check_env

pytestmark = pytest.mark.filterwarnings("ignore")
TASKS = ["Pong-v5", "CartPole-v1", "Pendulum-v1", "WalkerWalk-v1", "FrozenLake-v1"]


@pytest.mark.parametrize("name", TASKS)
def test_contract(name):
    check_env(lambda: envs.make(f"envpool_{name}"), steps=200)


def actions(pool, value, reset=False):
    count = len(pool)
    return {"action": np.full(count, value), "reset": np.full(count, reset)}


def test_every_environment_of_a_pool_keeps_the_contract():
    pool = Pool("CartPole-v1", [1, 2, 3])
    obs, last = pool.step(actions(pool, 0, True)), np.zeros(3, bool)
    assert obs["is_first"].all()
    lengths = set()
    for index in range(60):
        action = actions(pool, index % 2)
        action["action"][0] = 0  # Falls earlier than the others.
        action["reset"] = last.copy()
        obs = pool.step(action)
        assert (obs["is_first"] == last).all()
        assert not obs["reward"][last].any()
        assert (obs["is_last"] >= obs["is_terminal"]).all()
        last = obs["is_last"]
        lengths |= {int(i) for i in np.flatnonzero(last)}
    assert 0 in lengths
    assert obs["obs"].dtype == np.float32


def test_one_can_be_reset_while_the_others_go_on():
    pool = Pool("CartPole-v1", [1, 2, 3])
    pool.step(actions(pool, 0, True))
    before = pool.step(actions(pool, 1))
    action = {**actions(pool, 1), "reset": np.array([False, True, False])}
    after = pool.step(action)
    assert after["is_first"].tolist() == [False, True, False]
    assert after["reward"].tolist() == [1, 0, 1]
    assert (after["obs"][[0, 2], 1] > before["obs"][[0, 2], 1]).all()  # Velocity.


def test_a_seed_means_the_same_alone_and_in_a_pool():
    pool = Pool("CartPole-v1", [5, 7])
    rows = pool.step(actions(pool, 0, True))["obs"]
    alone = envs.make("envpool_CartPole-v1", seed=7)
    first = alone.step({"action": 0, "reset": True})["obs"]
    np.testing.assert_array_equal(rows[1], first)
    assert (rows[0] != rows[1]).any()


def test_actions_are_scaled_to_the_bounds():
    pool = Pool("Pendulum-v1", [0])
    assert pool.act_space["action"].low == -1
    np.testing.assert_array_equal(pool._decode(np.array([[-3.0]])), [[-2.0]])
    np.testing.assert_array_equal(pool._decode(np.array([[0.5]])), [[1.0]])


def test_atari_follows_the_protocol():
    pool = Pool("Breakout-v5", [0], size=(64, 80), gray=False)
    assert pool.obs_space["image"].shape == (64, 80, 3)
    assert pool.act_space["action"].high == 18
    spec = pool._env.config
    assert spec["repeat_action_probability"] == 0.25
    assert (spec["frame_skip"], spec["noop_max"], spec["stack_num"]) == (4, 30, 1)
    assert spec["max_episode_steps"] == 27000
    image = pool.step(actions(pool, 0, True))["image"][0]
    assert image.std(-1).max() > 20  # In colour.


def make_config(task):
    options = {"envpool": {"threads": 1}, "bounce": {"length": 5}}
    return elements.Config({"task": task, "seed": 0, "env": options})


def test_an_env_process_makes_one_pool():
    factory = environments.EnvFactory(make_config("envpool_CartPole-v1"))
    batch = make_batch(factory, (0, 1, 2))
    assert isinstance(batch, Pool)
    worker = EnvWorker(batch, (0, 1, 2), False)
    rows = worker.step(worker.reset_action())
    assert rows["envid"].tolist() == [0, 1, 2]
    assert rows["obs"].shape == (3, 4)
    worker.close()
    batch = make_batch(environments.EnvFactory(make_config("bounce_32")), (0, 1))
    assert isinstance(batch, SequentialEnvs)


def test_the_options_are_those_of_the_settings():
    defaults = settings.read_blocks().defaults
    keys = [key for key in defaults if key.startswith("env.envpool.")]
    options = {key.rpartition(".")[2]: defaults[key] for key in keys}
    assert len(options) == 6
    assert len(Pool("Pong-v5", [1], **options)) == 1


def test_unknown_tasks_name_the_nearest():
    with pytest.raises(TaskError, match="envpool_Pong-v5"):
        envs.make("envpool_Pong-v4")
