"""The env worker: rows, routing, numbers of steps; the loop around it; the roles."""

from concurrent.futures import Future

import elements
import numpy as np
import pytest

from embodied import rpc
from embodied.core.batchenv import Separate
from embodied.envs.dummy import Dummy
from embodied.run.parallel import env as env_module
from embodied.run.parallel import wire
from embodied.run.parallel.env import EnvWorker, env_roles

IDS = (3, 5)
LENGTH = 4  # Steps per episode, not counting the first.


def make_worker(is_eval=False):
    envs = [Dummy("both", size=(8, 8), length=LENGTH, seed=index) for index in IDS]
    return EnvWorker(Separate(envs), IDS, is_eval)


def make_action(reset=False):
    return {
        "act_disc": np.zeros(len(IDS), np.int32),
        "act_cont": np.zeros((len(IDS), 6), np.float32),
        "reset": np.full(len(IDS), reset),
    }


def test_rows_are_stacked_with_their_routing():
    worker = make_worker(is_eval=True)
    rows = worker.step(worker.reset_action())
    spaces = {**Dummy("both", size=(8, 8), length=LENGTH).obs_space, **wire.ROUTING}
    assert set(rows) == set(spaces)
    for key, space in spaces.items():
        assert rows[key].shape == (len(IDS), *space.shape), key
        assert rows[key].dtype == space.dtype, key
        for row in rows[key]:
            assert row in space, key
    assert rows[wire.ENVID].tolist() == list(IDS)
    assert rows[wire.IS_EVAL].tolist() == [True, True]
    assert (rows[wire.ENV_TIME] >= 0).all()
    assert not make_worker().step(make_action())[wire.IS_EVAL].any()


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
    seqs = [worker.step(make_action())[wire.SEQ] for _ in range(3 * LENGTH)]
    assert all((seq == seq[0]).all() for seq in seqs)
    assert set(np.diff([seq[0] for seq in seqs])) == {1}


def test_a_reset_action_leaves_a_gap():
    worker = make_worker()
    before = worker.step(make_action())[wire.SEQ][0]
    rows = worker.step(worker.reset_action())
    assert rows[wire.SEQ][0] == before + 2
    assert rows["is_first"].all()
    assert worker.step(make_action())[wire.SEQ][0] == before + 3


def test_a_later_life_has_larger_numbers():
    first, second = make_worker(), make_worker()
    first.begin(7)
    second.begin(8)
    for _ in range(1000):
        earlier = first.step(make_action())[wire.SEQ]
    later = second.step(second.reset_action())[wire.SEQ]
    assert (later > earlier + 1).all()
    assert later.dtype == np.int64


class FakeActor:
    """Answers calls with actions or errors, and asks to stop after the last."""

    def __init__(self, answers, stop):
        self._answers = list(answers)
        self._stop = stop
        self.rows = []
        self.lives = [5]  # Answers to `enroll`.

    def call(self, method, args=(), timeout=0):
        assert timeout > 0
        if method == "enroll":
            answer = self.lives.pop(0)
        else:
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


def test_the_loop_steps_with_what_the_actor_says(fresh_role):
    actor = FakeActor([make_action()] * 3, fresh_role.request_stop)
    env_module.run(make_worker(), actor)
    assert [rows["count"][0] for rows in actor.rows] == [0, 1, 2]
    assert set(np.diff([rows[wire.SEQ][0] for rows in actor.rows])) == {1}


def test_a_new_actor_means_new_episodes(fresh_role):
    answers = [make_action(), rpc.ServerRestarted("again"), make_action(), {}]
    actor = FakeActor(answers, fresh_role.request_stop)
    env_module.run(make_worker(), actor)
    assert [rows["count"][0] for rows in actor.rows] == [0, 1, 0, 1]
    assert [rows["is_first"][0] for rows in actor.rows] == [True, False, True, False]
    assert np.diff([rows[wire.SEQ][0] for rows in actor.rows]).tolist() == [1, 2, 1]


def test_numbers_are_those_of_the_life_that_the_actor_gave(fresh_role):
    actor = FakeActor([make_action()] * 2, fresh_role.request_stop)
    actor.lives = [rpc.ServerRestarted("again"), TimeoutError("away"), 9]
    env_module.run(make_worker(), actor)
    lives = {int(rows[wire.SEQ][0]) >> wire.LIFE_BITS for rows in actor.rows}
    assert lives == {9}
    assert not actor.lives


OVER = rpc.RemoteError("act", "RunOverError", "the run is over", "")


def test_the_end_of_the_run_ends_the_loop(fresh_role):
    actor = FakeActor([make_action(), OVER, make_action()], fresh_role.request_stop)
    env_module.run(make_worker(), actor)
    assert len(actor.rows) == 2
    assert not fresh_role.stopping()


def test_who_comes_after_the_end_of_the_run_does_not_begin(fresh_role):
    actor = FakeActor([make_action()], fresh_role.request_stop)
    actor.lives = [OVER]
    env_module.run(make_worker(), actor)
    assert actor.rows == []


def test_an_actor_that_is_away_is_asked_again(fresh_role):
    answers = [make_action(), TimeoutError("away"), make_action(), {}]
    actor = FakeActor(answers, fresh_role.request_stop)
    env_module.run(make_worker(), actor)
    assert [rows["is_first"][0] for rows in actor.rows] == [True, False, True, False]


def test_any_other_error_ends_the_loop(fresh_role):
    actor = FakeActor([make_action(), ValueError("bad")], fresh_role.request_stop)
    with pytest.raises(ValueError, match="bad"):
        env_module.run(make_worker(), actor)


def test_roles_cover_each_environment_once():
    args = elements.Config(
        envs=5, eval_envs=3, envs_per_process=2, budget=3, env_timeout=10.0
    )
    roles = env_roles("train", "eval", args)
    assert [role.name for role in roles] == ["env0", "env2", "env4", "eval5", "eval7"]
    found = [(role.args[0], role.args[1], role.args[3]) for role in roles]
    assert found == [
        ("train", (0, 1), False),
        ("train", (2, 3), False),
        ("train", (4,), False),
        ("eval", (5, 6), True),
        ("eval", (7,), True),
    ]
