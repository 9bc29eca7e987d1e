"""Supervision with real processes: death, hanging, budgets, signals, order."""

import contextlib
import itertools
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial as bind

import psutil
import pytest

from embodied.core import disk
from embodied.core.base import SetupError
from embodied.process import signals, supervisor
from embodied.process.context import FinalError
from embodied.process.supervisor import Role, RoleError, Supervisor
from embodied.process.worker import UnsavedError, Worker


def write(path, text):
    with pathlib.Path(path).open("a") as file:
        file.write(f"{text}\n")


def lines(path):
    path = pathlib.Path(path)
    return path.read_text().splitlines() if path.exists() else []


def forever(path, name, ctx):
    """Beats until told to stop, and writes down its birth and its end."""
    write(path, f"{name} {os.getpid()}")
    while not ctx.wait_stop(0.02):
        ctx.beat()
    write(path, f"{name} stopped")


def stubborn(path, name, ctx):
    """Beats, and does not stop."""
    write(path, f"{name} {os.getpid()}")
    while True:
        ctx.beat()
        time.sleep(0.02)


def complete_after(path, amount, ctx):
    """Returns once there are `amount` lines."""
    while len(lines(path)) < amount and not ctx.wait_stop(0.02):
        ctx.beat()


def leave(path, fails, ctx):
    """Is stuck, but for a thread that leaves."""
    error = ValueError("a reason to remember") if fails else None
    threading.Timer(0.1, ctx.exit, [error]).start()
    time.sleep(60)
    write(path, "not left")


def crash(path, signal_number, starts, ctx):
    """Dies by a signal or an error in its first starts, then continues."""
    write(path, "born")
    if len(lines(path)) <= starts:
        if signal_number:
            os.kill(os.getpid(), signal_number)
        raise ValueError("a reason to remember")
    forever(path, "crash", ctx)


def hang_once(path, ctx):
    ctx.beat()
    write(path, "born")
    if len(lines(path)) == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    forever(path, "hang", ctx)


def ignore_stop(path, ctx):
    write(path, "deaf")
    threading.Event().wait()


def hang_in_part(path, ctx):
    """One of two parts goes silent in the first incarnation."""
    write(path, "born")
    parts = [ctx.part("actor"), ctx.part("learner")]
    while not ctx.wait_stop(0.02):
        parts[0].beat()
        if len(lines(path)) > 1:
            parts[1].beat()


def count_starts(path, ctx):
    """Dies in its first two incarnations, and writes down the number of each."""
    write(path, f"{ctx.incarnation} {ctx.first_number}")
    if len(lines(path)) < 3:
        raise ValueError("a reason to remember")


def fail(ctx):
    raise ValueError("a reason to remember")


def silent(ctx):
    ctx.beat()
    threading.Event().wait()


def kill_at_stop(path, name, ctx):
    """Kills another role while the run ends."""
    write(path, f"killer {os.getpid()}")
    ctx.wait_stop()
    pids = [line.split()[1] for line in lines(path) if line.startswith(f"{name} ")]
    process = psutil.Process(int(pids[-1]))
    process.kill()
    with contextlib.suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.02)


def wait_for_receiver(path, name, ctx):
    """Ends once another role is there for the second time, or is gone."""
    write(path, f"sender {os.getpid()}")
    ctx.wait_stop()
    while not ctx.gone(name):
        if sum(line.startswith(f"{name} ") for line in lines(path)) == 2:
            return write(path, "sender saw it again")
        time.sleep(0.02)
    write(path, "sender saw it gone")


def children():
    return psutil.Process().children(recursive=True)


def test_a_role_that_returns_completes_the_run(tmp_path):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("worker", forever, (log, "worker")),
            Role("counter", complete_after, (log, 1), stage=1),
        ]
    )
    assert supervisor.run() == "counter completed the run"
    assert lines(log)[-1] == "worker stopped"
    assert not [child for child in children() if "spawn_main" in str(child.cmdline())]


def test_a_status_that_cannot_be_written_does_not_end_the_run(tmp_path, caplog):
    log = tmp_path / "log"
    (tmp_path / "file").touch()
    roles = [Role("counter", complete_after, (log, 0))]
    status = tmp_path / "file" / "roles.json"
    assert Supervisor(roles, status).run() == "counter completed the run"
    assert f"Cannot write {status}" in caplog.text


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, None])
def test_a_role_that_dies_is_restarted(tmp_path, number, capfd):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("crash", crash, (log, number, 2)),
            Role("counter", complete_after, (log, 4), stage=1),
        ]
    )
    supervisor.run()
    assert supervisor.restarts() == {"crash": 2, "counter": 0}
    output = capfd.readouterr().out
    assert output.count("crash failed") == 2
    assert (number.name if number else "a reason to remember") in output


def test_a_role_that_hangs_is_replaced(tmp_path, capfd):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("hang", hang_once, (log,), hang=0.5),
            Role("counter", complete_after, (log, 3), stage=1),
        ]
    )
    supervisor.run()
    assert supervisor.restarts() == {"hang": 1, "counter": 0}
    assert "no heartbeat" in capfd.readouterr().out


def test_a_spent_budget_ends_the_run_with_the_traceback(tmp_path):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("worker", forever, (tmp_path / "other", "worker")),
            Role("crash", crash, (log, None, 99), budget=2),
        ]
    )
    with pytest.raises(
        RoleError, match=r"(?s)'crash' failed 3 times.*a reason to"
    ) as e:
        supervisor.run()
    assert "in crash" in str(e.value)
    assert lines(log) == ["born"] * 3
    assert lines(tmp_path / "other")[-1] == "worker stopped"


def test_without_a_budget_the_first_failure_ends_the_run(tmp_path):
    roles = [Role("crash", crash, (tmp_path / "log", None, 99), budget=0)]
    with pytest.raises(RoleError, match=r"'crash' failed 1 time,"):
        Supervisor(roles).run()
    assert lines(tmp_path / "log") == ["born"]


def give_up(path, error, ctx):
    """Fails in a way that a restart cannot fix."""
    write(path, "born")
    raise error("a restart cannot fix this")


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("error", [FinalError, SetupError])
def test_a_final_failure_ends_the_run_at_once_with_its_message(tmp_path, error, thread):
    given = (tmp_path / "log", error)
    roles = [Role("final", give_up, given, budget=9, thread=thread)]
    with pytest.raises(RoleError) as info:
        Supervisor(roles).run()
    words = "role 'final' failed 1 time, last with:\na restart cannot fix this"
    assert str(info.value) == words
    assert lines(tmp_path / "log") == ["born"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_thread_can_end_its_process(tmp_path, fails):
    role = Role("leave", leave, (tmp_path / "log", fails), budget=0)
    told = pytest.raises(RoleError, match="a reason to remember")
    with told if fails else contextlib.nullcontext():
        Supervisor([role]).run()
    assert lines(tmp_path / "log") == []


def test_stages_stop_in_order(tmp_path):
    log = tmp_path / "log"
    roles = [
        Role(f"s{stage}", forever, (log, f"s{stage}"), stage) for stage in (2, 0, 1)
    ]
    supervisor = Supervisor([*roles, Role("c", complete_after, (log, 3), stage=3)])
    supervisor.run()
    assert lines(log)[3:] == ["s0 stopped", "s1 stopped", "s2 stopped"]


@pytest.mark.parametrize("first", [0, 1])
def test_others_stop_after_the_roles_of_their_stage(tmp_path, first):
    log = tmp_path / "log"

    def stop(stage, hurry):
        assert not hurry()
        write(log, f"other {stage}")

    roles = [Role(f"s{stage}", forever, (log, f"s{stage}"), stage) for stage in (1, 3)]
    roles.append(Role("c", complete_after, (log, 2), stage=4))
    others = {stage: bind(stop, stage) for stage in range(first, 4)}
    Supervisor(roles, others=others).run()
    ended = ["other 0", "s1 stopped", "other 1", "other 2", "s3 stopped", "other 3"]
    assert lines(log)[2:] == ended[first:]


def test_a_failure_of_others_does_not_keep_later_stages_from_saving(tmp_path):
    log = tmp_path / "log"

    def fail(hurry):
        raise OSError("disk full")

    roles = [Role("s1", forever, (log, "s1"), stage=1)]
    roles.append(Role("c", complete_after, (log, 1), stage=2))
    with pytest.raises(OSError, match="disk full"):
        Supervisor(roles, others={0: fail}).run()
    assert lines(log)[1:] == ["s1 stopped"]


def test_each_start_has_an_incarnation(tmp_path, capfd):
    log = tmp_path / "log"
    issue = itertools.count(5).__next__
    thread = Role("thread", forever, (tmp_path / "other", "thread"), thread=True)
    Supervisor([Role("worker", count_starts, (log,)), thread], issue=issue).run()
    numbers = (6, 7, 8)  # The thread has the first.
    assert lines(log) == [f"{number} {number << 32}" for number in numbers]


def test_without_a_launcher_the_clock_numbers_the_starts(tmp_path, capfd):
    log = tmp_path / "log"
    before = time.time_ns()
    Supervisor([Role("worker", count_starts, (log,))]).run()
    starts = [int(line.split()[1]) for line in lines(log)]
    assert [before, *starts] == sorted({before, *starts})


def test_a_role_that_does_not_stop_is_killed(tmp_path, capfd):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("deaf", ignore_stop, (log,), grace=0.3),
            Role("counter", complete_after, (log, 1), stage=1),
        ]
    )
    supervisor.run()
    assert "deaf did not stop in time; killing it" in capfd.readouterr().out


def saved():
    return "It has a checkpoint of step 7."


def test_a_role_that_dies_before_its_turn_to_save_is_reported(tmp_path):
    log = tmp_path / "log"
    agent = Role("agent", forever, (log, "agent"), 1, essential=True, saved=saved)
    roles = [
        Role("killer", kill_at_stop, (log, "agent")),
        agent,
        Role("replay", forever, (log, "replay"), 2, essential=True),
        Role("counter", complete_after, (log, 3), stage=3),
    ]
    with pytest.raises(UnsavedError) as info:
        Supervisor(roles).run()
    words = "role 'agent' ended before it had saved everything: died with SIGKILL\n"
    assert str(info.value) == words + saved()
    assert lines(log)[-1] == "replay stopped"


def test_a_role_that_waits_for_its_restart_at_the_end_is_reported(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(Supervisor, "BACKOFF", (600.0,))
    log = tmp_path / "log"
    roles = [
        Role("agent", crash, (log, signal.SIGKILL, 1), 1, essential=True),
        Role("counter", complete_after, (log, 2)),
    ]
    ending = threading.Timer(0, end_when_printed, [log, "agent failed", capfd])
    ending.start()
    with pytest.raises(UnsavedError, match=r"'agent' ended before .* SIGKILL"):
        Supervisor(roles).run()
    ending.join()


def end_when_printed(log, text, capfd):
    """Complete the run once the supervisor has printed a text."""
    printed = ""
    while text not in printed:
        time.sleep(0.02)
        printed += capfd.readouterr().out
    write(log, "end")


def test_a_receiver_that_dies_at_the_end_is_restarted_and_stops_in_its_stage(
    tmp_path, capfd
):
    log = tmp_path / "log"
    logger = Role("logger", forever, (log, "logger"), 2, essential=True, receives=True)
    roles = [
        Role("killer", kill_at_stop, (log, "logger")),
        Role("sender", wait_for_receiver, (log, "logger"), 1, grace=600.0),
        logger,
        Role("counter", complete_after, (log, 3), stage=3),
    ]
    assert Supervisor(roles).run() == "counter completed the run"
    assert "sender saw it again" in lines(log)
    assert lines(log)[-1] == "logger stopped"


def test_no_role_waits_for_one_that_is_gone(tmp_path, capfd):
    log = tmp_path / "log"
    options = {"essential": True, "receives": True, "budget": 0}
    roles = [
        Role("killer", kill_at_stop, (log, "replay")),
        Role("sender", wait_for_receiver, (log, "replay"), 1, grace=600.0),
        Role("replay", forever, (log, "replay"), 2, **options),
        Role("counter", complete_after, (log, 3), stage=3),
    ]
    with pytest.raises(UnsavedError, match="'replay' ended before"):
        Supervisor(roles).run()
    assert lines(log)[-1] == "sender saw it gone"


def test_a_restart_waits_for_disk_space_but_not_at_the_end(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.setattr(disk, "POLL", 0.0)
    full = False

    def issue():
        if full:
            raise disk.full_error(tmp_path, 10, "a number")
        return 1

    worker = Worker(Role("role", fail, budget=9), issue)
    worker.start()
    for ending in (False, True):
        worker._process.join(60)
        full = True
        assert not worker.revive([0.0])  # It has died.
        if not ending:
            assert not worker.revive([0.0])
            assert not worker.revive([0.0])
            full = False
            assert worker.revive([0.0])
    with pytest.raises(disk.DiskFullError):
        worker.revive([0.0], ending=True)
    assert worker.gone
    assert worker.restarts == 1
    printed = capfd.readouterr().out
    assert printed.count("The restart of role waits: no room for a number") == 1
    assert "The restart of role has disk space again" in printed


def test_a_silent_part_is_not_hidden_by_a_busy_one(tmp_path, capfd):
    log = tmp_path / "log"
    supervisor = Supervisor(
        [
            Role("agent", hang_in_part, (log,), hang=0.5),
            Role("counter", complete_after, (log, 2), stage=1),
        ]
    )
    supervisor.run()
    assert supervisor.restarts() == {"agent": 1, "counter": 0}
    assert "no heartbeat of its learner" in capfd.readouterr().out


def test_a_thread_of_this_process_stops_in_its_stage(tmp_path):
    log = tmp_path / "log"
    roles = [
        Role("s0", forever, (log, "s0"), stage=0),
        Role("s1", forever, (log, "s1"), stage=1, thread=True),
        Role("s2", forever, (log, "s2"), stage=2),
        Role("counter", complete_after, (log, 3), stage=3),
    ]
    assert Supervisor(roles).run() == "counter completed the run"
    assert f"s1 {os.getpid()}" in lines(log)
    assert lines(log)[3:] == ["s0 stopped", "s1 stopped", "s2 stopped"]


def test_a_thread_that_returns_completes_the_run(tmp_path):
    log = tmp_path / "log"
    roles = [
        Role("worker", forever, (log, "worker")),
        Role("agent", complete_after, (log, 1), thread=True),
    ]
    assert Supervisor(roles).run() == "agent completed the run"
    assert lines(log)[-1] == "worker stopped"


def test_a_thread_that_fails_ends_the_run_with_its_traceback(tmp_path):
    log = tmp_path / "log"
    roles = [
        Role("worker", forever, (log, "worker")),
        Role("agent", fail, thread=True),
    ]
    with pytest.raises(RoleError, match=r"(?s)'agent' failed.*a reason to remember"):
        Supervisor(roles).run()


def test_a_thread_that_hangs_ends_the_run(tmp_path):
    roles = [Role("agent", silent, thread=True, hang=0.3, grace=0.1)]
    with pytest.raises(RoleError, match="no heartbeat"):
        Supervisor(roles).run()


SCRIPT = """
import pathlib, sys
sys.path.insert(0, {root!r})
from tests.embodied.process.test_supervisor import *
if __name__ == '__main__':
    log = pathlib.Path({log!r})
    roles = [Role(f'w{{i}}', {target}, (log, f'w{{i}}'), 1 - i) for i in range(2)]
    print(Supervisor(roles).run())
"""


def start_script(tmp_path, target="forever"):
    log = tmp_path / "log"
    root = str(pathlib.Path(__file__).parents[3])
    path = tmp_path / "script.py"
    text = SCRIPT.format(root=root, log=str(log), target=target)
    path.write_text(textwrap.dedent(text))
    process = subprocess.Popen(
        [sys.executable, path],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    waiter = threading.Event()
    while len(lines(log)) < 2:
        assert process.poll() is None
        waiter.wait(0.02)
    pids = [int(line.split()[1]) for line in lines(log)[:2]]
    return process, pids, log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_everything(tmp_path, number):
    process, pids, log = start_script(tmp_path)
    os.killpg(process.pid, number)  # As terminals and schedulers do, to the group.
    os.kill(process.pid, number)  # As `timeout` does, which had it from the group.
    assert process.wait(30) == 0
    assert "asked to stop" in process.stdout.read()
    assert lines(log)[2:] == ["w1 stopped", "w0 stopped"], "not in order"
    assert not any(map(psutil.pid_exists, pids))


def test_a_second_request_comes_later_than_a_signal_that_is_passed_on(monkeypatch):
    now = 100.0
    monkeypatch.setattr(signals.time, "monotonic", lambda: now)
    requests = signals.Requests()
    counts = []
    for _ in range(6):  # A key that is held down.
        counts.append(requests.add())
        now += 0.4 * signals.SAME
    assert counts == [1, 1, 1, 2, 2, 2]
    assert requests.count == 2


def test_a_second_request_ends_at_once(tmp_path):
    """A role that does not stop is not waited for."""
    process, pids, _ = start_script(tmp_path, target="stubborn")
    os.killpg(process.pid, signal.SIGINT)
    for line in process.stdout:
        if "again to stop at once" in line:
            break
    time.sleep(2 * signals.SAME)  # Sooner, it would be the same request.
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(30) == 0
    assert supervisor.LOST in process.stdout.read()
    assert not any(map(psutil.pid_exists, pids))


def test_children_die_with_a_killed_supervisor(tmp_path):
    process, pids, _ = start_script(tmp_path)
    process.kill()
    process.wait(30)
    _, alive = psutil.wait_procs(
        [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10
    )
    assert not alive


@pytest.mark.parametrize(("target", "failed"), [(complete_after, False), (crash, True)])
def test_a_role_that_returns_between_two_looks_has_not_failed(tmp_path, target, failed):
    args = (tmp_path / "log", 0, 1)[: 3 if failed else 2]
    worker = Worker(Role("role", target, args, budget=5))
    worker.start()
    deadline = time.monotonic() + 60
    while worker.alive() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not worker.revive([60])
    assert worker.done() != failed
    assert (worker.sentinel is None) == failed  # It waits for a restart.
