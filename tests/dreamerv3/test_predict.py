"""Acting in the original Gymnasium environment: every space, one and many."""

import json
import pathlib

import jax
import numpy as np
import pytest
from jax import export

import dreamerv3
from dreamerv3 import main
from dreamerv3.commands import export as command
from dreamerv3.commands.base import CommandError
from embodied.core import runfiles
from embodied.core.wrappers import SpaceError
from embodied.envs.original import OriginalError

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces as gs  # noqa: E402

NESTED = """
import gymnasium
import numpy as np
from gymnasium import spaces as gs


class Nested(gymnasium.Env):
    observation_space = gs.Dict({
        "camera": gs.Box(0, 255, (40, 52, 3), np.uint8),
        "depth": gs.Box(0.0, 1.0, (1, 24, 32), np.float32),
        "joints": gs.Box(-2, 2, (3,), np.float64),
        "gear": gs.Discrete(4, start=-1),
        "buttons": gs.MultiDiscrete([2, 3]),
        "pair": gs.Tuple([gs.MultiBinary(2), gs.Box(0, 9, (2,), np.int32)]),
    })
    action_space = gs.Dict({
        "force": gs.Box(np.float32([-10, 0]), np.float32([30, 5])),
        "mode": gs.Discrete(3, start=5),
        "keys": gs.MultiDiscrete([2, 4]),
        "both": gs.Tuple([gs.MultiBinary(2), gs.Box(-1, 1, (1,), np.float64)]),
    })

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self.count = 0
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.count += 1
        return self.observation_space.sample(), 1.0, self.count >= 5, False, {}
"""
ARGS = ["--configs", "debug", "--script", "train", "--run.env_processes", "False"]
ARGS += ["--logger.outputs", "jsonl", "--run.steps", "40"]


def train(task, path, *flags):
    main.main([*ARGS, "--task", task, "--logdir", str(path), *flags])
    return path


@pytest.fixture(scope="module")
def nested(tmp_path_factory):
    """A run on an environment with spaces of every kind."""
    path = tmp_path_factory.mktemp("nested")
    (path / "nested.py").write_text(NESTED)
    resize = ("--env.custom.resize", "16", "16")
    return train(f"{path / 'nested.py'}:Nested", path / "run", *resize)


@pytest.fixture(scope="module")
def agent(nested):
    return dreamerv3.load(nested)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    path = tmp_path_factory.mktemp("pendulum")
    return dreamerv3.load(train("gymnasium_Pendulum-v1", path / "run"))


def latents(state):
    return np.asarray(state[0].dyn_carry.deter)


@pytest.mark.compile
def test_one_environment(agent):
    space, action_space = agent.original.observation_space, agent.original.action_space
    assert space["camera"].shape == (40, 52, 3)
    space.seed(0)
    state = None
    for _ in range(4):
        action, state = agent.predict(space.sample(), state)
        assert action_space.contains(action), action


@pytest.mark.compile
def test_a_batch_is_what_a_vector_takes_and_gives(agent):
    make = [lambda: original_env(agent.make_env())] * 3
    env = gymnasium.vector.SyncVectorEnv(make)
    obs, _ = env.reset(seed=0)
    state, starts = None, np.ones(3, bool)
    for _ in range(7):
        action, state = agent.predict(obs, state, episode_start=starts)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, _ = env.step(action)
        starts = terminated | truncated
    assert latents(state).shape[0] == 3
    env.close()


def original_env(env):
    while not hasattr(env, "_env"):
        env = env.env
    return env._env


@pytest.mark.compile
def test_it_sees_what_it_saw_in_training(agent):
    """The conversion is that of the environment the agent was trained in."""
    env, value = agent.make_env(), agent.original.observation_space.sample()
    original_env(env).reset = lambda seed=None, options=None: (value, {})
    seen = env.step(agent.reset())
    batch, single = agent.original.encode_batch(value)
    assert single
    assert {"camera", "depth", "gear", "buttons/0", "pair/0"} < set(batch)
    assert batch["camera"].shape == (1, 16, 16, 3)
    for key, rows in batch.items():
        np.testing.assert_array_equal(rows[0], seen[key], err_msg=key)
        assert rows.dtype == seen[key].dtype
    env.close()


@pytest.mark.compile
def test_actions_are_rescaled(agent):
    space = agent.act_space
    action = {k: np.zeros(v.shape, v.dtype) for k, v in space.items() if k != "reset"}
    decoded = agent.original.decode({**action, "force": np.float32([-1, 1])})
    np.testing.assert_allclose(decoded["force"], [-10, 5])
    decoded = agent.original.decode({**action, "force": np.float32([0, 9])})
    np.testing.assert_allclose(decoded["force"], [10, 5])
    assert decoded["mode"] == 5


@pytest.mark.compile
def test_latents_start_anew_where_episodes_do(pendulum):
    env = gymnasium.make_vec("Pendulum-v1", 2, vectorization_mode="sync")
    obs, _ = env.reset(seed=0)
    _, first = pendulum.predict(obs)
    _, second = pendulum.predict(obs, first)
    _, third = pendulum.predict(obs, second, episode_start=[False, True])
    _, fourth = pendulum.predict(obs, second)
    fresh, kept, reset, both = map(latents, (first, second, third, fourth))
    assert not np.array_equal(fresh, kept)
    np.testing.assert_allclose(reset[1], fresh[1], rtol=1e-5)
    np.testing.assert_allclose(reset[0], both[0], rtol=1e-5)
    assert not np.allclose(reset[1], both[1])
    env.close()


@pytest.mark.compile
def test_deterministic_takes_the_most_likely_action(pendulum):
    modes = []
    policy = pendulum.agent.policy
    pendulum.agent.policy = lambda *args: modes.append(args[2]) or policy(*args)
    pendulum.predict(np.zeros(3), deterministic=True)
    pendulum.predict(np.zeros(3))
    del pendulum.agent.policy
    assert modes == ["greedy", "eval"]
    assert pendulum.agent.runner.greedy("greedy")
    assert not pendulum.agent.runner.greedy("eval")


WRONG = {
    r"observation lacks 'gear'": {"gear": None},
    r"'gear' is outside of -1 to 2: 3": {"gear": 3},
    r"'joints' is not finite: nan at \[1\]": {"joints": [0, np.nan, 0]},
    r"'joints' is outside of -2 to 2: 7.0 at \[2\]": {"joints": [0.0, 0.0, 7.0]},
    r"'camera' has shape \(9, 9, 3\)": {"camera": np.zeros((9, 9, 3), np.uint8)},
    r"'buttons' is outside of .*: 3 at \[1\]": {"buttons": [0, 3]},
    r"is not a tuple: int": {"pair": 3},
    r"'camera' is float64, its space says uint8": {"camera": np.full((40, 52, 3), 0.5)},
}


@pytest.mark.compile
@pytest.mark.parametrize("words", WRONG)
def test_values_outside_the_space_are_rejected(agent, words):
    obs = {**agent.original.observation_space.sample(), **WRONG[words]}
    obs = {key: value for key, value in obs.items() if value is not None}
    with pytest.raises(SpaceError, match=words):
        agent.predict(obs)


@pytest.mark.compile
def test_all_faults_are_named_at_once(agent):
    obs = {**agent.original.observation_space.sample(), "gear": 3}
    del obs["joints"]
    with pytest.raises(ValueError, match=r"lacks 'joints'.*\n.*'gear' is") as info:
        agent.predict(obs)
    assert "camera" in str(info.value)  # What it has.


@pytest.mark.compile
def test_wrong_counts(pendulum):
    _, state = pendulum.predict(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="there are 3 observations"):
        pendulum.predict(np.zeros((3, 3), np.float32), state)
    with pytest.raises(ValueError, match=r"episode_start has shape \(3,\)"):
        pendulum.predict(np.zeros((2, 3), np.float32), state, episode_start=[True] * 3)
    with pytest.raises(SpaceError, match="environment 1: observation 'obs' is not"):
        pendulum.predict(np.float32([[0, 0, 0], [0, np.nan, 0]]))


@pytest.mark.compile
def test_the_exported_policy_converts_as_well(nested):
    agent = dreamerv3.load(nested, **{"agent.eval_mode": "greedy"})
    program, about = command.export_policy(agent, 2, ["cpu", "cuda"], original=True)
    assert about["original"]
    assert about["action"]["kind"] == "Dict"
    policy = export.deserialize(bytearray(program))
    carry = [np.zeros(x["shape"], x["dtype"]) for x in about["carry"]]
    space = gymnasium.vector.utils.batch_space(agent.original.observation_space, 2)
    space.seed(3)
    obs = space.sample()
    _, action = policy.call(carry, obs, np.ones(2, bool), np.uint32(0))
    ours, _ = agent.predict(obs)
    np.testing.assert_allclose(action["force"], ours["force"], rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(action["mode"], ours["mode"])
    np.testing.assert_array_equal(action["keys"], ours["keys"])
    np.testing.assert_array_equal(action["both"][0], ours["both"][0])
    mine = agent.original.encode_batch(obs)[0]
    traced = jax.jit(jax.vmap(agent.original.encode))(obs)
    for key, rows in mine.items():
        np.testing.assert_allclose(rows, traced[key], atol=1, err_msg=key)


@pytest.mark.compile
def test_runs_without_the_file_ask_the_task(pendulum):
    path = pendulum.config.logdir
    file = pathlib.Path(path) / runfiles.ORIGINAL
    text = file.read_text()
    try:
        file.unlink()
        older = dreamerv3.load(path)
        assert older.original.action_space == gs.Box(-2, 2, (1,))
        file.write_text(json.dumps({**json.loads(text), "version": 99}))
        with pytest.raises(OriginalError, match="has format 99, this version"):
            dreamerv3.load(path).original  # noqa: B018
    finally:
        file.write_text(text)


def test_other_suites_have_no_original(tmp_path):
    path = train("dummy_disc", tmp_path / "run", "--random_agent", "True")
    assert not (path / runfiles.ORIGINAL).exists()
    agent = dreamerv3.load(path)
    with pytest.raises(OriginalError, match=r"not an environment of Gymnasium: use ag"):
        agent.predict(np.zeros(3))


def test_rendered_images_are_not_in_observations(tmp_path):
    flags = ("--random_agent", "True", "--env.gymnasium.render", "True")
    path = train("gymnasium_CartPole-v1", tmp_path / "run", *flags)
    with pytest.raises(OriginalError, match="sees rendered images"):
        dreamerv3.load(path).predict(np.zeros(4, np.float32))


def test_exporting_the_original_of_another_suite(tmp_path, monkeypatch):
    def refuse(*args):
        raise OriginalError("task 'bounce_32' is not an environment of Gymnasium")

    monkeypatch.setattr(command, "export_policy", refuse)
    monkeypatch.setattr(command.player, "load", lambda *a, **k: _Loaded())
    with pytest.raises(CommandError, match="--original: task 'bounce_32' is not"):
        command.run(["logdir", "--original", "-o", str(tmp_path / "policy.zip")])


class _Loaded:
    class config:  # noqa: N801
        random_agent = False
