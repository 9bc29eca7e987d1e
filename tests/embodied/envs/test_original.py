"""Spaces of Gymnasium survive their file, and unknown wrappers are not rebuilt."""

import json

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium")

from gymnasium import spaces as gs  # noqa: E402

from embodied.core import wrappers  # noqa: E402
from embodied.envs import gymnasium_spaces, options, original  # noqa: E402
from embodied.envs.gymnasium import Gymnasium  # noqa: E402

SPACES = {
    "bounds": gs.Box(np.float32([0, -np.inf]), np.float32([np.inf, 1]), (2,)),
    "double": gs.Box(-1.7e308, 0.1, (2, 3), np.float64),
    "bytes": gs.Box(0, 255, (40, 30, 3), np.uint8),
    "long": gs.Box(-(2**63), 2**63 - 1, (2,), np.int64),
    "truth": gs.Box(0, 1, (2,), np.bool_),
    "start": gs.Discrete(3, start=-5),
    "uneven": gs.MultiDiscrete([2, 3], start=[1, -1]),
    "grid": gs.MultiDiscrete([[2, 3], [4, 5]], dtype=np.int32),
    "binary": gs.MultiBinary([2, 3]),
    "tuple": gs.Tuple([gs.Discrete(2), gs.Dict({"a": gs.Box(0, 1)})]),
    "dict": gs.Dict({"a": gs.Discrete(2), "b": gs.Tuple([gs.MultiBinary(2)])}),
}


@pytest.mark.parametrize("name", SPACES)
def test_spaces_survive_json(name):
    tree = json.loads(json.dumps(gymnasium_spaces.encode(SPACES[name])))
    assert gymnasium_spaces.decode(tree) == SPACES[name]


@pytest.mark.parametrize("name", SPACES)
def test_batches_are_taken_apart_and_put_together(name):
    space = gymnasium.vector.utils.batch_space(SPACES[name], 3)
    value = space.sample()
    rows = gymnasium_spaces.rows(value, 3)
    assert all(SPACES[name].contains(_plain(SPACES[name], row)) for row in rows)
    assert space.contains(gymnasium_spaces.stack(rows))


def _plain(space, row):
    return row.astype(space.dtype) if isinstance(space, gs.Discrete) else row


def make_env():
    env = gymnasium.Env()
    env.observation_space = gs.Dict({"view": SPACES["bytes"], "at": SPACES["start"]})
    env.action_space = gs.Box(-3, 5, (2,))
    return options.present(Gymnasium(env), resize=(16, 16), gray=True, time_limit=9)


def test_the_chain_is_rebuilt():
    env = make_env()
    tree = json.loads(json.dumps(original.describe(env)))
    again = original.rebuild(tree)
    assert again.obs_space == env.obs_space
    assert again.act_space == env.act_space
    assert again.obs_space["view"].shape == (16, 16, 1)


def test_unknown_wrappers_have_no_description():
    class Mirrored(wrappers.Wrapper):
        """Changes observations in a way that no file tells."""

    assert original.describe(Mirrored(make_env())) is None


def test_a_run_on_another_environment_loses_the_file(tmp_path):
    original.write(tmp_path, original.describe(make_env()))
    assert original.read(tmp_path)["gray"]
    original.write(tmp_path, None)
    assert original.read(tmp_path) is None
