"""Any dm_env environment: specs, time steps, ends and actions."""

import numpy as np
import pytest

dm_env = pytest.importorskip("dm_env")

from dm_env import specs  # noqa: E402

from embodied.envs.codecs import UnsupportedSpaceError  # noqa: E402
from embodied.envs.dm_env import DmEnv  # noqa: E402
from embodied.testing import check_env  # noqa: E402


class Count(dm_env.Environment):
    """Ends after five steps, with the discount it is told."""

    def __init__(self, observation, action, discount=0.0):
        self.observation, self.action, self.discount = observation, action, discount
        self.actions = []

    def observation_spec(self):
        return self.observation

    def action_spec(self):
        return self.action

    def reset(self):
        self.actions = []
        return dm_env.restart(self.value(self.observation))

    def step(self, action):
        self.actions.append(action)
        if len(self.actions) < 5:
            return dm_env.transition(1.5, self.value(self.observation))
        return dm_env.TimeStep(
            dm_env.StepType.LAST, 1.5, self.discount, self.value(self.observation)
        )

    def value(self, spec):
        if isinstance(spec, dict):
            return {key: self.value(child) for key, child in spec.items()}
        return spec.generate_value()


PIXELS = specs.Array((16, 16, 3), np.uint8)
MOVE = specs.BoundedArray((2,), np.float64, -2, 3)


def ends(env):
    first = env.step({"action": 0, "reset": True})
    return [first] + [env.step({"action": 1, "reset": False}) for _ in range(6)]


def test_a_single_image_and_a_discrete_action():
    env = Count(PIXELS, specs.DiscreteArray(4))
    adapted = DmEnv(env)
    assert adapted.obs_space["image"].shape == (16, 16, 3)
    assert adapted.act_space["action"].high == 4
    assert check_env(lambda: DmEnv(env)) > 5


@pytest.mark.parametrize(("discount", "terminal"), [(0.0, True), (1.0, False)])
def test_a_last_step_is_terminal_if_its_discount_is_zero(discount, terminal):
    obs = ends(DmEnv(Count(PIXELS, specs.DiscreteArray(4), discount)))
    assert [bool(o["is_first"]) for o in obs] == [True, *5 * [False], True]
    assert [bool(o["is_last"]) for o in obs] == [*5 * [False], True, False]
    assert bool(obs[5]["is_terminal"]) is terminal
    assert [float(o["reward"]) for o in obs] == [0, *5 * [1.5], 0]


def test_nested_dictionaries_keep_their_structure():
    pose = {"arm": specs.Array((3,), np.float64), "count": specs.Array((), np.int64)}
    action = {"legs": MOVE, "grip": {"left": specs.BoundedArray((), np.int64, 1, 2)}}
    env = Count({"pose": pose, "on": specs.Array((), bool)}, action)
    adapted = DmEnv(env)
    assert set(adapted.obs_space) > {"pose/arm", "pose/count", "on"}
    assert adapted.obs_space["pose/count"].dtype == np.float32
    left = adapted.act_space["grip/left"]
    assert (left.low, left.high) == (0, 2)
    assert check_env(lambda: DmEnv(env)) > 5
    assert set(env.actions[0]) == {"legs", "grip"}
    assert env.actions[0]["legs"].dtype == np.float64
    assert set(env.actions[0]["grip"]) == {"left"}


def test_text_is_refused_by_name():
    with pytest.raises(UnsupportedSpaceError, match="mission"):
        DmEnv(Count({"mission": specs.StringArray(())}, MOVE))


def test_actions_are_repeated_to_the_end_of_the_episode():
    env = DmEnv(Count(PIXELS, specs.DiscreteArray(4)), repeat=3)
    env.step({"action": 0, "reset": True})
    steps = [env.step({"action": 1, "reset": False}) for _ in range(2)]
    assert [float(obs["reward"]) for obs in steps] == [4.5, 3.0]
    assert [bool(obs["is_last"]) for obs in steps] == [False, True]


def test_empty_arrays_are_left_out():
    observation = {"pose": specs.Array((2,), float), "none": specs.Array((0,), float)}
    assert "none" not in DmEnv(Count(observation, MOVE)).obs_space
