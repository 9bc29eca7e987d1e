"""Spaces survive a file."""

import numpy as np
import pytest
from elements import Space

from embodied.core import spacefile

SPACES = {
    "image": Space(np.uint8, (4, 4, 3)),
    "unbounded": Space(np.float32, (3,)),
    "bounds": Space(np.float32, (2,), np.array([-1, -np.inf]), np.array([1, 3])),
    "classes": Space(np.int32, (), 0, 5),
    "mixed": Space(np.int64, (2,), np.array([0, -7]), np.array([5, 2])),
    "flag": Space(bool),
}


@pytest.mark.parametrize("key", SPACES)
def test_it_comes_back(tmp_path, key):
    space = SPACES[key]
    spacefile.write(tmp_path, {key: space}, {"reset": Space(bool)})
    obs_space, act_space = spacefile.read(tmp_path)
    again = obs_space[key]
    assert (again.dtype, again.shape) == (space.dtype, space.shape)
    assert again.discrete == space.discrete
    np.testing.assert_array_equal(again.low, space.low)
    np.testing.assert_array_equal(again.high, space.high)
    assert set(act_space) == {"reset"}


def test_nothing_there(tmp_path):
    assert spacefile.read(tmp_path) is None
