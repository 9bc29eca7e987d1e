"""Numbers that were issued, and those that a sender may choose by itself."""

import itertools

import numpy as np
import pytest

from embodied.core import runfiles
from embodied.process.context import Context
from embodied.process.incarnations import Incarnations
from embodied.run.parallel import issued, routing
from embodied.run.parallel.issued import AHEAD, Issued, NumberError
from embodied.run.parallel.membership import Members
from embodied.run.parallel.roles import ENV
from embodied.run.settings import RunSettings

NOW = 9 << 60
BITS = routing.INCARNATION_BITS


def faults(numbers, *pairs):
    """Rows of environments and sequence numbers that are rejected."""
    envids, seqs = zip(*pairs, strict=True)
    rows = {routing.ENVID: np.array([*envids, 5], np.int32)}
    rows[routing.SEQ] = np.array([*seqs, 5], np.int64)  # The last row is padding.
    found = numbers.check(rows, len(pairs))
    assert all(isinstance(error, NumberError) for error in found.values())
    return {row: str(error) for row, error in found.items()}


def test_a_number_is_for_its_newest_process():
    holders = {0: 7, 1: 8, 3: 8}
    numbers = Issued(lambda: holders, range(0))
    good = [(0, (7 << BITS) + 1), (1, 8 << BITS), (3, (8 << BITS) + 2**32 - 1)]
    assert faults(numbers, *good) == {}
    bad = [(0, (8 << BITS) + 1), (1, 2**62 - 1), (3, 5), (0, routing.UNNUMBERED)]
    assert list(faults(numbers, *good, *bad)) == [3, 4, 5, 6]
    text = "'seq' is 30064771073, of incarnation 7, but 'envid' 1 belongs to"
    assert text in faults(numbers, (1, (7 << BITS) + 1))[0]
    assert "not issued" in faults(numbers, (2, 5))[0]
    assert "'envid' is 4" in faults(numbers, (4, 5))[0]
    assert "'envid' is -1" in faults(numbers, (-1, 5))[0]
    holders[0] = 9  # The process was restarted.
    assert faults(numbers, (0, 9 << BITS)) == {}
    assert list(faults(numbers, (0, (7 << BITS) + 2))) == [0]


def test_files_are_read_only_for_numbers_that_are_new():
    reads = itertools.count()

    def read():
        next(reads)
        return {0: 7, 1: 8}

    numbers = Issued(read, range(0))
    for count in range(5):
        assert faults(numbers, (0, (7 << BITS) + count), (1, 8 << BITS)) == {}
    assert next(reads) == 1


def test_without_a_launcher_numbers_come_from_the_clock(tmp_path):
    numbers = issued.of_run(RunSettings.of({"logdir": str(tmp_path)}), Context())
    numbers._now = lambda: NOW >> 3
    clock = NOW >> 3
    assert faults(numbers, (0, clock), (10**6, 3), (4, routing.UNNUMBERED)) == {}
    assert "ahead of the clock" in faults(numbers, (0, clock + AHEAD))[0]
    assert "ahead of the clock" in faults(numbers, (0, 2**62 - 1))[0]


@pytest.mark.parametrize("remote", [False, True])
def test_a_run_knows_its_own_environments_and_members(tmp_path, remote):
    settings = {"logdir": str(tmp_path), "envs": 3, "eval_envs": 1}
    args = RunSettings.of({**settings, "remote_envs": remote})
    launcher = Incarnations(
        tmp_path / "incarnation", holders=tmp_path / runfiles.ISSUED
    )
    members = Members(tmp_path / runfiles.MEMBERS, 4, launcher.next, {ENV: 60.0})
    numbers = issued.of_run(args, Context(incarnation=launcher.next()))
    own = 0 if remote else launcher.next(0, 1) << BITS
    one = members.join(ENV, "guest", 2)
    joined = one.incarnation << BITS
    assert one.numbers == [4, 5]
    assert faults(numbers, (0, own), (1, own + 5), (4, joined), (5, joined)) == {}
    assert list(faults(numbers, (4, own), (4, -1), (6, joined))) == [0, 1, 2]
    # A number that was not issued is for those that know only the actor's address.
    assert bool(faults(numbers, (2, -1), (3, 17))) == (not remote)
    assert list(faults(numbers, (2, 2**62 - 1))) == [0]
    again = members.join(ENV, "guest", 2).incarnation << BITS
    assert faults(numbers, (4, again)) == {}
    assert list(faults(numbers, (4, joined))) == [0]


def test_numbers_of_an_earlier_launcher_are_issued_again(tmp_path):
    def start():
        holders = tmp_path / runfiles.ISSUED
        launcher = Incarnations(tmp_path / "incarnation", holders=holders)
        return launcher, Members(
            tmp_path / runfiles.MEMBERS, 4, launcher.next, {ENV: 60.0}
        )

    launcher, members = start()
    own = launcher.next(0) << BITS
    joined = members.join(ENV, "guest", 1).incarnation << BITS
    args = RunSettings.of({"logdir": str(tmp_path), "envs": 3, "eval_envs": 1})
    start()
    numbers = issued.of_run(args, Context(incarnation=99))
    assert list(faults(numbers, (0, own), (4, joined))) == [0, 1]
