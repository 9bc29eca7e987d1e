"""Environment wrappers."""

import pickle
from functools import partial as bind

import elements
import numpy as np
import pytest

from embodied.core import base, wrappers
from embodied.envs.dummy import Dummy
from embodied.testing import BrokenEnv, check_env

RESET = {"reset": True, "act_disc": 0, "act_cont": np.zeros(6, np.float32)}
STEP = {**RESET, "reset": False}


class Simple(base.Env):
    """Echoes its action, with spaces given from outside."""

    def __init__(self, act, obs=None, value=None):
        self._act = act
        self._obs = obs
        self._value = value
        self.action = None

    @property
    def obs_space(self):
        spaces = {} if self._obs is None else {"value": self._obs}
        return {
            **spaces,
            "reward": elements.Space(np.float32),
            "is_first": elements.Space(bool),
            "is_last": elements.Space(bool),
            "is_terminal": elements.Space(bool),
        }

    @property
    def act_space(self):
        return {"action": self._act, "reset": elements.Space(bool)}

    def step(self, action):
        self.action = action
        obs = {} if self._obs is None else {"value": self._value}
        flags = {"is_first": action["reset"], "is_last": False, "is_terminal": False}
        flags = {k: np.bool_(v) for k, v in flags.items()}
        return {**obs, "reward": np.float32(0), **flags}


def act(value, reset=False):
    return {"action": value, "reset": np.asarray(reset)}


WRAPPED = {
    "time limit": lambda: wrappers.TimeLimit(Dummy(length=50), 7),
    "action repeat": lambda: wrappers.ActionRepeat(Dummy(length=50), 3),
    "normalize": lambda: wrappers.NormalizeAction(Dummy(length=9), "act_cont"),
    "clip": lambda: wrappers.ClipAction(Dummy(length=9), "act_cont"),
    "dtypes": lambda: wrappers.UnifyDtypes(Dummy(length=9)),
    "values": lambda: wrappers.CheckValues(Dummy(length=9)),
    "check": lambda: wrappers.CheckSpaces(Dummy(length=9)),
    "resize": lambda: wrappers.ResizeImage(Dummy(length=9), (32, 48)),
    "restart": lambda: wrappers.RestartOnException(bind(Dummy, length=9)),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_contract(name):
    assert check_env(WRAPPED[name]) > 5


def test_time_limit_is_not_terminal():
    env = wrappers.TimeLimit(Dummy(length=50), 3)
    obs = [env.step(RESET)] + [env.step(STEP) for _ in range(3)]
    assert [bool(o["is_last"]) for o in obs] == [False, False, False, True]
    assert not obs[-1]["is_terminal"]


def test_action_repeat_sums_rewards_until_the_end():
    plain, repeated = Dummy(length=8), wrappers.ActionRepeat(Dummy(length=8), 3)
    plain.step(RESET)
    rewards = [float(plain.step(STEP)["reward"]) for _ in range(8)]
    repeated.step(RESET)
    sums = [float(repeated.step(STEP)["reward"]) for _ in range(3)]
    assert sums == [sum(rewards[:3]), sum(rewards[3:6]), sum(rewards[6:])]


def test_normalize_action_maps_finite_bounds_only():
    space = elements.Space(np.float32, (2,), [-10, -np.inf], [30, np.inf])
    env = Simple(space)
    wrapped = wrappers.NormalizeAction(env)
    np.testing.assert_array_equal(wrapped.act_space["action"].low, [-1, -np.inf])
    for value, expected in [
        ([-1, 5], [-10, 5]),
        ([1, -7], [30, -7]),
        ([0, 0], [10, 0]),
    ]:
        wrapped.step(act(np.array(value, np.float32)))
        np.testing.assert_allclose(env.action["action"], expected)


def test_clip_action():
    env = Simple(elements.Space(np.float32, (2,), -1, 1))
    wrappers.ClipAction(env).step(act(np.array([-3, 0.5], np.float32)))
    np.testing.assert_allclose(env.action["action"], [-1, 0.5])


def test_unify_dtypes_both_ways():
    obs = elements.Space(np.float64, (2,), -5, 5)
    env = Simple(elements.Space(np.int64, (), 0, 3), obs, np.ones(2))
    wrapped = wrappers.UnifyDtypes(env)
    assert wrapped.act_space["action"].dtype == np.int32
    assert wrapped.act_space["action"].classes == 3
    result = wrapped.step(act(np.int32(2)))
    assert result["value"].dtype == wrapped.obs_space["value"].dtype == np.float32
    assert env.action["action"].dtype == np.int64


CASES = {
    "is not finite": np.array([np.nan, 0], np.float32),
    "is outside of": np.array([9, 0], np.float32),
    "is float64": np.zeros(2, np.float64),
    r"has shape \(3,\)": np.zeros(3, np.float32),
}


@pytest.mark.parametrize("message", CASES)
def test_check_spaces_names_the_key_of_a_bad_observation(message):
    space = elements.Space(np.float32, (2,), -5, 5)
    env = Simple(elements.Space(np.int32, (), 0, 3), space, CASES[message])
    with pytest.raises(wrappers.SpaceError, match=f"observation 'value' {message}"):
        wrappers.CheckSpaces(env).step(act(np.int32(1)))


def test_check_spaces_names_missing_keys_and_bad_actions():
    env = wrappers.CheckSpaces(Simple(elements.Space(np.int32, (), 0, 3)))
    with pytest.raises(wrappers.SpaceError, match="action lacks 'action': it has"):
        env.step({"reset": np.asarray(False)})
    with pytest.raises(wrappers.SpaceError, match="'action' is outside of 0 to 2: 3"):
        env.step(act(np.int32(3)))


def test_check_spaces_refuses_shared_keys():
    class Shared(Simple):
        @property
        def obs_space(self):
            return {**super().obs_space, "action": elements.Space(np.float32)}

    with pytest.raises(wrappers.SpaceError, match=r"\['action'\] are in both"):
        wrappers.CheckSpaces(Shared(elements.Space(np.int32, (), 0, 3)))


def test_check_values_rejects_what_cannot_be_converted():
    space, place = elements.Space(np.float32, (2,), -5, 5), f"{__file__}:"
    for value, words in [
        (
            [np.nan, 0],
            r"'value' is not finite: nan at \[0\], at step 0, .*division by zero",
        ),
        ([9.0, 0], r"'value' is outside of -5 to 5: 9.0 at \[0\]"),
        ([0.0, 0, 0], r"'value' has shape \(3,\)"),
    ]:
        env = Simple(elements.Space(np.int32, (), 0, 3), space, np.float32(value))
        with pytest.raises(wrappers.SpaceError, match=words) as info:
            wrappers.CheckValues(env).step(act(np.int32(1)))
        assert place in str(info.value)


def test_faults_cross_processes():
    space = elements.Space(np.float32, (2,), -5, 5)
    env = Simple(elements.Space(np.int32, (), 0, 3), space, np.float32([np.nan, 0]))
    with pytest.raises(wrappers.RangeError) as info:
        wrappers.CheckValues(env).step(act(np.int32(1)))
    again = pickle.loads(pickle.dumps(info.value))
    assert type(again) is wrappers.RangeError
    assert str(again) == str(info.value)
    assert again.faults == info.value.faults
    assert again.place.startswith(f"{__file__}:")


def test_check_values_notes_what_is_converted():
    space = elements.Space(np.float32, (2,), -5, 5)
    env = Simple(elements.Space(np.int32, (), 0, 3), space, np.zeros(2))
    wrapped = wrappers.CheckValues(env)
    wrapped.step(act(np.int32(1)))
    wrapped.step(act(np.int32(1)))
    (note,) = wrapped.notes
    assert "'value' is float64, its space says float32: [0. 0.], at step 0" in note


def test_check_values_names_all_that_is_wrong_with_spaces():
    class Poor(Simple):
        @property
        def obs_space(self):
            return {"action": elements.Space(np.float32)}

    with pytest.raises(wrappers.SpaceError, match="lacks 'reward'") as info:
        wrappers.CheckValues(Poor(elements.Space(np.int32, (), 0, 3)))
    assert "['action'] are in both" in str(info.value)


def image_env(image):
    space = elements.Space(np.uint8, image.shape)
    return Simple(elements.Space(np.int32, (), 0, 3), space, image)


def test_resize_averages_areas():
    image = np.zeros((4, 6, 3), np.uint8)
    image[:2, :3] = 100
    env = wrappers.ResizeImage(image_env(image), (2, 2))
    expected = np.zeros((2, 2, 3), np.uint8)
    expected[0, 0] = 100
    np.testing.assert_array_equal(env.step(act(np.int32(0)))["value"], expected)
    assert env.obs_space["value"].shape == (2, 2, 3)


def test_resize_keeps_a_constant_image_at_any_size():
    image = np.full((210, 160, 3), 77, np.uint8)
    for size in [(64, 64), (96, 96), (300, 77)]:
        env = wrappers.ResizeImage(image_env(image), size)
        assert (env.step(act(np.int32(0)))["value"] == 77).all()


def test_restart_begins_a_new_episode(capfd):
    env = wrappers.RestartOnException(lambda: BrokenEnv(Dummy(length=50), 4))
    obs = [env.step(RESET)] + [env.step(STEP) for _ in range(5)]
    assert [bool(o["is_first"]) for o in obs] == [
        True,
        False,
        False,
        True,
        False,
        False,
    ]
    assert obs[3]["reward"] == 0
    assert "broken on purpose" in capfd.readouterr().err


def test_restart_budget_counts_within_its_window():
    now = [0.0]
    env = wrappers.RestartOnException(
        lambda: BrokenEnv(Dummy(), 1), budget=2, window=100, now=lambda: now[0]
    )
    make_working = lambda: Dummy()  # noqa: E731
    failing = env._make_env
    for now[0] in (0.0, 10.0):
        env.env, env._make_env = failing(), make_working
        env.step(RESET)
    env.env = failing()
    with pytest.raises(RuntimeError, match="broken on purpose"):
        env.step(RESET)
    now[0] = 200.0
    env.env = failing()
    assert env.step(RESET)["is_first"]
