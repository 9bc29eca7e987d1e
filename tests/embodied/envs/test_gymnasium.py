"""Gymnasium environments: every space, every option, and words where one is wrong."""

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces as gs  # noqa: E402

from embodied import envs  # noqa: E402
from embodied.core import wrappers  # noqa: E402
from embodied.envs import registry  # noqa: E402
from embodied.envs.gymnasium import Gymnasium, adapt  # noqa: E402
from embodied.testing import check_env  # noqa: E402

TASKS = ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "Taxi-v4", "FrozenLake-v1"]


class Fake(gymnasium.Env):
    """Shows samples of a space and keeps the actions it got."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, obs, action, length=5, terminate=True):
        self.observation_space, self.action_space = obs, action
        self._length, self._terminate = length, terminate
        self.actions = []
        self.shown = None

    def reset(self, seed=None, options=None):
        if seed is not None:
            self.observation_space.seed(seed)
        self._count = 0
        return self._sample(), {}

    def step(self, action):
        self.actions.append(action)
        self._count += 1
        end = self._count >= self._length
        ends = (end, False) if self._terminate else (False, end)
        return self._sample(), 1.0, *ends, {}

    def render(self):
        return np.full((20, 30, 3), self._count, np.uint8)

    def _sample(self):
        self.shown = self.observation_space.sample()
        return self.shown


SPACES = {
    "float64": gs.Box(-np.inf, np.inf, (3,), np.float64),
    "half bounded": gs.Box(np.float32([0, -np.inf]), np.float32([np.inf, 1]), (2,)),
    "huge bounds": gs.Box(-1.7e308, 1.7e308, (2,), np.float64),
    "scalar": gs.Box(0, 1, ()),
    "tensor": gs.Box(-1, 1, (2, 3, 4)),
    "int box": gs.Box(-2, 5, (2, 3), np.int64),
    "wide int box": gs.Box(-(2**31), 2**31 - 1, (2,), np.int32),
    "bytes": gs.Box(0, 255, (128,), np.uint8),
    "start": gs.Discrete(3, start=-5),
    "one": gs.Discrete(1),
    "multi": gs.MultiDiscrete([4, 4]),
    "uneven": gs.MultiDiscrete([2, 3, 5], start=[1, 0, -1]),
    "grid": gs.MultiDiscrete([[2, 3], [2, 3]]),
    "binary": gs.MultiBinary(4),
    "tuple": gs.Tuple([gs.Discrete(2), gs.Box(0, 1, (2,))]),
    "dict": gs.Dict(
        {"a": gs.Discrete(2), "b": gs.Dict({"c": gs.Box(0, 1), "d": gs.Discrete(3)})}
    ),
    "taken": gs.Dict({"reward": gs.Discrete(2), "seq": gs.Box(0, 1, (2,))}),
}
WITHOUT_ACTION = {"wide int box", "bytes"}  # As actions they would be useless.


@pytest.mark.parametrize("name", TASKS)
def test_contract(name):
    check_env(lambda: envs.make(f"gymnasium_{name}"))


@pytest.mark.parametrize("name", [s for s in SPACES if s != "huge bounds"])
def test_observations_of_every_space(name):
    def make():
        return Gymnasium(Fake(SPACES[name], gs.Discrete(2)))

    assert check_env(make, steps=50) > 5


@pytest.mark.parametrize("name", [s for s in SPACES if s not in WITHOUT_ACTION])
def test_actions_of_every_space(name):
    space = SPACES[name]
    fake = Fake(gs.Box(0, 1), space)
    env = Gymnasium(fake)
    check_env(lambda: env, steps=90)
    assert len(fake.actions) > 50
    for action in fake.actions:
        assert space.contains(action), action
    if isinstance(space, gs.Discrete):
        expected = set(range(space.start, space.start + space.n))
        assert {int(action) for action in fake.actions} == expected


@pytest.mark.parametrize("name", ["int box", "start", "uneven", "grid", "tuple"])
def test_values_survive_the_way_there_and_back(name):
    env = Gymnasium(Fake(SPACES[name], SPACES[name]))
    for _ in range(20):
        value = SPACES[name].sample()
        encoded = env._value.encode(value)
        names = dict(zip(encoded, env._action.spaces, strict=True))
        back = env._action.decode({names[k]: v for k, v in encoded.items()})
        pairs = [(value, back)] if name != "tuple" else zip(value, back, strict=True)
        for left, right in pairs:
            np.testing.assert_array_equal(left, right)


def test_keys_of_nested_spaces():
    env = Gymnasium(Fake(SPACES["dict"], SPACES["tuple"]))
    assert list(env.obs_space)[:3] == ["a", "b/c", "b/d"]
    assert list(env.act_space) == ["action/0", "action/1", "reset"]


def test_a_name_that_is_taken_moves_under_obs():
    env = Gymnasium(Fake(SPACES["taken"], gs.Dict({"move": gs.Discrete(2)})))
    assert {"obs/reward", "obs/seq"} < set(env.obs_space)
    both = gs.Dict({"move": gs.Discrete(2)})
    env = Gymnasium(Fake(both, both))
    assert "obs/move" in env.obs_space
    assert "move" in env.act_space


IMAGES = {
    (64, 48, 3): (64, 48, 3),
    (64, 48): (64, 48, 1),
    (3, 64, 48): (64, 48, 3),
    (4, 64, 48): (64, 48, 4),
    (4, 64, 48, 3): (64, 48, 12),
    (2, 3, 64, 48): (64, 48, 6),
}


@pytest.mark.parametrize("shape", IMAGES)
def test_images_of_every_layout(shape):
    fake = Fake(gs.Box(0, 255, shape, np.uint8), gs.Discrete(2))
    env = Gymnasium(fake)
    image = env.step({"reset": True})["image"]
    assert image.shape == IMAGES[shape] == env.obs_space["image"].shape
    assert sorted(image.ravel()) == sorted(fake.shown.ravel())
    told = " ".join(env.notes)
    assert ("rearranged" in told) == (shape != IMAGES[shape])
    check_env(lambda: env, steps=10)


def test_channels_first_are_moved_not_mixed():
    fake = Fake(gs.Box(0, 255, (3, 64, 48), np.uint8), gs.Discrete(2))
    image = Gymnasium(fake).step({"reset": True})["image"]
    np.testing.assert_array_equal(image[..., 1], fake.shown[1])


def test_float_images_become_bytes():
    fake = Fake(gs.Box(-1, 1, (32, 32, 3)), gs.Discrete(2))
    env = Gymnasium(fake)
    image = env.step({"reset": True})["image"]
    np.testing.assert_allclose(image, (fake.shown + 1) * 127.5, atol=0.51)
    assert "uint8 from 0 to 255" in env.notes[0]


def test_small_arrays_of_bytes_are_numbers():
    env = Gymnasium(Fake(gs.Box(0, 255, (7, 7, 3), np.uint8), gs.Discrete(2)))
    assert env.obs_space["obs"].dtype == np.float32
    assert env.obs_space["obs"].shape == (147,)


@pytest.mark.parametrize("terminate", [True, False])
def test_terminated_and_truncated(terminate):
    env = Gymnasium(Fake(gs.Box(0, 1), gs.Discrete(2), 2, terminate))
    env.step({"reset": True})
    first = env.step({"reset": False, "action": 0})
    last = env.step({"reset": False, "action": 0})
    assert not first["is_last"]
    assert last["is_last"]
    assert last["is_terminal"] == terminate
    assert env.step({"reset": False, "action": 0})["is_first"]


def test_render_gives_image_and_vector_or_only_the_image():
    env = envs.make("gym_CartPole-v1", render=True)
    assert env.obs_space["image"].shape == (64, 64, 3)
    assert env.obs_space["obs"].shape == (4,)
    assert "400x600" in " ".join(env.notes)
    check_env(lambda: env, steps=10)
    env = envs.make("gym_CartPole-v1", render=True, vector=False, resize=(0, 0))
    assert env.obs_space["image"].shape == (400, 600, 3)
    assert "obs" not in env.obs_space
    check_env(lambda: env, steps=5)


def test_a_missing_package_for_pictures_is_named(monkeypatch):
    def draw(self):
        raise gymnasium.error.DependencyNotInstalled("pygame is not installed")

    monkeypatch.setattr("gymnasium.envs.classic_control.CartPoleEnv.render", draw)
    env = envs.make("gym_CartPole-v1", shown=True)
    env.step({"reset": True, "action": 0})
    with pytest.raises(registry.TaskError, match=r"CartPole-v1.*pygame is not inst"):
        env.render()


@pytest.mark.parametrize(
    ("method", "result", "words"),
    [
        ("reset", 0, "reset returned one value, .* tuple of 2: observation, info"),
        ("step", (0, 0.0, False, {}), "step returned 4 values, .* terminated, trunc"),
    ],
)
def test_the_old_gym_is_recognised(monkeypatch, method, result, words):
    env = Fake(gs.Discrete(2), gs.Discrete(2))
    adapted = adapt("fake", env)
    adapted.step({"reset": True, "action": 0})
    monkeypatch.setattr(env, method, lambda *args, **kwargs: result)
    with pytest.raises(wrappers.SpaceError, match=words):
        adapted.step({"reset": method == "reset", "action": 0})


def test_gray():
    env = envs.make("gym_CartPole-v1", render=True, gray=True, resize=(32, 48))
    assert env.obs_space["image"].shape == (32, 48, 1)
    check_env(lambda: env, steps=10)


def test_gray_weighs_colours():
    env = Gymnasium(Fake(gs.Box(0, 255, (16, 16, 3), np.uint8), gs.Discrete(2)))
    gray = wrappers.GrayImage(env)
    image = gray.step({"reset": True})["image"]
    expected = env._env.shown @ np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(image[..., 0], expected, atol=0.51)


def test_repeat_and_time_limit():
    env = envs.make("gym_Pendulum-v1", repeat=4, time_limit=7)
    obs = env.step({"reset": True})
    steps = 0
    while not obs["is_last"]:
        obs = env.step({"reset": False, "action": np.zeros(1, np.float32)})
        steps += 1
    assert steps == 7
    assert not obs["is_terminal"]


def test_a_time_limit_may_be_longer_than_that_of_the_id():
    env = envs.make("gym_Pendulum-v1", time_limit=300)  # Its own is 200.
    env.step({"reset": True})
    action = {"reset": False, "action": np.zeros(1, np.float32)}
    lasts = [env.step(action)["is_last"] for _ in range(300)]
    assert sum(lasts) == 1
    assert lasts[-1]


def test_kwargs_as_json_or_dictionary():
    for kwargs in ('{"map_name": "8x8"}', {"map_name": "8x8"}):
        env = envs.make("gymnasium_FrozenLake-v1", kwargs=kwargs)
        assert env.obs_space["obs"].high == 64


def test_a_class_that_takes_a_render_mode_but_draws_nothing():
    class Blind(Fake):
        def render(self):
            raise NotImplementedError

    env = Gymnasium(Blind(gs.Box(0, 1, (2,)), gs.Discrete(2)))
    assert env.render() is None


def test_same_seed_same_episode_also_with_render():
    def rollout(seed):
        env = envs.make("gym_CartPole-v1", seed=seed, render=True)
        return env.step({"reset": True})["obs"]

    np.testing.assert_array_equal(rollout(3), rollout(3))
    assert (rollout(3) != rollout(4)).any()


class Shows(Fake):
    """Shows the same value at each step."""

    def __init__(self, space, value):
        super().__init__(space, gs.Discrete(2))
        self._shown_value = value

    def _sample(self):
        return self._shown_value


NOTED = {
    "is outside of 0 to 1: 2.0 at [0], and 1 more": np.full(2, 2, np.float32),
    "is float64, its space says float32: [0.5 0.5]": np.full(2, 0.5),
}


@pytest.mark.parametrize("words", NOTED)
def test_what_the_agent_can_take_is_noted_once(words):
    env = Gymnasium(Shows(gs.Box(0, 1, (2,)), NOTED[words]))
    for _ in range(3):
        env.step({"reset": True})
    (note,) = env.notes
    assert words in note
    assert f"at step 0, {__file__}:" in note
    assert "Fake.reset" in note


REJECTED = {
    "'a' is not finite: nan at [1], at step 0": {"a": np.float32([0, np.nan])},
    "'b' is outside of 0 to 3: 4, at step 0": {"b": 4},
    "observation lacks 'b': it has 'a'": {"b": None},
    "'a' has shape (3,), its space says (2,)": {"a": np.zeros(3, np.float32)},
    "'b' is float64, its space says int64: 0.5": {"b": 0.5},
}


@pytest.mark.parametrize("words", REJECTED)
def test_what_the_agent_cannot_take_is_rejected(words):
    value = {"a": np.zeros(2, np.float32), "b": 3, **REJECTED[words]}
    value = {key: part for key, part in value.items() if part is not None}
    space = gs.Dict({"a": gs.Box(-1, 1, (2,)), "b": gs.Discrete(4)})
    with pytest.raises(wrappers.SpaceError) as info:
        Gymnasium(Shows(space, value)).step({"reset": True})
    assert words in str(info.value)
    assert f"{__file__}:" in str(info.value)


def test_all_faults_are_rejected_together():
    parts = {"a": gs.Box(-1, 1, (2,)), "b": gs.Discrete(4), "c": gs.Discrete(2)}
    value = {"a": np.float32([0, np.nan]), "b": -1}
    with pytest.raises(wrappers.SpaceError) as info:
        Gymnasium(Shows(gs.Dict(parts), value)).step({"reset": True})
    assert [line.split(",")[0] for line in str(info.value).splitlines()] == [
        "observation lacks 'c': it has 'a'",
        "observation 'a' is not finite: nan at [1]",
        "observation 'b' is outside of 0 to 3: -1",
    ]


def refusal(task, **options):
    with pytest.raises(registry.TaskError) as info:
        envs.make(task, **options)
    return info.value


@pytest.mark.parametrize("name", ["CardPole-v1", "cartpole-v1", "CartPole-v7"])
def test_an_unknown_id_names_the_nearest(name):
    assert "did you mean gymnasium_CartPole-v1" in refusal(f"gym_{name}").remedy


@pytest.mark.parametrize(
    ("task", "meant"),
    [
        ("CartPole-v1", "gymnasium_CartPole-v1"),
        ("ALE/Pong-v5", "atari_pong"),
        ("gymnasium_ALE/SpaceInvaders-v5", "atari_space_invaders"),
        ("MiniGrid-Empty-5x5-v0", "gymnasium_MiniGrid-Empty-5x5-v0"),
        ("gymnasum_CartPole-v1", "gymnasium_CartPole-v1"),
    ],
)
def test_an_id_without_its_suite_is_recognised(task, meant):
    assert f"did you mean {meant}?" in refusal(task).remedy


def test_wrong_arguments_are_explained():
    error = refusal("gym_CartPole-v1", kwargs={"size": 3})
    assert "unexpected keyword argument 'size'" in error.rule
    assert "{'size': 3}" in error.remedy


def test_an_image_that_is_not_there():
    error = refusal("gym_CartPole-v1", vector=False)
    assert "--env.gymnasium.render True" in error.remedy


@pytest.mark.parametrize(
    ("space", "word"),
    [
        (gs.Text(5), "tokens"),
        (gs.Sequence(gs.Discrete(2)), "MultiDiscrete"),
        (gs.Dict({"a": gs.Text(5)}), "tokens"),
        (gs.Dict({}), "wrap"),
    ],
)
def test_spaces_that_are_refused(space, word):
    with pytest.raises(registry.TaskError) as info:
        adapt("x", Fake(space, gs.Discrete(2)))
    assert word in info.value.remedy


def test_whole_numbers_without_bounds_are_no_actions():
    with pytest.raises(registry.TaskError, match="whole number"):
        adapt("x", Fake(gs.Box(0, 1), SPACES["wide int box"]))


def test_an_action_without_bounds_is_told():
    env = Gymnasium(Fake(gs.Box(0, 1), SPACES["half bounded"]))
    assert "acts within -1 and 1" in env.notes[0]


class Bare(gymnasium.Env):
    """Lacks its spaces."""


class OldReset(gymnasium.Env):
    observation_space = gs.Box(-1, 1, (3,))
    action_space = gs.Discrete(2)

    def reset(self):
        return np.zeros(3, np.float32), {}


@pytest.mark.parametrize(
    ("made", "rule", "remedy"),
    [
        (Bare, "it has no observation_space", "set self.observation_space"),
        (OldReset, "its reset takes no seed", "def reset(self, *, seed=None"),
    ],
)
def test_a_class_that_lacks_something_says_what(made, rule, remedy):
    with pytest.raises(registry.TaskError) as info:
        adapt("mine.py:Env", made())
    assert info.value.rule == rule
    assert remedy in info.value.remedy
