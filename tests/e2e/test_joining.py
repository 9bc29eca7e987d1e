"""Environments of another interpreter, without JAX and with NumPy 1, join and leave."""

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from embodied import rpc
from embodied.run.parallel import run_keys
from tests.e2e.command import ROOT, Command, wait_for
from tests.e2e.test_placed import Cluster, check_ends

PACKAGES = ("numpy==1.26.*", str(ROOT / "packaging" / "env"))


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """The command of the package for env machines, in an interpreter of its own."""
    folder = tmp_path_factory.mktemp("env")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    command = [folder / "bin" / "pip", "install", "--quiet", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"the packages could not be installed: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return folder / "bin" / "dreamerv3"


class JoinedRun(Cluster):
    """A run with keys, and commands that join it at its coordinator."""

    def __init__(self, directory, program):
        super().__init__(directory, "--replay.size", 10**6, explicit=False)
        self.program = program
        self.keys = directory / "keys"
        rpc.make_keys(self.keys, run_keys.CLIENTS)
        address = rpc.resolve("tcp://127.0.0.1:{auto}")
        self.flags += ["--run.key_dir", self.keys, "--run.coordinator_addr", address]
        self.address = address.removeprefix("tcp://")

    def join(self, name, *flags):
        args = ["join", self.address, "--key", self.keys / "env.json", "env"]
        output = self.directory / f"{name}.txt"
        command = Command(
            output,
            *(*args, "--task", "dummy_disc", *flags),
            program=[self.program],
            cwd=self.directory,
            env={"PYTHONPATH": ""},
        )
        self.commands.append(command)
        return command

    def ids(self):
        path = self.logdir / "members.json"
        members = json.loads(path.read_text())["members"] if path.exists() else {}
        return sorted(id for ids in members.values() for id in ids)

    def wait_ids(self, expected):
        wait_for(lambda: self.ids() == expected, f"members {expected}")


@pytest.fixture
def joined_run(tmp_path, program):
    made = JoinedRun(tmp_path, program)
    yield made
    for command in made.commands:
        command.kill()


@pytest.mark.slow
def test_the_package_brings_no_jax_and_the_other_numpy(program):
    code = "import importlib.util as u, numpy; print(numpy.__version__, *("
    code += "n for n in ('jax', 'cloudpickle', 'av', 'matplotlib', 'orbax')"
    code += " if u.find_spec(n)))"
    done = subprocess.run(
        [program.parent / "python", "-c", code], capture_output=True, text=True
    )
    assert done.stdout.split()[0].startswith("1.26.")
    assert len(done.stdout.split()) == 1, done.stdout


@pytest.mark.slow
def test_env_machines_come_and_go_and_no_step_is_lost(joined_run):
    """The run has environments of its own, two are killed, one leaves."""
    waits = joined_run.join("first", "--count", 4, "--per-process", 2)
    run = joined_run.start("parallel")
    joined_run.wait_ids([4, 5, 6, 7])
    joined_run.wait_episodes(12)
    waits.kill()  # The whole machine goes: its numbers are free only later.
    second = joined_run.join("second", "--count", 2)
    joined_run.wait_ids([4, 5, 6, 7, 8, 9])
    joined_run.wait_episodes(12)
    child = second.children()[0]
    child.kill()
    wait_for(lambda: not psutil.pid_exists(child.pid), "end of it", [second])
    third = joined_run.join("third")
    joined_run.wait_ids([4, 5, 6, 7, 8, 9, 10])
    joined_run.wait_episodes(12)
    assert third.stop(signal.SIGINT) == 0, third.text()
    joined_run.wait_ids([4, 5, 6, 7, 8, 9])
    assert run.stop() == 0, run.text()
    check_ends([second])
    assert second.text().count(" failed (1 of 5 times") == 1  # The killed one.
    assert "Ended 2 processes: the run has ended." in second.text()
    assert not joined_run.ids()
    joined_run.check_counts()


@pytest.mark.slow
def test_env_machines_wait_for_a_run_that_was_killed(joined_run):
    """The run has no environments of its own; the launcher dies with all roles."""
    run = joined_run.start("parallel", "--run.remote_envs=True")
    other = joined_run.join("other", "--task", "bounce_32")
    assert other.wait() == 2
    assert "observation 'count': no such key instead of" in other.text()
    joined = joined_run.join("joined", "--count", 3)
    joined_run.wait_episodes(6)
    run.process.kill()
    run.process.wait(30)
    again = joined_run.start("parallel", "--run.remote_envs=True")
    joined_run.wait_episodes(6)
    assert joined_run.ids() == [4, 5, 6]
    assert again.stop(signal.SIGTERM) == 0, again.text()
    assert "did not acknowledge" not in again.text()
    check_ends([joined])
