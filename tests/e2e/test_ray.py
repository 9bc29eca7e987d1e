"""Environments on a Ray cluster: real nodes, which are processes of this machine."""

import json
import os
import pathlib
import signal
import textwrap

import psutil
import pytest

from tests.e2e.command import Command, logged_step, rows, stored, wait_for
from tests.e2e.ray_cluster import ENV, Cluster, ancestors

LENGTH = 11  # Of replayed sequences in the block `debug`.
BROKEN = """
    import os
    import pathlib

    import gymnasium as gym
    import numpy as np

    OWNER = pathlib.Path(__file__).with_name("owner")

    def is_broken():
        # Of a cluster's tasks only the first one is, so that the others are alive when
        # it fails for good.
        supervisor = str(os.getppid())
        command = pathlib.Path("/proc", supervisor, "cmdline").read_text()
        if "embodied.cluster.host" not in command:
            return True
        try:
            with OWNER.open("x") as file:
                file.write(supervisor)
        except FileExistsError:
            return OWNER.read_text() == supervisor
        return True

    class Env(gym.Env):
        observation_space = gym.spaces.Box(-1, 1, (3,))
        action_space = gym.spaces.Discrete(2)

        def __init__(self):
            self.broken = is_broken()

        def reset(self, seed=None, options=None):
            self.count = 0
            return np.zeros(3, np.float32), {}

        def step(self, action):
            self.count += 1
            if self.broken and self.count > 20:
                raise RuntimeError("the motor is stuck")
            return np.zeros(3, np.float32), 1.0, False, False, {}
"""


@pytest.fixture
def ray(tmp_path):
    if not os.environ.get("CI"):
        pytest.importorskip("ray")
    cluster = Cluster(tmp_path)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def start(ray, tmp_path):
    commands = []

    def start(*flags):
        words = ["--configs", "debug", "--random_agent", "--logdir", tmp_path / "run"]
        words += ["--launcher", "ray", "--ray.address", ray.address]
        command = Command(tmp_path / "run.txt", *words, *flags, env=ENV)
        commands.append(command)
        return command

    yield start
    for command in commands:
        command.kill()


def hosts():
    """Programs that Ray has started for us, by process id."""
    found = {}
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "embodied.cluster.host" in words:
            found[process.pid] = process
    return found


def fleet(logdir):
    """The number of the process that talks to the cluster."""
    return json.loads((logdir / "roles.json").read_text())["fleet"]["pid"]


def scores(logdir):
    return len(rows(pathlib.Path(logdir) / "scores.jsonl"))


@pytest.mark.slow
def test_machines_and_the_fleet_may_die(ray, start, tmp_path):
    """Environments go on elsewhere, nothing is lost, and nothing is left behind."""
    logdir = tmp_path / "run"
    other = ray.add("--address", ray.address)
    before = set(hosts())
    flags = ["--run.envs", 7, "--run.envs_per_process", 2, "--run.eval_envs", 0]
    run = start("--task", "dummy_disc", *flags)
    # Four processes of one core each, and each machine has two cores.
    wait_for(lambda: len(set(hosts()) - before) == 4, "environments", [run])
    wait_for(lambda: scores(logdir) > 3, "episodes", [run])
    there = {p for p in hosts() if other.process.pid in ancestors(p)}
    assert len(there) == 2
    ray.lose(other)
    ray.add("--address", ray.address)
    before |= there
    wait_for(lambda: len(set(hosts()) - before) == 4, "new environments", [run])
    seen = scores(logdir)
    wait_for(lambda: scores(logdir) > seen + 8, "episodes without the machine", [run])
    before |= set(hosts())
    os.kill(fleet(logdir), signal.SIGKILL)
    wait_for(lambda: len(set(hosts()) - before) == 4, "new environments", [run])
    seen = scores(logdir)
    wait_for(lambda: scores(logdir) > seen + 8, "episodes of the new fleet", [run])
    assert run.stop(signal.SIGTERM) == 0, run.text()
    assert "fleet failed (1 of" in run.text()
    wait_for(lambda: not hosts(), "end of all environments")
    replay = stored(logdir, LENGTH)
    assert replay.total == logged_step(logdir)
    replay.close()


@pytest.mark.slow
def test_an_environment_that_keeps_failing_ends_the_run_with_its_traceback(
    start, tmp_path
):
    path = tmp_path / "stuck.py"
    path.write_text(textwrap.dedent(BROKEN))
    run = start("--task", f"{path}:Env", "--run.envs", 1, "--run.budget", 2)
    assert run.wait(120) == 1, run.text()
    assert "the run failed, role 'fleet'" in run.text()
    assert "the motor is stuck" in run.text().split("the run failed")[1]
    assert "fleet failed" not in run.text(), "it was tried again"
    assert "did not acknowledge" not in run.text()
