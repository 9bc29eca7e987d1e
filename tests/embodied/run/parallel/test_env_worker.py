"""The env worker: rows, routing, numbers of steps; the loop around it; the roles."""

from concurrent.futures import Future
from functools import partial as bind

import numpy as np
import pytest

from embodied import rpc
from embodied.core.batchenv import SequentialEnvs
from embodied.envs.dummy import Dummy
from embodied.process.context import Context
from embodied.run.parallel import connections, routing
from embodied.run.parallel import env as env_module
from embodied.run.parallel.env import EnvWorker, env_roles
from embodied.run.parallel.member import LeaseLostError
from embodied.run.settings import RunSettings

IDS = (3, 5)
LENGTH = 4  # Steps per episode, not counting the first.


def make_worker(is_eval=False):
    envs = [Dummy("both", size=(8, 8), length=LENGTH, seed=index) for index in IDS]
    return EnvWorker(SequentialEnvs(envs), IDS, is_eval)


def make_action(reset=False):
    return {
        "act_disc": np.zeros(len(IDS), np.int32),
        "act_cont": np.zeros((len(IDS), 6), np.float32),
        "reset": np.full(len(IDS), reset),
    }


def test_rows_are_stacked_with_their_routing():
    worker = make_worker(is_eval=True)
    rows = worker.step(worker.reset_action())
    spaces = {**Dummy("both", size=(8, 8), length=LENGTH).obs_space, **routing.SPACES}
    assert set(rows) == set(spaces)
    for key, space in spaces.items():
        assert rows[key].shape == (len(IDS), *space.shape), key
        assert rows[key].dtype == space.dtype, key
        for row in rows[key]:
            assert row in space, key
    assert rows[routing.ENVID].tolist() == list(IDS)
    assert rows[routing.IS_EVAL].tolist() == [True, True]
    assert (rows[routing.ENV_TIME] >= 0).all()
    assert not make_worker().step(make_action())[routing.IS_EVAL].any()


def test_each_environment_gets_its_row_of_the_action():
    worker = make_worker()
    worker.step(worker.reset_action())
    action = {**make_action(), "act_disc": np.array([0, 1], np.int32)}
    assert worker.step(action)["reward"].tolist() == [1, 0]
    action = {**make_action(), "reset": np.array([False, True])}
    rows = worker.step(action)
    assert rows["is_first"].tolist() == [False, True]
    assert rows["count"].tolist() == [2, 0]


def test_the_reset_action_fits_the_space():
    action = make_worker().reset_action()
    space = Dummy("both").act_space
    assert set(action) == set(space)
    assert action["reset"].tolist() == [True, True]
    for key in space:
        assert action[key].shape == (len(IDS), *space[key].shape)
        assert action[key].dtype == space[key].dtype


def test_numbers_grow_by_one_with_each_step():
    worker = make_worker()
    worker.step(worker.reset_action())
    seqs = [worker.step(make_action())[routing.SEQ] for _ in range(3 * LENGTH)]
    assert all((seq == seq[0]).all() for seq in seqs)
    assert set(np.diff([seq[0] for seq in seqs])) == {1}


def test_a_reset_action_leaves_a_gap():
    worker = make_worker()
    before = worker.step(make_action())[routing.SEQ][0]
    rows = worker.step(worker.reset_action())
    assert rows[routing.SEQ][0] == before + 2
    assert rows["is_first"].all()
    assert worker.step(make_action())[routing.SEQ][0] == before + 3


def test_a_later_incarnation_has_larger_numbers():
    first, second = make_worker(), make_worker()
    first.begin(Context(incarnation=7).first_number)
    second.begin(Context(incarnation=8).first_number)
    for _ in range(1000):
        earlier = first.step(make_action())[routing.SEQ]
    later = second.step(second.reset_action())[routing.SEQ]
    assert (later > earlier + 1).all()
    assert later.dtype == np.int64


class FakeActor:
    """Answers calls with actions or errors, and asks to stop after the last."""

    def __init__(self, answers, stop):
        self._answers = list(answers)
        self._stop = stop
        self.rows = []

    def call_rows(self, method, rows, timeout):
        return self.call(method, (rows,), timeout)

    def call(self, method, args=(), timeout=0):
        assert timeout > 0
        assert method == "act"
        self.rows.append(args[0])
        answer = self._answers.pop(0)
        future = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
        if not self._answers:
            self._stop()
        return future


def test_the_loop_steps_with_what_the_actor_says(ctx):
    actor = FakeActor([make_action()] * 3, ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert [rows["count"][0] for rows in actor.rows] == [0, 1, 2]
    assert set(np.diff([rows[routing.SEQ][0] for rows in actor.rows])) == {1}


def test_a_new_actor_means_new_episodes(ctx):
    answers = [make_action(), make_action(reset=True), make_action(), make_action()]
    actor = FakeActor(answers, ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert [rows["count"][0] for rows in actor.rows] == [0, 1, 0, 1]
    assert [rows["is_first"][0] for rows in actor.rows] == [True, False, True, False]
    assert np.diff([rows[routing.SEQ][0] for rows in actor.rows]).tolist() == [1, 2, 1]


def test_numbers_are_those_of_the_incarnation_of_the_process(monkeypatch):
    ctx = Context(incarnation=9)
    actor = FakeActor([make_action()] * 2, ctx.request_stop)
    actor.close = bool
    monkeypatch.setattr(connections, "reach", lambda *args, **options: actor)
    args = {"logdir": "unused", "actor_addr": "ipc:///tmp/unused"}
    make = bind(Dummy, "both", size=(8, 8), length=LENGTH)
    env_module.parallel_env(lambda index: make(), IDS, args, ctx=ctx)
    seqs = [int(rows[routing.SEQ][0]) for rows in actor.rows]
    assert {seq >> routing.INCARNATION_BITS for seq in seqs} == {9}
    assert actor.rows[0][routing.ENVID].tolist() == list(IDS)


def test_a_reset_after_the_last_step_leaves_no_gap(ctx):
    answers = [make_action(reset=i == LENGTH) for i in range(2 * LENGTH)]
    actor = FakeActor(answers, ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert [rows["is_first"][0] for rows in actor.rows].count(True) == 2
    assert set(np.diff([rows[routing.SEQ][0] for rows in actor.rows])) == {1}


OVER = rpc.RemoteError("act", "RunOverError", "the run has ended", "")


def test_the_end_of_the_run_ends_the_loop(ctx):
    actor = FakeActor([make_action(), OVER, make_action()], ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert len(actor.rows) == 2
    assert not ctx.stopping()


def test_who_comes_after_the_end_of_the_run_does_not_go_on(ctx):
    actor = FakeActor([OVER, make_action()], ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert len(actor.rows) == 1


def test_what_keeps_the_lease_can_end_the_loop_while_it_waits(ctx):
    class Silent:
        def call_rows(self, method, rows, timeout):
            return Future()  # Without an answer.

    kept = iter([None, None])

    def keep():
        try:
            next(kept)
        except StopIteration:
            raise LeaseLostError from None

    with pytest.raises(LeaseLostError):
        env_module.run(make_worker(), Silent(), ctx, keep)
    assert not ctx.stopping()


def test_an_actor_that_is_away_is_asked_again(ctx):
    answers = [make_action(), TimeoutError("away"), make_action(), make_action()]
    actor = FakeActor(answers, ctx.request_stop)
    env_module.run(make_worker(), actor, ctx)
    assert [rows["is_first"][0] for rows in actor.rows] == [True, False, True, False]


def test_any_other_error_ends_the_loop(ctx):
    actor = FakeActor([make_action(), ValueError("bad")], ctx.request_stop)
    with pytest.raises(ValueError, match="bad"):
        env_module.run(make_worker(), actor, ctx)


def test_roles_cover_each_environment_once():
    args = {"logdir": "unused", "envs": 5, "eval_envs": 3, "envs_per_process": 2}
    roles = env_roles("train", "eval", RunSettings.of(args))
    assert [role.name for role in roles] == ["env0", "env2", "env4", "eval5", "eval7"]
    found = [(role.args[0], role.args[1], role.args[3]) for role in roles]
    assert found == [
        ("train", (0, 1), False),
        ("train", (2, 3), False),
        ("train", (4,), False),
        ("eval", (5, 6), True),
        ("eval", (7,), True),
    ]
