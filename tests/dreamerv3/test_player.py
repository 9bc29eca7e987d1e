"""Loading a trained agent and acting with it."""

import re

import elements
import numpy as np
import pytest

import dreamerv3
from dreamerv3 import main, player
from dreamerv3.settings.config import ConfigError
from embodied.core.checkpoint import CheckpointError


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    path = tmp_path_factory.mktemp("player") / "run"
    argv = ["--configs", "debug", "--task", "dummy_disc", "--script", "train"]
    argv += ["--env.dummy.size", "32", "32", "--run.steps", "80", "--logdir", str(path)]
    main.main([*argv, "--run.env_processes", "False", "--logger.outputs", "jsonl"])
    return path


@pytest.fixture(scope="module")
def greedy(logdir):
    return dreamerv3.load(logdir, **{"agent.eval_mode": "greedy"})


def observations(agent, count):
    """One observation of each of some environments, at the start of an episode."""
    steps = []
    for index in range(count):
        env = agent.make_env(index)
        steps.append(env.step(agent.reset()))
        env.close()
    return {key: np.stack([step[key] for step in steps]) for key in steps[0]}


def test_knows_what_it_was_trained_for(greedy):
    assert greedy.step == 80
    assert greedy.config.task == "dummy_disc"
    env = greedy.make_env()
    assert set(env.obs_space) == set(greedy.obs_space)
    env.close()


def test_plays_an_episode(greedy):
    env = greedy.make_env(length=7)
    action, lasts = greedy.reset(), []
    for _ in range(9):
        obs = env.step(action)
        lasts.append(bool(obs["is_last"]))
        action = greedy.act(obs)
        assert action["reset"] == obs["is_last"]
    env.close()
    assert lasts == [False] * 7 + [True, False]


def test_plays_with_continuous_actions(tmp_path):
    argv = ["--configs", "debug", "--task", "dummy_cont", "--script", "train"]
    argv += ["--env.dummy.size", "32", "32", "--run.steps", "40"]
    argv += ["--run.env_processes", "False", "--logger.outputs", "jsonl"]
    main.main([*argv, "--logdir", str(tmp_path)])
    agent = dreamerv3.load(tmp_path)
    env = agent.make_env()
    action = agent.reset()
    for _ in range(3):
        action = agent.act(env.step(action))  # The environment checks them.
        assert action["act_cont"].dtype == np.float32
    env.close()


def test_latents_are_kept_and_reset(greedy):
    first = observations(greedy, 1)
    later = {**first, "is_first": np.zeros(1, bool)}
    greedy.reset()
    greedy.act(first)
    fresh = greedy._carry.dyn_carry.deter.copy()
    greedy.act(later)
    kept = greedy._carry.dyn_carry.deter.copy()
    greedy.act(first)
    again = greedy._carry.dyn_carry.deter
    assert not np.array_equal(fresh, kept)
    np.testing.assert_allclose(fresh, again, rtol=1e-6)


def test_one_environment_is_a_batch_of_one(greedy):
    batch = observations(greedy, 3)
    greedy.reset()
    many, deter = greedy.act(batch), greedy._carry.dyn_carry.deter
    for index in range(3):
        greedy.reset()
        one = greedy.act({key: value[index] for key, value in batch.items()})
        assert {k: v.shape for k, v in one.items()} == {
            k: v[index].shape for k, v in many.items()
        }
        row = greedy._carry.dyn_carry.deter[0]
        np.testing.assert_allclose(row, deter[index], rtol=1e-5, atol=1e-6)


def test_the_first_call_is_a_start_without_is_first(greedy):
    obs = observations(greedy, 2)
    greedy.reset()
    greedy.act(obs)
    told = greedy._carry.dyn_carry.deter.copy()
    greedy.reset()
    greedy.act({k: v for k, v in obs.items() if k != "is_first"})
    np.testing.assert_allclose(told, greedy._carry.dyn_carry.deter, rtol=1e-6)


def test_the_number_of_environments_may_not_change(greedy):
    obs = observations(greedy, 2)
    greedy.reset()
    greedy.act(obs)
    with pytest.raises(ValueError, match=r"call reset\(\)"):
        greedy.act({key: value[:1] for key, value in obs.items()})


def test_wrong_ranks_name_the_key(greedy):
    obs = observations(greedy, 2)
    with pytest.raises(ValueError, match="'image' has shape"):
        greedy.act({**obs, "image": obs["image"][None]})
    with pytest.raises(ValueError, match=r"'image' has shape \(2, 32, 16, 3\); give"):
        greedy.act({**obs, "image": obs["image"][:, :, :16]})
    with pytest.raises(ValueError, match="some observations are batched"):
        greedy.act({**obs, "image": obs["image"][0]})


def test_actions_are_within_their_bounds():
    class Wild:
        """Acts as a normal distribution may: beyond the bounds of the space."""

        def __init__(self):
            self.obs_space = {"x": elements.Space(np.float32)}
            self.act_space = {
                "move": elements.Space(np.float32, (2,), -1, 1),
                "jump": elements.Space(np.int32, (), 0, 3),
            }

        def init_policy(self, size):
            return ()

        def policy(self, carry, obs, mode):
            move = np.float32([[-2.2, 0.1], [0.5, 2.6]])
            return carry, {"move": move, "jump": np.int32([0, 2])}, {}

    action = player.Player(Wild(), None, 0).act({"x": np.zeros(2, np.float32)})
    assert np.allclose(action["move"], [[-1, 0.1], [0.5, 1]])
    assert action["jump"].tolist() == [0, 2]


def test_what_is_no_observation_is_told(greedy):
    obs = observations(greedy, 1)
    greedy.reset()
    with pytest.raises(ValueError, match="a dictionary with the keys"):
        greedy.act(obs["image"])
    with pytest.raises(ValueError, match=r"lacks \['count', .*'vector'\]; it has"):
        greedy.act({"img": obs["image"]})
    with pytest.raises(ValueError, match="'image' has type float64"):
        greedy.act({**obs, "image": obs["image"] + 0.5})
    wide = {**obs, "image": obs["image"].astype(np.int64)}  # Also fits.
    assert greedy.act(wide)["act_disc"].shape == (1,)


def test_the_environment_is_not_needed(logdir, monkeypatch):
    def no_env(*args, **kwargs):
        raise AssertionError("an environment was made")

    monkeypatch.setattr(main, "make_env", no_env)
    assert dreamerv3.load(logdir).step == 80


def test_mistakes(logdir, tmp_path):
    with pytest.raises(CheckpointError, match=r"no config\.yaml"):
        dreamerv3.load(tmp_path)
    with pytest.raises(ConfigError, match="eval_mdoe"):
        dreamerv3.load(logdir, **{"agent.eval_mdoe": "greedy"})
    with pytest.raises(ConfigError, match="must be one of sample, greedy"):
        dreamerv3.load(logdir, **{"agent.eval_mode": "gredy"})
    with pytest.raises(AttributeError, match="no attribute 'laod'"):
        dreamerv3.laod  # noqa: B018


def test_the_platform_of_the_training_does_not_matter(logdir):
    path = logdir / "config.yaml"
    text = path.read_text()
    try:
        path.write_text(re.sub(r"\bplatform: \w+", "platform: cuda", text))
        assert player.read_config(logdir, {}).jax.platform == "auto"
        chosen = player.read_config(logdir, {"jax.platform": "cpu"})
        assert chosen.jax.platform == "cpu"
    finally:
        path.write_text(text)
