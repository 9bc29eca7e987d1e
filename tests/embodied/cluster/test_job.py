"""A job on a cluster, without one: its program, and what its command does."""

import os
import pathlib
import signal
import sys
import types
from functools import partial as bind

import pytest

from embodied.cluster import host, job
from embodied.core import pickling
from embodied.process.signals import Requests


class Actor:
    """An actor whose program makes the given progress; None is silence."""

    def __init__(self, *news):
        self.news = list(news)
        self.stops = self.kills = 0
        self.poll = types.SimpleNamespace(remote=self._poll)
        self.stop = types.SimpleNamespace(remote=self._stop)

    def _poll(self):
        return self.news.pop(0)

    def _stop(self):
        self.stops += 1


class Ray:
    """Answers at once, or never."""

    def wait(self, answers, timeout):
        return [a for a in answers if a is not None], []

    def get(self, answer):
        return answer() if callable(answer) else answer

    def kill(self, actor, no_restart):
        assert not no_restart
        actor.kills += 1


def news(where="a", output=b"", code=None):
    return job.Progress(where, output, code)


def follow(*given, budget=1, requests=0):
    actor, counted = Actor(*given), Requests()
    counted.count = requests
    return job.Job(Ray(), actor, budget, counted).run(), actor


@pytest.mark.parametrize("code", [0, 1, 2])
def test_output_and_exit_code_are_those_of_the_program(code, capfd):
    assert follow(news(output=b"one "), news(output=b"two", code=code))[0] == code
    assert "one two" in capfd.readouterr().out


@pytest.mark.parametrize("code", [host.LEFT, -signal.SIGKILL])
def test_a_program_that_left_is_started_again(code, capsys):
    found, actor = follow(news(code=code), news("b"), news("b", code=0))
    assert (found, actor.kills) == (0, 1)
    assert "was lost on a" in capsys.readouterr().out


def test_a_job_that_is_lost_too_often_fails():
    with pytest.raises(job.JobError, match=r"lost 2 times .* last on b; run.budget"):
        follow(news("a"), news("b"), news("c"))


def test_a_request_to_stop_reaches_the_program():
    def ask():
        requests.add()
        return news()

    requests = Requests()
    actor = Actor(news(), ask, news(), news(code=host.LEFT))
    assert job.Job(Ray(), actor, 0, requests).run() == 0
    assert (actor.stops, actor.kills) == (1, 0)


@pytest.mark.parametrize(
    ("given", "requests"),
    [
        ([None], 1),  # It has no node yet.
        ([news()], 2),  # The second request.
    ],
)
def test_a_command_need_not_wait_for_its_job(given, requests, capsys):
    assert follow(*given, requests=requests)[0] == 0
    assert "checkpoints remain" in capsys.readouterr().out


def test_a_command_does_not_wait_for_a_lost_node(monkeypatch):
    def ask():
        requests.add()
        return news()

    monkeypatch.setattr(job, "GIVE_UP", 0.0)
    requests = Requests()
    actor = Actor(ask, None)
    assert job.Job(Ray(), actor, 0, requests).run() == 0
    assert actor.stops == 1


def end(path, code):
    print("started in", os.getcwd(), flush=True)
    pathlib.Path(path).touch()
    return code


def wait(path):
    pathlib.Path(path).touch()
    signal.pause()


@pytest.fixture
def order(tmp_path):
    marker = tmp_path / "logdir" / "job"
    marker.parent.mkdir()
    marker.write_text("token")

    def make(target, *args, **changes):
        payload = pickling.dumps(bind(target, tmp_path / "ran", *args))
        made = job.Order(payload, str(tmp_path), str(marker), "token", "10.0.0.5:6379")
        return made._replace(**changes)

    return make


def run(order):
    """The output and the exit code of a program."""
    program, output, code = job.Program(order), b"", None
    while code is None:
        _, part, code = program.poll()
        output += part
    return output.decode(), code


@pytest.mark.process
def test_a_program_runs_where_the_command_was_given(order, tmp_path):
    text, code = run(order(end, 3))
    assert text == f"started in {tmp_path}\n"
    assert code == 3


@pytest.mark.process
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"token": "other"}, "choose a --logdir on storage that all nodes share"),
        (
            {"marker": "/nowhere/job"},
            "log directory /nowhere is not that of the command",
        ),
        ({"folder": "/nowhere"}, "there is no directory /nowhere"),
    ],
)
def test_a_node_that_shares_no_files_is_rejected(order, tmp_path, changes, text):
    output, code = run(order(end, 0, **changes))
    assert code == job.UNSHARED
    assert text in output
    assert not (tmp_path / "ran").exists()


@pytest.mark.process
def test_a_program_is_stopped_by_a_signal(order, tmp_path):
    program = job.Program(order(wait))
    while not (tmp_path / "ran").exists():
        assert program.poll().code is None
    program.stop()
    while (code := program.poll().code) is None:
        pass
    assert code == -signal.SIGTERM


def test_the_marker_is_removed(tmp_path, monkeypatch):
    """Also if there is no cluster."""

    def connect(address, **options):
        assert (tmp_path / "new" / "job").read_text()
        raise ConnectionError(address)

    monkeypatch.setattr(job.fleet, "connect", connect)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ConnectionError):
        job.run(sys.exit, job.Needs(1, 0, 0), "auto", str(tmp_path / "new" / "job"), 5)
    assert not list((tmp_path / "new").iterdir())
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("resources", "missing"),
    [
        ({"GPU": 1.0, "CPU": 4.0, "memory": 2e9}, False),
        ({"GPU": 1.0, "CPU": 3.0, "memory": 2e9}, True),
        ({"CPU": 4.0, "memory": 2e9}, True),
        ({"GPU": 1.0, "CPU": 4.0, "memory": 1e9}, True),
    ],
)
def test_what_a_node_must_have(resources, missing):
    assert job.Needs(1.0, 4.0, 2 * 10**9).missing(resources) == missing
