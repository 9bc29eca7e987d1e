"""A member of a run: joins, steps, and joins anew if it lost its numbers."""

import numpy as np
import pytest

from embodied import rpc
from embodied.core import spacefile
from embodied.envs.dummy import Dummy
from embodied.run import role
from embodied.run.parallel import guest, roster, wire

SPACES = spacefile.encode(Dummy("disc").obs_space, Dummy("disc").act_space)


class Training:
    """Answers like an actor and ends the run after some steps."""

    def __init__(self, path, steps):
        self.roster = roster.Roster(path, first=4)
        self.lives = iter(range(1, 100))
        self.steps = steps
        self.rows = []
        facts = {"seed": 3, "rows": 2}
        desk = roster.Reception(self.roster, self.enroll, SPACES, facts)
        self.address = rpc.resolve("ipc://{auto}")
        self.server = rpc.Server(self.address)
        self.server.bind("act", self.act)
        self.server.bind("greet", desk.greet)
        self.server.bind("join", desk.join)
        self.server.bind("stay", self.roster.stay)
        self.server.bind("leave", self.roster.leave)
        self.server.start(block=False)

    def enroll(self):
        return next(self.lives)

    def act(self, rows):
        self.rows.append({k: rows[k].copy() for k in (wire.ENVID, wire.SEQ)})
        if len(self.rows) == self.steps // 2:
            self.roster.leave("guest")  # Others may have its numbers now.
            self.roster.join("other", 1)
        if len(self.rows) > self.steps:
            raise wire.RunOverError
        count = len(rows[wire.ENVID])
        return {"act_disc": np.zeros(count, np.int32), "reset": rows["is_last"]}


@pytest.fixture
def training(tmp_path):
    made = Training(tmp_path / "members.json", 20)
    yield made
    made.server.close()


def make_env(index):
    return Dummy("disc")


def test_a_member_joins_and_leaves_when_the_run_is_over(training, fresh_role):
    invitation = guest.Invitation(training.address, None)
    assert guest.greet(invitation, SPACES) == {"seed": 3, "rows": 2}
    guest.parallel_guest(make_env, "guest", 2, invitation, SPACES)
    assert not training.roster.stay("guest")


def test_a_member_that_lost_its_numbers_joins_anew(training, fresh_role, monkeypatch):
    monkeypatch.setattr(guest, "STAY_EVERY", 1e-9)
    invitation = guest.Invitation(training.address, None)
    guest.parallel_guest(make_env, "guest", 2, invitation, SPACES)
    ids = [tuple(rows[wire.ENVID].tolist()) for rows in training.rows]
    assert sorted(set(ids)) == [(4, 5), (5, 6)]
    assert ids.index((5, 6)) == 10
    lives = [int(rows[wire.SEQ][0]) >> wire.LIFE_BITS for rows in training.rows]
    assert lives == sorted(lives)
    assert lives[-1] == lives[0] + 1


def test_other_spaces_are_refused(training, fresh_role):
    other = spacefile.encode(Dummy("cont").obs_space, Dummy("cont").act_space)
    with pytest.raises(rpc.RemoteError, match=r"'act_cont': float32.* instead of no"):
        guest.greet(guest.Invitation(training.address, None), other)


def test_it_can_be_stopped_while_it_waits(fresh_role):
    role.request_stop()
    invitation = guest.Invitation(rpc.resolve("ipc://{auto}"), None)
    guest.parallel_guest(make_env, "guest", 2, invitation, SPACES)
