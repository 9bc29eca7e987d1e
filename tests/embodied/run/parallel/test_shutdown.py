"""The end of the run for roles and environments of other supervisors."""

import contextlib
import threading

import pytest

from embodied import rpc
from embodied.core.checkpoint import Checkpoint
from embodied.process.context import StoppedError
from embodied.run import restore
from embodied.run.parallel import connections, shutdown
from embodied.run.parallel.shutdown import Departures
from embodied.run.settings import RunSettings


def make_args(tmp_path, **changes):
    args = {"logdir": str(tmp_path), "envs": 2, "eval_envs": 1}
    names = ("actor_addr", "replay_addr", "logger_addr", "learner_addr")
    args |= {name: rpc.resolve("ipc://{auto}") for name in names}
    return RunSettings.of({**args, **changes})


class Clock:
    time = 0.0

    def __call__(self):
        return self.time


def test_environments_are_told_and_counted(start):
    departures = Departures(amount=3)
    departures.see([0])
    departures.see([1, 2])
    result = []
    thread = start(lambda: result.append(departures.end(timeout=30)))
    ended = False
    while not ended:
        try:
            departures.see([0])
        except connections.RunOverError:
            ended = True
    with pytest.raises(connections.RunOverError):
        departures.see([0])  # Asked again: the answer is the same.
    assert not result
    with pytest.raises(connections.RunOverError):
        departures.see([1, 2])
    thread.join(20)
    assert result == [True]
    with pytest.raises(connections.RunOverError):
        departures.see([5])  # One that begins only now.


def test_environments_that_do_not_call_are_not_waited_for():
    departures = Departures(amount=3)
    departures.see([0])
    assert not departures.end(timeout=0.01)


def test_neither_silent_environments_nor_members_are_waited_for():
    clock = Clock()
    departures = Departures(amount=3, now=clock)
    departures.see([0, 7])
    clock.time = shutdown.RECENT + 1
    departures.see([7])
    assert departures.end(timeout=0.01)


def test_a_role_saves_before_the_answer(tmp_path, start, ctx):
    args = make_args(tmp_path)
    ending = shutdown.Ending(ctx)
    server = rpc.Server(args.replay_addr, "replay")
    server.bind("end", ending)
    server.start(block=False)
    thread = start(lambda: shutdown.end_role("replay", args.replay_addr, args))
    assert ctx.wait_stop(20)  # It was asked to end,
    assert thread.is_alive()  # and the caller waits
    ending.done()  # until everything is saved.
    thread.join(20)
    assert not thread.is_alive()
    server.close()


def test_a_user_in_a_hurry_does_not_wait_for_a_role(tmp_path, ctx):
    args = make_args(tmp_path)
    ending = shutdown.Ending(ctx)
    server = rpc.Server(args.replay_addr, "replay")
    server.bind("end", ending)
    server.start(block=False)
    shutdown.end_role("replay", args.replay_addr, args, hurry=ctx.stopping)
    assert ctx.stopping()
    ending.done()
    server.close()


def test_a_role_that_does_not_end_well_is_named(tmp_path, capsys):
    def fail():
        raise TimeoutError("not ready to end")

    args = make_args(tmp_path)
    server = rpc.Server(args.replay_addr, "replay")
    server.bind("end", fail)
    server.start(block=False)
    shutdown.end_role("replay", args.replay_addr, args)
    server.close()
    text = "failed to shut down: TimeoutError: not ready to end"
    assert f"The replay at {args.replay_addr} {text}" in capsys.readouterr().out


def test_the_caller_waits_longer_than_the_role(tmp_path):
    assert shutdown.ANSWER > shutdown.END_TIMEOUT


def test_a_role_that_is_not_there_is_named(tmp_path, capsys, monkeypatch):
    args = make_args(tmp_path)
    monkeypatch.setattr(shutdown, "PATIENCE", 0.1)
    shutdown.end_role("replay", args.replay_addr, args)
    output = capsys.readouterr().out
    assert f"The replay at {args.replay_addr} did not answer" in output


@pytest.mark.parametrize("error", [ValueError("RunOverError"), TimeoutError()])
def test_only_one_error_means_that_the_run_has_ended(error):
    assert not connections.is_over(error)
    assert not connections.is_over(rpc.RemoteError("act", type(error).__name__, "", ""))
    assert connections.is_over(rpc.RemoteError("act", "RunOverError", "", ""))


def test_a_role_that_waits_for_another_can_be_stopped(tmp_path, start, ctx):
    args = make_args(tmp_path)
    errors = []
    started = threading.Event()

    def wait():
        started.set()
        try:
            connections.connect(args.actor_addr, "env0", args, ctx)
        except StoppedError as error:
            errors.append(error)

    thread = start(wait)
    assert started.wait(20)
    ctx.request_stop()
    thread.join(20)
    assert len(errors) == 1


def test_what_is_saved_of_a_damaged_checkpoint(tmp_path):
    """Shutdown continues with the other roles all the same."""
    args = RunSettings.of({"logdir": str(tmp_path)})
    saved = Checkpoint(restore.directory(args), {"learner": Learner()})
    with contextlib.closing(saved):
        saved.save(wait=True)
        text = shutdown.describe_saved("agent", args)
        assert "step 7, update 3" in text
        (meta,) = restore.directory(args).glob("*/meta.json")
        meta.write_text(meta.read_text() + " ")
    assert shutdown.describe_saved("agent", args) == ""


class Learner:
    def save(self):
        return {"step": 7, "updates": 3}

    def load(self, data):
        assert data == self.save()
