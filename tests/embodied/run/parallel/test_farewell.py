"""The farewell: environments, replay and logger elsewhere hear that the run is over."""

import threading

import elements
import numpy as np
import pytest

from embodied import rpc
from embodied.run.parallel import ensemble, farewell, wire


def make_args(tmp_path, **changes):
    args = {"logdir": str(tmp_path), "key_dir": "", "envs": 2, "eval_envs": 1}
    args |= {"remote_envs": True, "learners": 1}
    names = ("actor_addr", "replay_addr", "logger_addr", "learner_addr")
    args |= {name: rpc.resolve("ipc://{auto}") for name in names}
    return elements.Config({**args, **changes})


def call_act(args, ids):
    client = rpc.Client(args.actor_addr)
    error = client.act({wire.ENVID: np.array(ids, np.int32)}).exception()
    client.close()
    return error


def test_environments_are_dismissed_and_counted(tmp_path, start):
    args = make_args(tmp_path)
    result = []
    thread = start(lambda: result.append(farewell.dismiss_envs(args, patience=30)))
    assert wire.is_over(call_act(args, [0]))
    assert wire.is_over(call_act(args, [0]))  # Asked again: the answer is the same.
    assert wire.is_over(call_act(args, [1, 2]))
    thread.join(20)
    assert result == [True]


def test_one_that_begins_is_dismissed_too(tmp_path, start):
    args = make_args(tmp_path)
    thread = start(lambda: farewell.dismiss_envs(args, patience=30))
    client = rpc.Client(args.actor_addr)
    assert wire.is_over(client.enroll().exception())
    client.close()
    call_act(args, [0, 1, 2])
    thread.join(20)
    assert not thread.is_alive()


def test_who_does_not_ask_is_not_waited_for(tmp_path):
    assert not farewell.dismiss_envs(make_args(tmp_path), patience=0.05)


def test_hosts_that_their_leader_did_not_tell_are_dismissed(tmp_path, start):
    args = make_args(tmp_path, learners=3)
    assert farewell.dismiss_learners(args)  # All were told.
    ensemble.location(args).write_text("2")
    result = []
    thread = start(lambda: result.append(farewell.dismiss_learners(args, 30)))
    client = rpc.Client(args.learner_addr)
    for name in ("one", "one", "two"):
        assert wire.is_over(client.join(name, "life").exception())
    client.close()
    thread.join(20)
    assert result == [True]
    assert not ensemble.location(args).exists()
    ensemble.location(args).write_text("2")
    assert not farewell.dismiss_learners(args, patience=0.05)


def test_a_role_saves_before_the_answer(tmp_path, start, fresh_role):
    args = make_args(tmp_path)
    ending = wire.Ending()
    server = rpc.Server(args.replay_addr, "replay")
    server.bind("end", ending)
    server.start(block=False)
    thread = start(lambda: farewell.end_role("replay", args.replay_addr, args))
    assert fresh_role.wait_stop(20)  # It was told,
    assert thread.is_alive()  # and the caller waits
    ending.done()  # until everything is saved.
    thread.join(20)
    assert not thread.is_alive()
    server.close()


def test_a_role_that_does_not_end_well_is_named(tmp_path, capsys):
    def fail():
        raise TimeoutError("not ready to end")

    args = make_args(tmp_path)
    server = rpc.Server(args.replay_addr, "replay")
    server.bind("end", fail)
    server.start(block=False)
    farewell.end_role("replay", args.replay_addr, args)
    server.close()
    text = "did not end well: TimeoutError: not ready to end"
    assert f"The replay at {args.replay_addr} {text}" in capsys.readouterr().out


def test_the_farewell_has_the_time_for_all_its_waits(tmp_path):
    args = make_args(tmp_path, remote_replay=True, remote_logger=True)
    assert farewell.ANSWER > wire.END_TIMEOUT
    assert farewell.longest(args) > 2 * farewell.ANSWER + 3 * farewell.PATIENCE


def test_a_role_that_is_not_there_is_named(tmp_path, capsys, monkeypatch):
    args = make_args(tmp_path)
    monkeypatch.setattr(farewell, "PATIENCE", 0.1)
    farewell.end_role("replay", args.replay_addr, args)
    output = capsys.readouterr().out
    assert f"the replay at {args.replay_addr} did not answer" in output


@pytest.mark.parametrize("error", [ValueError("RunOverError"), TimeoutError()])
def test_only_the_farewell_means_that_the_run_is_over(error):
    assert not wire.is_over(error)
    assert not wire.is_over(rpc.RemoteError("act", type(error).__name__, "", ""))
    assert wire.is_over(rpc.RemoteError("act", "RunOverError", "", ""))


def test_a_role_that_waits_for_another_can_be_stopped(tmp_path, start, fresh_role):
    args = make_args(tmp_path)
    errors = []
    started = threading.Event()

    def wait():
        started.set()
        try:
            wire.connect(args.actor_addr, "env0", args)
        except fresh_role.StoppedError as error:
            errors.append(error)

    thread = start(wait)
    assert started.wait(20)
    fresh_role.request_stop()
    thread.join(20)
    assert len(errors) == 1
