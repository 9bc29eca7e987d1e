"""Numbers of environments that come and go."""

import elements
import numpy as np
import pytest

from embodied.core import spacefile
from embodied.run.parallel import roster


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def members(tmp_path, clock):
    return roster.Roster(tmp_path / "logdir" / "members.json", first=4, now=clock)


def test_numbers_begin_after_those_of_the_run_and_are_unique(members):
    assert members.join("a", 2) == [4, 5]
    assert members.join("b", 3) == [6, 7, 8]
    assert len(members) == 5


def test_a_member_that_joins_again_keeps_its_numbers(members):
    members.join("a", 2)
    members.join("b", 1)
    assert members.join("a", 2) == [4, 5]
    assert members.join("a", 3) == [4, 5, 7]  # More, so it begins anew.


def test_numbers_of_those_who_left_are_free(members):
    members.join("a", 2)
    members.join("b", 1)
    members.leave("a")
    members.leave("nobody")
    assert not members.stay("a")
    assert members.join("c", 3) == [4, 5, 7]


def test_numbers_of_a_silent_member_are_free_after_the_lease(members, clock):
    members.join("silent", 1)
    members.join("heard", 1)
    clock.time = roster.LEASE - 1
    assert members.stay("heard")
    assert members.join("c", 1) == [6]
    clock.time = roster.LEASE + 1
    assert members.join("d", 1) == [4]
    assert not members.stay("silent")
    assert members.stay("heard")
    assert members.stay("c")


def test_the_file_forgets_a_silent_member_when_another_joins_again(
    members, clock, tmp_path
):
    members.join("silent", 1)
    members.join("heard", 1)
    clock.time = roster.LEASE + 1
    members.stay("heard")
    assert members.join("heard", 1) == [5]
    assert roster.read(tmp_path / "logdir" / "members.json").members == {"heard": [5]}


def test_the_next_actor_knows_the_members(members, tmp_path):
    path = tmp_path / "logdir" / "members.json"
    members.join("a", 2)
    members.note_placed()
    again = roster.Roster(path, first=4)
    assert again.join("b", 1) == [6]
    assert again.join("a", 2) == [4, 5]
    assert roster.read(path) == ({"a": [4, 5], "b": [6]}, True)
    larger = roster.Roster(path, first=6)  # The run has more environments now.
    assert larger.join("a", 2) == [7, 8]


def test_nobody_joins_with_nothing(members):
    with pytest.raises(ValueError, match="'a' joins with 0"):
        members.join("a", 0)


def spaces(shape=(3,), **more):
    obs = {"vector": elements.Space(np.float32, shape), **more}
    return spacefile.encode(obs, {"action": elements.Space(np.int32, (), 0, 5)})


def test_the_same_spaces_fit():
    roster.compare(spaces(), spaces())


def test_keys_for_logs_count_since_batches_need_the_same():
    with pytest.raises(roster.MismatchError, match="'log/x'"):
        roster.compare(spaces(**{"log/x": elements.Space(np.float32)}), spaces())


def test_a_difference_is_named():
    with pytest.raises(roster.MismatchError, match=r"'vector': float32\[4\]"):
        roster.compare(spaces(shape=(4,)), spaces())
