"""What a machine of a cluster runs, as its task does, but without a cluster."""

import os
import pathlib
import signal
import threading

import pytest

from embodied.cluster import host
from embodied.core import pickling
from embodied.process.context import FinalError
from embodied.process.supervisor import Role


def complete(ctx):
    """A role that learns that the run has ended."""


def fail(path, ctx):
    with pathlib.Path(path).open("a") as file:
        file.write("born\n")
    raise ValueError("the motor is stuck")


def complain(ctx):
    raise FinalError("é" * 50_000)


def wait(pipe, ctx):
    """Tell the process of the supervisor, and wait until that stops this one."""
    with open(pipe, "w") as file:
        file.write(str(os.getppid()))
    while not ctx.wait_stop(0.1):
        ctx.beat()


def order(*args, **options):
    return pickling.dumps(Role("env0", *args, **options))


def test_it_returns_when_the_run_is_over(capfd):
    host.run(order(complete))
    assert "Ended env0: the run has ended." in capfd.readouterr().out


def test_it_fails_with_the_last_traceback(tmp_path):
    log = tmp_path / "log"
    with pytest.raises(host.FailedError, match=r"(?s)'env0' failed 2 times.*is stuck"):
        host.run(order(fail, (log,), budget=1))
    assert log.read_text() == "born\n" * 2


def test_a_machine_that_stops_leaves_a_run_that_goes_on(tmp_path):
    """A scheduler tells all processes of a machine to end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def stop():
        os.kill(int(pipe.read_text()), signal.SIGTERM)

    threading.Thread(target=stop, daemon=True).start()
    with pytest.raises(host.LeftError, match=f"exit code {host.LEFT}"):
        host.run(order(wait, (pipe,)))


def test_what_is_no_order_fails_at_once():
    with pytest.raises(host.FailedError, match=r"(?s)On .*UnpicklingError"):
        host.run(b"garbage")


def test_long_words_in_any_script_arrive():
    with pytest.raises(host.FailedError, match=r"é$"):
        host.run(order(complain, budget=0))
