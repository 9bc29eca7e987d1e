"""The actor: groups of rows, carries by environment, masks, forgetting, figures."""

import contextlib
import itertools
import threading
import types

import elements
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embodied import rpc
from embodied.core import base
from embodied.process.context import Context
from embodied.run.parallel import actor as actor_module
from embodied.run.parallel import connections, routing
from embodied.run.parallel.actor import (
    Actor,
    CarryPolicy,
    batch_size,
    make_server,
    split,
)
from embodied.run.parallel.answers import FORGET_AFTER
from embodied.run.parallel.shutdown import Departures
from embodied.run.parallel.steps import StepNumbers
from embodied.run.settings import RunSettings
from embodied.testing import NumpyAgent

OBS_SPACE = {"token": elements.Space(np.int32, (), 0, 100)}
ACT_SPACE = {
    "reset": elements.Space(bool),
    "disc": elements.Space(np.int32, (), 1, 5),
    "cont": elements.Space(np.float32, (2, 3), 0.5, 1),
}


class EchoAgent(NumpyAgent):
    """Its action is the token it sees; keeps its calls."""

    def __init__(self, *args):
        super().__init__(*args)
        self.calls = []

    def policy(self, carry, obs, mode="train"):
        self.calls.append((mode, sorted(obs), obs["token"].tolist()))
        carry, _, outs = super().policy(carry, obs, mode)
        evals = np.full(len(obs["token"]), mode == "eval")
        return carry, {"disc": obs["token"]}, {**outs, "latent/eval": evals}


class FakeOutbox:
    """Keeps what is sent; has room."""

    def __init__(self):
        self.waits = 0
        self.sent = []

    def wait_room(self):
        self.waits += 1

    def send(self, steps):
        self.sent.append(steps)


@pytest.fixture
def clock(monkeypatch):
    """The time of the actor, which passes only when told to."""

    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

    clock = Clock()
    fake = types.SimpleNamespace(monotonic=clock.monotonic)
    monkeypatch.setattr(actor_module, "time", fake)
    return clock


def make_agent(cls=NumpyAgent):
    return cls(OBS_SPACE, ACT_SPACE)


def test_one_mode_is_one_group():
    assert split([4, 2, 3], [False] * 3) == [("train", [0, 1, 2])]
    assert split([4, 2], [True] * 2) == [("eval", [0, 1])]


def test_modes_are_groups():
    groups = [("train", [0, 2]), ("eval", [1, 3])]
    assert split([0, 8, 1, 9], [False, True, False, True]) == groups


def test_a_repeated_environment_waits_for_its_turn():
    groups = [("train", [0, 2]), ("train", [1]), ("train", [3])]
    assert split([5, 5, 6, 5], [False] * 4) == groups


def test_modes_and_turns():
    groups = [("train", [0]), ("eval", [1, 2]), ("train", [3]), ("eval", [4])]
    assert split([0, 8, 9, 0, 8], [False, True, True, False, True]) == groups


@settings(deadline=None)  # A busy machine is no failure.
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=20))
def test_groups_hold_each_row_once_and_each_environment_in_order(rows):
    names, evals = [name for name, _ in rows], [is_eval for _, is_eval in rows]
    groups = split(names, evals)
    order = [row for _, group in groups for row in group]
    assert sorted(order) == list(range(len(rows)))
    for mode, group in groups:
        assert len({names[row] for row in group}) == len(group)
        assert {evals[row] for row in group} == {mode == "eval"}
    for name in set(names):
        turns = [row for row in order if names[row] == name]
        assert turns == sorted(turns)


def test_environments_without_numbers_get_some_of_the_actor(make_steps):
    one, two = 3 << routing.INCARNATION_BITS, 8 << routing.INCARNATION_BITS
    starts = iter([one, two])
    actor = Actor(make_agent(), FakeOutbox(), first=lambda: next(starts))
    for count in (1, 2):
        seqs = [routing.UNNUMBERED, 16 + count, routing.UNNUMBERED]
        rows = make_steps([4, 5, 6], seqs, count == 1)
        _, steps = actor.act(rows, 3)
        assert steps[routing.SEQ].tolist() == [one + count, 16 + count, two + count]


def test_numbers_are_larger_than_those_of_senders_that_number(make_steps):
    start = 3 << routing.INCARNATION_BITS
    actor = Actor(make_agent(), FakeOutbox(), first=lambda: start)
    later = 9 << routing.INCARNATION_BITS
    numbers = []
    for seq in (routing.UNNUMBERED, start + 2, later, routing.UNNUMBERED, later + 5):
        _, steps = actor.act(make_steps([4], [seq], not numbers), 1)
        numbers += steps[routing.SEQ].tolist()
    assert numbers == [start + 1, start + 2, later, later + 1, later + 5]


def test_results_of_groups_come_back_in_the_order_of_the_rows(make_steps):
    agent = make_agent(EchoAgent)
    actor = Actor(agent, FakeOutbox())
    tokens = np.arange(10, 16, dtype=np.int32)
    evals = np.array([True, False, False, True, False, False])
    envids = [8, 0, 1, 9, 0, 0]
    firsts = [True, True, True, True, False, False]
    rows = make_steps(envids, range(6), firsts, is_eval=evals, token=tokens)
    actions, steps = actor.act(rows, 6)
    assert len(agent.calls) == 4
    np.testing.assert_array_equal(actions["disc"], tokens)
    np.testing.assert_array_equal(steps["disc"], tokens)
    np.testing.assert_array_equal(steps["latent/eval"], evals)
    # The rows of environment 0 are steps one after the other.
    np.testing.assert_array_equal(steps[NumpyAgent.LATENT], [0, 0, 0, 0, 1, 2])


def test_the_policy_sees_neither_routing_nor_logs_nor_padding(make_steps):
    agent = make_agent(EchoAgent)
    rows = make_steps([0, 1, 0, 0], range(4), True, token=np.arange(4, dtype=np.int32))
    rows["log/speed"] = np.ones(4)
    actions, steps = Actor(agent, FakeOutbox()).act(rows, 2)
    keys = sorted(["token", "reward", "is_first", "is_last", "is_terminal"])
    assert agent.calls == [("train", keys, [0, 1])]
    assert {len(value) for value in (*actions.values(), *steps.values())} == {2}
    assert set(rows) <= set(steps)


def test_numbers_begin_beyond_those_of_earlier_incarnations(make_steps):
    """Also of an environment that has numbered its steps so far."""
    start = 6 << routing.INCARNATION_BITS
    actor = Actor(make_agent(), FakeOutbox(), first=lambda: start)
    numbers = []
    for seq in (
        (5 << routing.INCARNATION_BITS) + 9,
        routing.UNNUMBERED,
        routing.UNNUMBERED,
    ):
        _, steps = actor.act(make_steps([4], [seq], not numbers), 1)
        numbers += steps[routing.SEQ].tolist()
    assert numbers == [(5 << routing.INCARNATION_BITS) + 9, start + 1, start + 2]


def test_numbers_of_the_actor_grow_with_its_incarnation_and_the_clock(monkeypatch):
    issued = Context(incarnation=1 << 29)  # The clock is behind.
    assert actor_module.first_number(issued) == issued.first_number
    earlier = Context(incarnation=1)  # An environment may have joined since.
    first = actor_module.first_number(earlier)
    assert first > earlier.first_number
    assert actor_module.first_number(earlier) > first


def test_numbered_batches_are_returned_as_they_are():
    """No work for each row, also while another environment is unnumbered."""
    numbers = StepNumbers(lambda: 1)
    numbers.fill(np.array([routing.UNNUMBERED]), np.array([7], np.int32))
    seqs = np.array([5, 6])
    assert numbers.fill(seqs, np.array([0, 1], np.int32)) is seqs
    assert numbers.fill(seqs, np.array([0, 7], np.int32)) is not seqs


@pytest.mark.parametrize("known", [False, True])
def test_logs_that_the_agent_does_not_know_pass_through(tmp_path, make_steps, known):
    """From any environment of the run and from one that joins."""
    logs = {"log/speed": elements.Space(np.float32)} if known else {}
    agent = NumpyAgent({**base.special_spaces(), **OBS_SPACE, **logs}, ACT_SPACE)
    outbox = FakeOutbox()
    actor = Actor(agent, outbox)
    args = elements.Config(logdir=str(tmp_path), actor_addr=f"ipc://{tmp_path}/actor")
    server = make_server(actor, agent, RunSettings.of(args))
    server.start(block=False)
    client = rpc.Client(server.address, "env")
    with contextlib.closing(server), contextlib.closing(client):
        rows = make_steps([3, 4], [1, 1], True, token=np.zeros(2, np.int32))
        rows["log/speed"], rows["log/wins"] = np.ones(2, np.float32), np.arange(2)
        client.act(rows).result()
        del rows["log/speed"], rows["log/wins"]
        rows[routing.SEQ] += 1
        client.act(rows).result()
    with_logs, without = outbox.sent
    assert with_logs["log/speed"].tolist() == [1, 1]
    assert with_logs["log/wins"].tolist() == [0, 1]
    assert not [key for key in without if key.startswith(base.LOG_PREFIX)]


class FiniteAgent(NumpyAgent):
    """Fails if it sees a number that is none, as debugging tools do."""

    def policy(self, carry, obs, mode="train"):
        assert all(np.isfinite(value).all() for value in obs.values())
        return super().policy(carry, obs, mode)


@pytest.fixture
def act_over_network(tmp_path):
    """Serves an actor; a function that calls it for several clients at once."""
    with contextlib.ExitStack() as stack:

        def call(*requests, agent=None, **settings):
            agent = agent or NumpyAgent(
                {**base.special_spaces(), **OBS_SPACE}, ACT_SPACE
            )
            args = {"logdir": str(tmp_path), "actor_addr": rpc.resolve("{auto}")}
            args |= {"actor_batch": len(requests), "actor_timeout": 60.0, **settings}
            outbox = FakeOutbox()
            server = make_server(Actor(agent, outbox), agent, RunSettings.of(args))
            server.start(block=False)
            stack.callback(server.close)
            futures = []
            for request in requests:
                client = rpc.Client(server.address, "env")
                stack.callback(client.close)
                futures.append(client.act(request))
            errors = [future.exception(30) for future in futures]
            return errors, outbox, server

        yield call


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("reward", np.float32("nan"), "'reward' is nan, which is not a finite number"),
        ("token", np.int32(100), "'token' is 100, its space allows 0 to 99"),
        (routing.ENVID, np.int32(-4), "'envid' is -4, its space allows 0 to"),
        (routing.ENVID, np.int32(routing.MAX_ENVS), "'envid' is 1073741824, its"),
        (routing.SEQ, np.int64(-2), "'seq' is -2, its space allows -1 to"),
    ],
)
def test_a_bad_value_is_the_fault_of_its_sender_alone(
    act_over_network, make_steps, until, key, value, message
):
    requests = [
        make_steps([envid], [1], True, token=np.zeros(1, np.int32))
        for envid in range(4)
    ]
    requests[2][key] = np.array([value])
    spaces = {**base.special_spaces(), **OBS_SPACE}
    agent = FiniteAgent(spaces, ACT_SPACE)
    errors, outbox, server = act_over_network(*requests, agent=agent)
    assert message in str(errors[2])
    assert [error for error in errors if error] == [errors[2]]
    until(lambda: outbox.sent)
    assert sorted(outbox.sent[0][routing.ENVID].tolist()) == [0, 1, 3]
    assert server.stats()["act/rejected"] == 1


def test_actions_after_the_last_step_are_zero_and_reset(make_steps):
    outbox = FakeOutbox()
    actor = Actor(make_agent(), outbox)
    last = np.array([False, True, False, True])
    rows = make_steps(range(4), range(4), True, last, token=np.zeros(4, np.int32))
    actions, steps = actor.act(rows, 4)
    np.testing.assert_array_equal(actions["reset"], last)
    assert actions["disc"].dtype == np.int32
    assert actions["cont"].dtype == np.float32
    for key in ("disc", "cont"):
        assert not actions[key][last].any()
        assert actions[key][~last].all()
        np.testing.assert_array_equal(steps[key], actions[key])
    assert "reset" not in steps
    assert (outbox.waits, outbox.sent) == (1, [])
    actor.post(steps)
    assert outbox.sent == [steps]


def test_the_latent_counts_the_steps_of_each_environment():
    rng = np.random.default_rng(0)
    policy = CarryPolicy(make_agent())
    counts = {}
    for _ in range(100):
        names = rng.permutation(6)[: rng.integers(1, 7)].tolist()
        first = rng.random(len(names)) < 0.2
        _, outs = policy.act(names, {base.IS_FIRST: first}, "train")
        for name, begins in zip(names, first, strict=True):
            counts[name] = 0 if begins else counts.get(name, 0) + 1
        assert outs[NumpyAgent.LATENT].tolist() == [counts[name] for name in names]
    assert len(policy) == 6


def test_a_carry_may_be_a_tree():
    class TreeAgent(NumpyAgent):
        def init_policy(self, batch_size):
            return {"count": super().init_policy(batch_size), "h": (np.zeros((1, 3)),)}

        def policy(self, carry, obs, mode="train"):
            count, action, outs = super().policy(carry["count"], obs, mode)
            hidden = carry["h"][0] + 1
            assert (hidden == hidden[:, :1]).all()
            outs["latent/h"] = hidden[:, 0]
            return {"count": count, "h": (hidden,)}, action, outs

    policy = CarryPolicy(make_agent(TreeAgent))
    later = {base.IS_FIRST: np.zeros(1, bool)}
    policy.act([0], later, "train")
    policy.act([1], later, "train")
    policy.act([0], later, "train")
    both = {base.IS_FIRST: np.zeros(2, bool)}
    _, outs = policy.act([1, 0], both, "train")
    assert outs["latent/h"].tolist() == outs[NumpyAgent.LATENT].tolist() == [2, 3]


def test_a_freed_environment_starts_anew():
    policy = CarryPolicy(make_agent())
    later = {base.IS_FIRST: np.zeros(1, bool)}
    for _ in range(3):
        policy.act([0], later, "train")
    policy.free([0, 77])
    assert len(policy) == 0
    _, outs = policy.act([0], later, "train")
    assert outs[NumpyAgent.LATENT].tolist() == [1]


def test_silent_environments_are_freed(clock, make_steps):
    actor, seqs = Actor(make_agent(), FakeOutbox()), itertools.count()

    def act(*envids, first=False):
        tokens = np.zeros(len(envids), int)
        rows = make_steps(envids, [next(seqs)] * len(envids), first, token=tokens)
        _, steps = actor.act(rows, len(envids))
        return steps[NumpyAgent.LATENT].tolist()

    def states():
        return actor.stats()["parallel/ep_states"]

    assert act(0, 1, first=True) == [0, 0]
    clock.now += 0.9 * FORGET_AFTER
    assert act(0) == [1]
    assert states() == 2
    clock.now += 0.2 * FORGET_AFTER
    assert act(0) == [2]
    assert states() == 1
    clock.now += 1.1 * FORGET_AFTER
    # One that comes back is not silent, however long it took.
    assert act(0, 1, first=[False, True]) == [3, 0]
    assert states() == 2


def act_all(actor, rows):
    return actor.act(rows, len(rows[routing.ENVID]))


def test_a_repeated_step_is_answered_again_without_the_policy(make_steps):
    agent = make_agent(EchoAgent)
    actor = Actor(agent, FakeOutbox())
    tokens = np.array([5, 6], np.int32)
    rows = make_steps([3, 4], [7, 7], True, [False, True], token=tokens)
    first, _ = act_all(actor, rows)
    again, steps = act_all(actor, rows)
    assert len(agent.calls) == 1
    assert first.keys() <= again.keys()
    for key, value in first.items():
        np.testing.assert_array_equal(again[key], value)
        assert again[key].dtype == value.dtype
    assert len(steps[routing.ENVID]) == 0


def test_new_and_repeated_rows_of_one_batch(make_steps):
    agent = make_agent(EchoAgent)
    actor = Actor(agent, FakeOutbox())
    act_all(actor, make_steps([3], [7], True, token=np.array([5])))
    firsts = [True, True, True, False]
    tokens = np.array([6, 5, 6, 9])
    rows = make_steps([4, 3, 4, 5], [1, 7, 1, 2], firsts, token=tokens)
    actions, steps = act_all(actor, rows)
    assert actions["disc"].tolist() == [6, 5, 6, 0]
    assert actions["reset"].tolist() == [False, False, False, True]
    assert steps[routing.ENVID].tolist() == [4]
    assert steps[routing.SEQ].tolist() == [1]


def test_an_episode_of_an_earlier_actor_is_not_continued(make_steps):
    agent = make_agent(EchoAgent)
    actor = Actor(agent, FakeOutbox())
    rows = make_steps([3, 4], [7, 1], [False, True], token=np.array([5, 6]))
    actions, steps = act_all(actor, rows)
    assert actions["reset"].tolist() == [True, False]
    assert actions["disc"].tolist() == [0, 6]
    assert steps[routing.ENVID].tolist() == [4]
    actions, _ = act_all(actor, make_steps([3], [9], True, token=np.array([2])))
    assert actions["disc"].tolist() == [2]
    assert not actions["reset"].any()


def test_a_step_that_arrives_late_is_not_acted_on(make_steps):
    """From a connection that was lost, after the environment has moved ahead."""
    agent = make_agent(EchoAgent)
    actor = Actor(agent, FakeOutbox())
    act_all(actor, make_steps([3], [7], True, token=np.array([5])))
    act_all(actor, make_steps([3], [8], False, token=np.array([6])))
    actions, steps = act_all(actor, make_steps([3], [7], True, token=np.array([5])))
    assert actions["reset"].tolist() == [True]
    assert len(steps[routing.ENVID]) == 0
    assert len(agent.calls) == 2


def test_an_agent_with_slots_keeps_the_state_itself(make_steps):
    class Slots(CarryPolicy):
        pass

    agent = make_agent()
    made = []
    agent.slots = lambda: made.append(Slots(agent)) or made[-1]
    actor = Actor(agent, FakeOutbox())
    actor.act(make_steps([3], [0], True, token=np.zeros(1, int)), 1)
    assert [len(slots) for slots in made] == [1]


def test_stats(clock, make_steps):
    class SlowAgent(NumpyAgent):
        def policy(self, carry, obs, mode="train"):
            clock.now += 1.0
            return super().policy(carry, obs, mode)

    actor = Actor(make_agent(SlowAgent), FakeOutbox())
    assert actor.stats()["fps/env"] == 0
    actor.act(make_steps([0, 1], [0, 0], True, token=np.zeros(2, int)), 2)
    clock.now += 3.0
    stats = actor.stats()
    assert stats["parallel/actor_busy"] == pytest.approx(1 / 4)
    assert stats["fps/env"] == pytest.approx(2 / 0.5)
    clock.now += 1.0
    assert actor.stats()["parallel/actor_busy"] == 0


@pytest.mark.parametrize(
    ("envs", "evals", "wanted", "per_process", "size"),
    [
        (8, 2, 0, 1, 5),  # Half of all.
        (1, 0, 0, 1, 1),
        (8, 2, 3, 1, 3),
        (4, 0, 99, 1, 4),  # Never more than there are.
        (8, 0, 2, 4, 4),  # Never less than come together.
    ],
)
def test_batch_size(envs, evals, wanted, per_process, size):
    args = {"envs": envs, "eval_envs": evals, "actor_batch": wanted}
    args |= {"logdir": "unused", "envs_per_process": per_process}
    assert batch_size(RunSettings.of(args)) == size


def test_steps_may_be_held_back_for_long(monkeypatch, ctx):
    calls = []

    class Replay:
        def call(self, method, args, timeout):
            calls.append((method, args, timeout))

    def make(send, tell, **options):
        known = {"recorded": (0, 3), "total": 17, "limit": 99}
        assert options == {**known, "stopping": ctx.stopping}
        return send

    monkeypatch.setattr(actor_module, "Outbox", make)
    args = RunSettings.of({"logdir": "unused", "envs": 3, "steps": 99})
    feed = types.SimpleNamespace(put=None)
    state = {"actor": 3, "total": 17}
    actor_module.make_outbox(Replay(), feed, state, args, ctx)("steps")
    assert calls == [("add_batch", ("steps", 3), connections.STORED)]


def test_a_first_step_that_an_earlier_actor_stored_is_not_acted_on(make_steps):
    """Its action was lost with that actor: another one would not be the stored one."""
    actor = Actor(make_agent(), FakeOutbox(), stored={0: 7})
    reply, steps = actor.act(make_steps([0, 1], [7, 7], True), 2)
    assert reply["reset"].tolist() == [True, False]
    assert steps["envid"].tolist() == [1]
    reply, steps = actor.act(make_steps([0, 1], [9, 9], True), 2)
    assert not reply["reset"].any()
    assert steps["envid"].tolist() == [0, 1]


def test_a_policy_that_hangs_makes_no_progress(make_steps, start):
    inside, leave = threading.Event(), threading.Event()

    class HungAgent(NumpyAgent):
        def policy(self, carry, obs, mode="train"):
            inside.set()
            leave.wait(10)
            return super().policy(carry, obs, mode)

    actor = Actor(make_agent(HungAgent), FakeOutbox())
    assert actor.progressed()  # It has nothing to do.
    rows = make_steps([0], [0], True, token=np.zeros(1, int))
    thread = start(lambda: actor.act(rows, 1))
    assert inside.wait(10)
    assert not actor.progressed()
    leave.set()
    thread.join(10)
    assert actor.progressed()


def test_waiting_for_the_policy_is_not_being_busy_with_it(make_steps, monkeypatch):
    actor = Actor(make_agent(), FakeOutbox())
    locked = {}

    @contextlib.contextmanager
    def section(name):
        locked[name] = actor._lock.locked()
        yield

    monkeypatch.setattr(actor._timer, "section", section)
    actor.act(make_steps([0], [0], True, token=np.zeros(1, int)), 1)
    assert locked == {"wait": False, "policy": True}


def test_environments_of_one_process_take_turns(clock, make_steps):
    actor = Actor(make_agent(), FakeOutbox(), envs_per_process=2)
    actor.act(make_steps([0, 1], [0, 0], True, token=np.zeros(2, int)), 2)
    clock.now += 4.0
    stats = actor.stats()  # Each step took half a second of the same process.
    assert stats["fps/env"] == pytest.approx(2)
    assert stats["parallel/env_busy"] == pytest.approx(1 / 4)
    assert stats["parallel/env_wait"] == pytest.approx(3 / 4)


def test_environments_that_know_only_the_actor_learn_of_the_end(make_steps, start):
    departures = Departures(amount=4)
    actor = Actor(make_agent(), FakeOutbox(), departures=departures)
    actor.act(make_steps([0, 1, 9], range(3), True, token=np.zeros(3, np.int32)), 3)
    result = []
    thread = start(lambda: result.append(departures.end(timeout=30)))
    told = 0
    while told < 2:  # Until it has ended, environments get actions.
        rows = make_steps([0], [5], True, token=np.zeros(1, np.int32))
        with contextlib.suppress(connections.RunOverError):
            actor.act(rows, 1)
            continue
        told += 1
    assert not result  # As one has not called; that with number 9 is a member.
    with pytest.raises(connections.RunOverError):
        actor.act(make_steps([1], [5], token=np.zeros(1, np.int32)), 1)
    thread.join(30)
    assert result == [True]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, False),  # The supervisor stops them.
        ({"remote_envs": True}, True),
        ({"remote_envs": True, "launcher": "ray"}, False),  # They are members.
    ],
)
def test_only_environments_of_scripts_depend_on_the_actor(changes, expected):
    args = RunSettings.of({"logdir": "unused", **changes})
    assert bool(actor_module.make_departures(args)) == expected
