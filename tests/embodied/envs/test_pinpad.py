"""Pin pad: the order matters, the image shows it, and every task can be solved."""

from collections import deque

import numpy as np
import pytest

from embodied.envs.pinpad import COLORS, HEIGHT, PinPad
from embodied.testing import check_env

SIZES = dict(zip(PinPad.TASKS, range(3, 9), strict=True))


def path(env, pad):
    """Actions of a shortest way to a pad that touches no other."""
    queue, seen = deque([(env._position, [])]), {env._position}
    while queue:
        position, actions = queue.popleft()
        if env._pads[position] == pad:
            return actions
        for action, (rows, columns) in enumerate(env.MOVES):
            new = position[0] + rows, position[1] + columns
            here = env._pads[position]
            if env._pads[new] in (-1, pad, here) and new not in seen:
                seen.add(new)
                queue.append((new, [*actions, action]))
    raise AssertionError(f"pad {pad} cannot be reached")


def visit(env, pads):
    """All rewards on the way over the pads."""
    rewards = []
    for pad in pads:
        for action in path(env, pad):
            obs = env.step({"reset": False, "action": action})
            rewards.append(float(obs["reward"]))
    return rewards


@pytest.mark.parametrize("task", SIZES)
def test_contract(task):
    assert check_env(lambda: PinPad(task, length=20), steps=70) >= 2


@pytest.mark.parametrize("task", SIZES)
def test_the_right_order_is_rewarded_once_and_anew(task):
    env = PinPad(task)
    env.step({"reset": True})
    for _ in range(2):
        rewards = visit(env, range(SIZES[task]))
        assert rewards[-1] == 10
        assert sum(rewards) == 10
        assert env._pads[env._position] == -1  # It starts again, on the floor.


def test_a_wrong_order_is_not_rewarded_but_can_be_mended():
    env = PinPad("four")
    env.step({"reset": True})
    assert sum(visit(env, [0, 1, 3, 2])) == 0
    assert visit(env, range(4))[-1] == 10


def test_the_image_shows_what_was_stepped_on():
    env = PinPad("four")
    image = env.step({"reset": True})["image"]
    assert image.shape == (64, 64, 3)
    below = HEIGHT * 4
    assert not image[below:].any()
    visit(env, [2, 0])
    image = env.render()
    assert tuple(image[-1, 0]) == COLORS[2]
    assert tuple(image[-1, 8]) == COLORS[0]
    assert not image[below:, 16:].any()
    assert (image[:below] == 0).all(-1).sum() == 16  # The agent, one cell.


def test_walls_hold():
    env = PinPad("three")
    env.step({"reset": True})
    for action in (1, 3, 2, 4):
        for _ in range(20):
            env.step({"reset": False, "action": action})
        assert env._pads[env._position] != -2


def test_episodes_start_in_random_places_and_are_cut_not_ended():
    env = PinPad("three", length=3)
    starts = set()
    for _ in range(20):
        obs = env.step({"reset": True})
        starts.add(env._position)
        while not obs["is_last"]:
            obs = env.step({"reset": False, "action": 0})
            assert not obs["is_terminal"]
    assert len(starts) > 5


def test_tasks_have_as_many_pads_as_they_say():
    for task, size in SIZES.items():
        assert len(np.unique(PinPad(task)._pads)) == size + 2
