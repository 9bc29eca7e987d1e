"""The comparison with the journals notices whatever could go wrong."""

import numpy as np
import pytest

from tests.e2e.torture import journaled
from tests.e2e.torture.reconcile import (
    LONGEST,
    check_missing,
    check_stored,
    episode_scores,
)

EPISODE, EPISODES = 10, 30
PROCESS = 7 << 32


@pytest.fixture
def made():
    """Steps of one process, one a second."""
    steps = np.zeros(EPISODE * EPISODES, journaled.RECORD)
    steps["serial"] = PROCESS + 1 + np.arange(len(steps))
    steps["time"] = np.arange(len(steps))
    steps["action"] = np.arange(len(steps)) % 3
    steps["is_first"][::EPISODE] = True
    steps["is_last"][EPISODE - 1 :: EPISODE] = True
    steps["reward"] = 1.0
    return steps


def store(made):
    """What a replay has of all steps: each with the action that follows."""
    stored = made.copy()
    stored["action"][:-1] = made["action"][1:]
    return stored


def check(made, stored):
    check_stored(made, stored, np.searchsorted(made["serial"], stored["serial"]))


def without(made, first, last):
    is_stored = np.ones(len(made), bool)
    is_stored[first:last] = False
    return is_stored


def test_numbers_survive_as_small_observations():
    serials = np.array([1, PROCESS + 5, (2**30 - 1 << 32) + 2**32 - 1])
    values = np.stack([journaled.encode(int(serial)) for serial in serials])
    assert values.dtype == np.float32
    assert values.max() < 1e-7
    np.testing.assert_array_equal(journaled.decode(values), serials)


def test_whole_books_balance(made):
    check(made, store(made))
    check_missing(made, np.ones(len(made), bool), [])
    np.testing.assert_array_equal(episode_scores(store(made)), [EPISODE] * EPISODES)


def test_a_repeated_step_is_noticed(made):
    stored = store(made)
    with pytest.raises(AssertionError, match="stored twice"):
        check(made, np.sort(np.append(stored, stored[5]), order="serial"))


def test_another_action_is_noticed(made):
    stored = store(made)
    stored["action"][5] += 1
    with pytest.raises(AssertionError, match="not taken"):
        check(made, stored)


def test_stitched_episodes_are_noticed(made):
    with pytest.raises(AssertionError, match="stitched"):
        check(made, np.delete(store(made), slice(3, 5)))


def test_steps_may_be_missing_only_where_an_agent_died(made):
    is_stored = without(made, 25, 30)
    check_missing(made, is_stored, [27.5])
    with pytest.raises(AssertionError, match="5 steps"):
        check_missing(made, is_stored, [50.0])
    with pytest.raises(AssertionError, match=f"{LONGEST + 1} steps"):
        check_missing(made, without(made, 25, 26 + LONGEST), [27.5])


def test_only_the_last_step_of_a_process_may_be_missing(made):
    check_missing(made, without(made, len(made) - 1, len(made)), [])
    with pytest.raises(AssertionError, match="2 steps"):
        check_missing(made, without(made, len(made) - 2, len(made)), [])


def test_an_episode_with_a_gap_does_not_count(made):
    stored = np.delete(store(made), slice(25, 30))
    assert len(episode_scores(stored)) == EPISODES - 1
