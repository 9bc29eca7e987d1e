"""Members: numbers of environments, incarnations, leases, and the end of the run."""

import errno
import itertools
import json

import pytest

from embodied.core import disk
from embodied.run.parallel import connections, membership
from embodied.run.parallel.membership import ENV_LEASE, LimitError, Members
from embodied.run.parallel.roles import ENV, LEARNER

LEASES = {ENV: ENV_LEASE, LEARNER: 30.0}


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "logdir" / "members.json"


@pytest.fixture
def make(path, clock):
    issued = itertools.count(1)

    def make(first=4):
        return Members(path, first, lambda: next(issued), LEASES, clock)

    return make


@pytest.fixture
def members(make):
    return make()


def join(members, name, count):
    return members.join(ENV, name, count).numbers


def test_numbers_begin_after_those_of_the_run_and_are_unique(members):
    assert join(members, "a", 2) == [4, 5]
    assert join(members, "b", 3) == [6, 7, 8]
    assert members.joined(ENV) == {"a": 1, "b": 2}


def test_a_member_that_joins_again_keeps_its_numbers(members):
    join(members, "a", 2)
    join(members, "b", 1)
    again = members.join(ENV, "a", 2)
    assert (again.numbers, again.incarnation) == ([4, 5], 3)
    assert join(members, "a", 3) == [4, 5, 7]  # More, so it begins anew.


def test_numbers_of_those_who_left_are_free(members):
    join(members, "a", 2)
    join(members, "b", 1)
    members.leave(ENV, "a")
    members.leave(ENV, "a")  # The call may be repeated.
    members.leave(ENV, "unknown")
    assert not members.renew(ENV, "a")
    assert join(members, "c", 3) == [4, 5, 7]


def test_a_member_is_only_what_it_joined_as(members):
    members.join(LEARNER, "a")
    assert not members.renew(ENV, "a")
    members.leave(ENV, "a")
    assert members.joined(LEARNER) == {"a": 1}
    assert members.joined(ENV) == {}


def test_numbers_of_a_silent_member_are_free_after_the_lease(members, clock):
    join(members, "silent", 1)
    join(members, "heard", 1)
    clock.time = LEASES[ENV] - 1
    assert members.renew(ENV, "heard")
    assert join(members, "c", 1) == [6]
    clock.time = LEASES[ENV] + 1
    assert join(members, "d", 1) == [4]
    assert not members.renew(ENV, "silent")
    assert members.renew(ENV, "heard")
    assert members.renew(ENV, "c")


def test_a_silent_learner_is_gone_soon(members, clock):
    join(members, "a", 1)
    members.join(LEARNER, "b")
    members.join(LEARNER, "c")
    clock.time = LEASES[LEARNER]
    members.renew(LEARNER, "c")
    clock.time += 1
    assert members.joined(LEARNER) == {"c": 3}
    assert members.joined(ENV) == {"a": 1}


def test_the_file_forgets_a_silent_member(members, clock, path):
    join(members, "silent", 1)
    join(members, "heard", 1)
    clock.time = LEASES[ENV]
    members.renew(ENV, "heard")
    clock.time += 1
    assert members.renew(ENV, "heard")
    assert membership.read(path) == {"heard": [5]}


def test_the_next_launcher_keeps_the_numbers_but_wants_to_see_the_members(make, path):
    members = make()
    join(members, "a", 2)
    members.join(LEARNER, "learner")
    again = make()
    assert not again.renew(ENV, "a")  # It has to learn the new addresses.
    assert join(again, "b", 1) == [6]
    assert join(again, "a", 2) == [4, 5]
    assert again.renew(ENV, "a")
    assert membership.read(path) == {"b": [6], "a": [4, 5]}
    larger = make(first=6)  # The run has more environments now.
    assert join(larger, "a", 2) == [7, 8]


def test_the_file_of_an_older_release_is_read(path):
    path.parent.mkdir()
    path.write_text(json.dumps({"members": {"a": [4, 5]}, "placed": True}))
    assert membership.read(path) == {"a": [4, 5]}


def test_a_member_may_have_numbers_that_the_launcher_left_to_it(members):
    assert members.join(ENV, "task", 2, (0, 1)).numbers == [0, 1]
    assert join(members, "a", 1) == [4]
    assert members.join(ENV, "task", 2, (0, 1)).numbers == [0, 1]
    with pytest.raises(LimitError, match=r"wants numbers \[4\].*are 0 to 3"):
        members.join(ENV, "other", 1, (4,))  # Those of another member.
    with pytest.raises(LimitError, match="for 3 environments"):
        members.join(ENV, "other", 3, (1, 2))


@pytest.mark.parametrize("count", [0, -1, membership.MAX_COUNT + 1, 10**9])
def test_the_environments_of_a_member_are_limited(members, count):
    with pytest.raises(LimitError, match=rf"'a' joins with {count} .* 1 to 1024"):
        members.join(ENV, "a", count)
    assert members.joined(ENV) == {}


@pytest.mark.parametrize(
    ("role", "name", "count"),
    [("replay", "a", 0), (ENV, "a" * 201, 1), (ENV, 7, 1), (ENV, "a", 1.5)],
    ids=str,
)
def test_what_cannot_be_a_member_is_rejected(members, path, role, name, count):
    join(members, "b", 1)
    with pytest.raises(LimitError):
        members.join(role, name, count)
    assert membership.read(path) == {"b": [4]}


def test_the_members_are_limited(members, monkeypatch):
    monkeypatch.setattr(membership, "MAX_MEMBERS", 2)
    join(members, "a", 1)
    join(members, "b", 1)
    with pytest.raises(LimitError, match="'c' joins 2 other members, the limit"):
        join(members, "c", 1)
    assert join(members, "b", 1) == [5]


def test_members_learn_of_the_end_and_are_counted(members, start):
    join(members, "a", 1)
    join(members, "b", 1)
    join(members, "c", 1)
    members.join(LEARNER, "learner")
    members.end(ENV)
    result = []
    thread = start(lambda: result.append(members.wait_told(ENV, 30)))
    for _ in range(2):  # The answer is the same if the call is repeated.
        with pytest.raises(connections.RunOverError):
            members.renew(ENV, "a")
    members.leave(ENV, "b")
    assert not result
    with pytest.raises(connections.RunOverError):
        join(members, "c", 1)
    thread.join(20)
    assert result == [True]
    with pytest.raises(connections.RunOverError):
        join(members, "new", 1)
    assert members.renew(LEARNER, "learner")  # Its time has not come.


def test_members_that_do_not_ask_are_not_waited_for(members, clock):
    join(members, "a", 1)
    members.end(ENV)
    assert not members.wait_told(ENV, 0.01)
    clock.time = LEASES[ENV] + 1
    assert members.wait_told(ENV, 0.01)  # It is gone.


def test_who_comes_to_the_next_run_joins_anew(members, path):
    join(members, "a", 1)
    members.clear()
    members.clear()
    assert membership.read(path) == {}


def test_a_rejected_join_leaves_the_member_as_it_was(tmp_path):
    issue = itertools.count(1).__next__
    members = Members(tmp_path / "members.json", 4, issue, LEASES)
    member = members.join("env", "one", 2)
    with pytest.raises(LimitError):
        members.join("env", "one", 2, numbers=[7, 8])
    assert members.renew("env", "one")
    assert members.join("env", "one", 2).numbers == member.numbers


def test_a_join_on_a_full_disk_changes_nothing(members, path, monkeypatch):
    before = members.join(ENV, "one", 2)

    def fail(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(membership.files, "write_text", fail)
        for name in ("one", "two"):
            with pytest.raises(disk.DiskFullError, match="the numbers of a member"):
                members.join(ENV, name, 2)
    assert members.renew(ENV, "one")
    assert not members.renew(ENV, "two")
    assert membership.read(path) == {"one": before.numbers}
