"""A learner on two hosts: both are killed in turn, and the run goes on."""

import json
import os
import signal

import psutil
import pytest

from embodied import rpc
from tests.e2e.command import Command, logged_step, rows, stored, wait_for

METRICS = "metrics.jsonl"
LENGTH = 11  # Of replayed sequences in the block `debug`.


class Hosts:
    """A run with a learner on two hosts, which are commands on this machine."""

    def __init__(self, directory):
        self.directory = directory
        self.logdir = directory / "run"
        self.address = rpc.resolve("tcp://127.0.0.1:{auto}")
        self.commands = []

    def lead(self, steps):
        flags = ["--configs", "debug", "--task", "track_7", "--logdir", self.logdir]
        flags += ["--run.learners", 2, "--run.coordinator_addr", self.address]
        flags += ["--run.steps", steps, "--run.train_ratio", 4, "--run.save_every", 1]
        return self.start("lead", *flags)

    def follow(self):
        return self.start("follow", "join", self.address, "learner")

    def start(self, name, *args):
        command = Command(self.directory / f"{name}.txt", *args)
        self.commands.append(command)
        return command

    def saved(self):
        """The number of updates in the newest complete checkpoint."""
        found = sorted((self.logdir / "ckpt" / "agent").glob("0*/learner/tree.json"))
        return json.loads(found[-1].read_text())["updates"] if found else 0

    def wait_updates(self, more):
        target = self.saved() + more
        wait_for(lambda: self.saved() >= target, f"{more} updates", self.commands, 240)

    def role(self, name):
        roles = json.loads((self.logdir / "roles.json").read_text())
        return psutil.Process(roles[name]["pid"])


@pytest.fixture
def hosts(tmp_path):
    made = Hosts(tmp_path)
    yield made
    for command in made.commands:
        command.kill()


@pytest.mark.slow
def test_both_hosts_may_be_killed(hosts):
    follower, leader = hosts.follow(), hosts.lead(10**6)
    hosts.wait_updates(5)
    (child,) = follower.children()
    child.kill()
    wait_for(lambda: "agent failed (1 of" in leader.text(), "end", hosts.commands)
    hosts.wait_updates(5)
    hosts.role("agent").kill()
    wait_for(lambda: "agent failed (2 of" in leader.text(), "end", hosts.commands)
    hosts.wait_updates(5)
    os.killpg(follower.process.pid, signal.SIGTERM)  # As a scheduler does to all.
    assert leader.stop(signal.SIGTERM, 90) == 0, leader.text()
    assert follower.wait() == 0, follower.text()
    assert "agent failed (3 of" not in leader.text()
    replay = stored(hosts.logdir, LENGTH)
    assert replay.total == logged_step(hosts.logdir)
    replay.close()
    assert any("train/loss/total" in row for row in rows(hosts.logdir / METRICS))


@pytest.mark.slow
def test_a_run_waits_for_its_hosts_and_can_be_stopped_meanwhile(hosts):
    leader = hosts.lead(100)
    wait_for(lambda: "1 more host" in leader.text(), "word", [leader])
    place = hosts.address.removeprefix("tcp://")
    assert f"dreamerv3 join {place} learner" in leader.text()
    assert leader.stop(signal.SIGINT) == 0, leader.text()
    follower = hosts.follow()
    wait_for(lambda: "waits for a server" in follower.text(), "word", [follower])
    assert follower.stop(signal.SIGINT) == 0, follower.text()
