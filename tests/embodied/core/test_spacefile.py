"""Spaces survive a file, and what matters of them is compared."""

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


def pair(**changes):
    """Spaces of an environment; a change to None leaves a key out."""
    spaces = {
        "vector": Space(np.float32, (3,), 0, 1),
        "token": Space(np.int32, (), 0, 5),
        "log/x": Space(np.float32),
        "action": Space(np.float32, (2,), -1, 1),
    }
    spaces = {key: space for key, space in {**spaces, **changes}.items() if space}
    return spaces, {"action": spaces.pop("action")}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, ""),
        ({"vector": Space(np.float32, (3,))}, ""),  # Bounds of observed numbers.
        ({"action": Space(np.float32, (2,), -1, 1 + 1e-7)}, ""),  # Rounded.
        ({"log/x": None, "log/y": Space(np.float32)}, ""),
        (
            {"vector": Space(np.float32, (4,))},
            "observation 'vector': float32[4] instead of float32[3] from 0 to 1",
        ),
        (
            {"vector": Space(np.uint8, (3,))},
            "observation 'vector': uint8[3] from 0 to 255 instead of "
            "float32[3] from 0 to 1",
        ),
        (
            {"token": Space(np.int32, (), 0, 6)},
            "observation 'token': int32 from 0 to 6 instead of int32 from 0 to 5",
        ),
        (
            {"token": None},
            "observation 'token': no such key instead of int32 from 0 to 5",
        ),
        (
            {"more": Space(bool)},
            "observation 'more': bool instead of no such key",
        ),
        (
            {"action": Space(np.float32, (2,), -1, 2)},
            "action 'action': float32[2] from -1 to 2 instead of "
            "float32[2] from -1 to 1",
        ),
        (
            {"action": Space(np.float32, (2,), -1, np.array([1, np.inf]))},
            "action 'action': float32[2] from -1 to [ 1. inf] instead of "
            "float32[2] from -1 to 1",
        ),
    ],
)
def test_differences_that_matter_are_named(changes, text):
    found = spacefile.differences(pair(), pair(**changes))
    assert "; ".join(map(str, found)) == text
