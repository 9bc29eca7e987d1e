"""A member of a run: joins, steps environments, and joins again if it must."""

import contextlib

import numpy as np
import pytest

from embodied import rpc
from embodied.core import spacefile
from embodied.envs.dummy import Dummy
from embodied.process.context import FinalError
from embodied.run.parallel import (
    connections,
    coordinator,
    member,
    routing,
)
from embodied.run.parallel.env import joined_env
from embodied.run.parallel.issued import NumberError
from embodied.run.parallel.roles import ENV
from embodied.run.settings import RunSettings

PAIR = (Dummy("disc").obs_space, Dummy("disc").act_space)
SPACES = spacefile.encode(*PAIR)


class Training:
    """A coordinator and an actor that ends the run after some steps."""

    def __init__(self, tmp_path, steps):
        spacefile.write(tmp_path, *PAIR)
        self.args = RunSettings.of(
            {
                "logdir": str(tmp_path),
                "config": {"seed": 3},
                "envs": 4,
                "eval_envs": 0,
                "coordinator_addr": rpc.resolve("ipc://{auto}"),
                "actor_addr": rpc.resolve("ipc://{auto}"),
            }
        )
        self.invitation = member.Invitation(self.args.coordinator_addr, None)
        self.steps = steps
        self.rows = []
        self.on_step = {}  # Step to what happens then.
        self.issued = iter(range(1, 100))
        self._stack = contextlib.ExitStack()
        self.start()
        self.server = rpc.Server(self.args.actor_addr)
        self.server.bind("act", self.act)
        self.server.start(block=False)

    def start(self):
        """Start a coordinator, as a new launcher does."""
        serve = coordinator.serve(self.args, self.issued.__next__)
        self.coordinator = self._stack.enter_context(serve)
        self.members = self.coordinator.members

    def restart(self):
        self._stack.close()
        self.start()

    def act(self, rows):
        self.rows.append({k: rows[k].copy() for k in (routing.ENVID, routing.SEQ)})
        self.on_step.pop(len(self.rows), int)()
        if len(self.rows) > self.steps:
            raise connections.RunOverError("the run has ended")
        count = len(rows[routing.ENVID])
        return {"act_disc": np.zeros(count, np.int32), "reset": rows["is_last"]}

    def close(self):
        self._stack.close()
        self.server.close()

    def numbers(self):
        return [tuple(rows[routing.ENVID].tolist()) for rows in self.rows]

    def incarnations(self):
        return [
            int(rows[routing.SEQ][0]) >> routing.INCARNATION_BITS for rows in self.rows
        ]


@pytest.fixture
def training(tmp_path, monkeypatch):
    monkeypatch.setattr(member, "RENEW_EVERY", 0.01)
    made = Training(tmp_path, 10**9)
    yield made
    made.close()


def make_env(index):
    return Dummy("disc")


ENTRY = member.Entry(ENV, "guest", 2, SPACES)


def test_a_run_describes_itself(training):
    facts = member.describe(training.invitation, ENV, SPACES)
    assert facts == {"seed": 3, "rows": 2}


def test_a_member_ends_when_the_coordinator_says_so(training, ctx, start):
    thread = start(lambda: joined_env(make_env, training.invitation, ENTRY, ctx=ctx))
    while len(training.rows) < 20:
        assert thread.is_alive()
    assert training.members.joined(ENV) == {"guest": 1}
    assert training.coordinator.end(ENV)
    thread.join(20)
    assert not thread.is_alive()
    assert ctx.completed()
    assert set(training.numbers()) == {(4, 5)}
    assert set(training.incarnations()) == {1}


def test_a_member_that_waits_for_an_action_ends_as_well(training, ctx, start):
    """The actor ends first, so that nothing answers the environments."""
    ended = []
    training.on_step[5] = lambda: ended.append(training.coordinator.end(ENV))
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert ended == [True]


def test_a_member_ends_when_the_actor_says_so(training, ctx):
    training.steps = 20  # Before the coordinator does.
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert training.members.joined(ENV) == {}


def test_a_member_that_is_asked_to_stop_leaves(training, ctx):
    training.on_step[5] = ctx.request_stop
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert training.members.joined(ENV) == {}
    assert not ctx.completed()


def test_a_member_that_lost_its_lease_joins_with_new_numbers(training, ctx):
    def lose():
        training.members.leave(ENV, "guest")  # As if it was silent for too long.
        training.members.join(ENV, "other", 1)

    def stop_if_moved():
        moved = training.numbers()[-1] != (4, 5)
        training.on_step[len(training.rows) + 1] = (
            ctx.request_stop if moved else stop_if_moved
        )

    training.on_step[10] = lose
    training.on_step[11] = stop_if_moved
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert sorted(set(training.numbers())) == [(4, 5), (5, 6)]
    found = training.incarnations()
    assert found == sorted(found)
    assert found[-1] == 3


def test_a_member_whose_numbers_are_rejected_joins_again(training, ctx):
    """They belong to another process, or to an earlier launcher."""

    def reject():
        training.on_step[11] = ctx.request_stop
        raise NumberError("'envid' 4 belongs to incarnation 7")

    training.on_step[10] = reject
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert training.incarnations() == [1] * 10 + [2]


def test_a_member_joins_the_next_launcher(training, ctx):
    """Which may have other addresses, so it has to be asked again."""

    def stop_if_joined():
        again = training.incarnations()[-1] > 1
        training.on_step[len(training.rows) + 1] = (
            ctx.request_stop if again else stop_if_joined
        )

    training.on_step[10] = training.restart
    training.on_step[11] = stop_if_joined
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert set(training.numbers()) == {(4, 5)}  # Its numbers were kept for it.
    assert training.incarnations()[-1] == 2


def test_a_lease_that_cannot_be_renewed_is_not_relied_on(training, ctx, monkeypatch):
    leases = {ENV: 0.0}  # It may have expired by now.
    monkeypatch.setattr(training.members, "leases", leases)
    own = member.Member(training.invitation, ENTRY, ctx)
    own.join()
    own.close()
    with pytest.raises(member.LeaseLostError):
        own.keep()


def test_other_spaces_are_rejected(training, ctx):
    other = spacefile.encode(Dummy("cont").obs_space, Dummy("cont").act_space)
    with pytest.raises(rpc.RemoteError, match=r"'act_cont': float32.* instead of no"):
        member.describe(training.invitation, ENV, other)
    entry = ENTRY._replace(spaces=other)
    with pytest.raises(
        FinalError, match="rejects guest: its environment is not that of the run"
    ):
        joined_env(make_env, training.invitation, entry, ctx=ctx)


def test_too_many_environments_are_rejected(training, ctx):
    entry = ENTRY._replace(envs=10**6)
    with pytest.raises(FinalError, match="a member may have 1 to 1024"):
        joined_env(make_env, training.invitation, entry, ctx=ctx)


def test_a_member_comes_after_the_end(training, ctx):
    training.members.end(ENV)
    joined_env(make_env, training.invitation, ENTRY, ctx=ctx)
    assert not training.rows


def test_it_can_be_stopped_while_it_waits(ctx):
    ctx.request_stop()
    invitation = member.Invitation(rpc.resolve("ipc://{auto}"), None)
    joined_env(make_env, invitation, ENTRY, ctx=ctx)


def test_addresses_of_all_interfaces_are_those_of_the_coordinator():
    facts = {"actor_addr": "tcp://0.0.0.0:7001", "seed": 3, "logger_addr": "ipc://x"}
    facts["replay_addr"] = "tcp://10.0.0.6:7002"
    found = member._reachable(facts, "tcp://10.0.0.5:7000")
    assert found == {**facts, "actor_addr": "tcp://10.0.0.5:7001"}
