"""Roles placed by hand: real commands on explicit ports of this machine."""

import signal
import subprocess
import sys

import psutil
import pytest

from embodied import rpc
from tests.e2e.command import Command, logged_step, ports, rows, stored, wait_for

LENGTH = 11  # Of replayed sequences in the block `debug`.
REMOTE = [f"--run.remote_{name}=True" for name in ("envs", "replay", "logger")]
PLACED = ("parallel_logger", "parallel_replay", "parallel_envs")


class Cluster:
    """A run whose roles are commands of their own, in one log directory."""

    def __init__(self, directory, *flags, explicit=True):
        self.directory = directory
        self.logdir = directory / "run"
        self.flags = ["--configs", "debug", "--random_agent", "--task", "dummy_disc"]
        self.flags += ["--logdir", self.logdir, "--run.budget", 99, *flags]
        self.flags += ports() if explicit else []
        self.commands = []

    def start(self, script, *flags):
        output = self.directory / f"{script}.txt"
        command = Command(output, *self.flags, "--script", script, *flags)
        self.commands.append(command)
        return command

    def start_all(self, *flags):
        """The rest of the run first, which has to wait, and then all others."""
        run = self.start("parallel", *REMOTE, *flags)
        return [run, *(self.start(script, *flags) for script in PLACED)]

    def wait_episodes(self, more):
        target = len(self.scores()) + more
        running = [c for c in self.commands if c.process.poll() is None]
        wait_for(lambda: len(self.scores()) >= target, f"{target} episodes", running)

    def scores(self):
        return rows(self.logdir / "scores.jsonl")

    def check_counts(self):
        """The step counter is what the replay holds, and no episode is stitched."""
        replay = stored(self.logdir, LENGTH)
        assert replay.total == logged_step(self.logdir)
        assert replay.stats()["steps"] == replay.total
        chunks = replay._index.chunks.values()
        finished = sum(int(c.columns["is_last"][: c.count].sum()) for c in chunks)
        assert len(self.scores()) == finished
        for _ in range(20):
            batch = replay.sample(16)
            counts, first = batch["count"], batch["is_first"][:, 1:]
            assert (((counts[:, 1:] - counts[:, :-1]) == 1) | first).all()
        replay.close()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path, "--replay.size", 10**6)
    yield made
    for command in made.commands:
        command.kill()


def check_ends(commands):
    for command in commands:
        assert command.wait() == 0, f"{command.output.name}:\n{command.text()}"
        assert "Traceback" not in command.text()


@pytest.mark.slow
def test_all_roles_elsewhere_end_with_the_run_and_it_resumes(cluster):
    first = cluster.start_all("--run.steps", 1500)
    check_ends(first)
    run, *others = first
    assert "The run ended: agent completed the run." in run.text()
    for name, command in zip(("logger", "replay", "4 processes"), others, strict=True):
        assert f"Ended {name}: the run has ended." in command.text()
    step = logged_step(cluster.logdir)
    assert step >= 1500
    cluster.check_counts()
    second = cluster.start_all("--run.steps", step + 1000)
    check_ends(second)
    assert logged_step(cluster.logdir) >= step + 1000
    cluster.check_counts()


def restart(cluster, command, whole):
    """Kill a role with -9, or with its command, which is then given again."""
    if not whole:
        (child,) = command.children()
        child.kill()
        wait_for(lambda: not psutil.pid_exists(child.pid), "end of it", [command])
        return command
    pids = [child.pid for child in command.children()]
    command.process.kill()
    command.process.wait(30)
    wait_for(lambda: not any(map(psutil.pid_exists, pids)), "end of its children")
    return None


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["role", "command"])
def test_killed_roles_elsewhere_come_back_and_nothing_is_lost(cluster, whole):
    run = cluster.start(
        "parallel", "--run.remote_envs=True", "--run.remote_replay=True"
    )
    replay = cluster.start("parallel_replay")
    envs = [cluster.start("parallel_env", "--replica", i) for i in range(4)]
    cluster.wait_episodes(8)
    replay = restart(cluster, replay, whole) or cluster.start("parallel_replay")
    cluster.wait_episodes(8)
    first = restart(cluster, envs[0], whole)
    envs[0] = first or cluster.start("parallel_env", "--replica", 0)
    cluster.wait_episodes(8)
    assert run.stop() == 0, run.text()
    check_ends([replay, *envs])
    cluster.check_counts()


@pytest.mark.slow
def test_environments_elsewhere_wait_for_a_run_that_was_killed(cluster):
    """The launcher dies with all its roles; given again, it finds the others."""
    run = cluster.start(
        "parallel", "--run.remote_envs=True", "--run.remote_replay=True"
    )
    replay, envs = cluster.start("parallel_replay"), cluster.start("parallel_envs")
    cluster.wait_episodes(8)
    run.process.kill()
    run.process.wait(30)
    again = cluster.start(
        "parallel", "--run.remote_envs=True", "--run.remote_replay=True"
    )
    cluster.wait_episodes(8)
    assert again.stop(signal.SIGTERM) == 0, again.text()
    check_ends([replay, envs])
    replayed = stored(cluster.logdir, LENGTH)
    assert replayed.total == logged_step(cluster.logdir)
    replayed.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("parallel_logger", signal.SIGTERM),
        ("parallel_replay", signal.SIGINT),
        ("parallel_envs", signal.SIGINT),
    ],
)
def test_a_signal_ends_a_role_that_waits_for_the_others(cluster, script, number):
    """Nobody else is there: it waits, and still ends at once and well."""
    command = cluster.start(script)
    amount = 4 if script == "parallel_envs" else 1
    wait_for(lambda: len(command.children()) == amount, "processes", [command])
    if script != "parallel_logger":
        wait_for(
            lambda: "is waiting for a server at" in command.text(), "word", [command]
        )
    pids = [child.pid for child in command.children()]
    assert command.stop(number, timeout=10) == 0, command.text()
    assert "Traceback" not in command.text()
    assert not any(map(psutil.pid_exists, pids))


@pytest.mark.slow
def test_replay_and_environments_join_with_one_address(tmp_path):
    """They get settings and other addresses from there, and end with the run."""
    replay_addr, address = (rpc.resolve("tcp://127.0.0.1:{auto}") for _ in range(2))
    cluster = Cluster(tmp_path, "--replay.size", 10**6, explicit=False)
    remote = ["--run.remote_envs=True", "--run.remote_replay=True"]
    remote += ["--run.replay_addr", replay_addr, "--run.coordinator_addr", address]
    words = [address, "replay", "--logdir", tmp_path / "disks"]
    replay = Command(tmp_path / "replay.txt", "join", *words)
    words = [address, "env", "--task", "dummy_disc", "--count", 2]
    envs = Command(tmp_path / "envs.txt", "join", *words)
    try:
        run = cluster.start("parallel", *remote)
        cluster.wait_episodes(4)
        assert run.stop(signal.SIGTERM) == 0, run.text()
        check_ends([replay, envs])
    finally:
        for command in (replay, envs, *cluster.commands):
            command.kill()
    assert "Ended replay: the run has ended." in replay.text()
    assert "Ended 2 processes: the run has ended." in envs.text()
    assert "did not" not in run.text()
    found = stored(tmp_path / "disks", LENGTH)
    assert found.total == logged_step(cluster.logdir)
    found.close()


@pytest.mark.slow
def test_environments_of_this_machine_join_with_the_log_directory(tmp_path):
    cluster = Cluster(tmp_path, explicit=False)
    run = cluster.start("parallel", "--run.remote_envs=True")
    wait_for((cluster.logdir / "coordinator.sock").exists, "socket", [run])
    words = [cluster.logdir, "env", "--task", "dummy_disc"]
    envs = Command(tmp_path / "envs.txt", "join", *words)
    try:
        cluster.wait_episodes(2)
        assert run.stop() == 0, run.text()
        check_ends([envs])
    finally:
        for command in (run, envs):
            command.kill()
    assert not (cluster.logdir / "coordinator.sock").exists()


def refused(*flags):
    command = [sys.executable, "-m", "dreamerv3", "--configs", "debug", *flags]
    result = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert result.returncode == 2, result.stdout + result.stderr
    assert result.stdout == ""
    return result.stderr


def test_a_replay_needs_no_packages_of_the_environment(cluster):
    """Its machine need not even have heard of the suite."""
    cluster.flags += ["--task", "gymnasium_Nowhere-v0"]
    command = cluster.start("parallel_replay")
    wait_for(lambda: "is waiting for a server at" in command.text(), "word", [command])
    assert command.stop(timeout=10) == 0


def test_open_addresses_are_refused(tmp_path):
    flags = ["--script", "parallel_replay", "--logdir", tmp_path / "x"]
    message = refused(*flags)
    assert "2 problems, nothing was started" in message
    assert message.count("give the address that the other machine can reach") == 2
    assert not (tmp_path / "x").exists()
