"""A learner on two hosts: both are killed in turn, and the run resumes."""

import itertools
import json
import os
import signal
import time
from typing import NamedTuple

import psutil
import pytest

from embodied import rpc
from tests.e2e.command import Command, logged_step, rows, stored, wait_for

METRICS = "metrics.jsonl"
TRAINED = "timer/learner/train/count"  # Updates since the row before.
FAILED = "agent failed ("
LENGTH = 11  # Of replayed sequences in the block `debug`.


class Loss(NamedTuple):
    """What a killed host cost."""

    host: str
    updates: int  # Made before, but not in the checkpoint that the run resumed from.
    seconds: float  # Until a checkpoint had more updates than were made before.


class Hosts:
    """A run with a learner on two hosts, which are commands on this machine."""

    def __init__(self, directory):
        self.directory = directory
        self.logdir = directory / "run"
        self.address = rpc.resolve("tcp://127.0.0.1:{auto}")
        self.commands = []
        self.checkpoints = [0]  # Updates in each that was seen.
        self.resumed = (0, 0)  # Updates, and rows of metrics, when the agent started.

    def lead(self, steps):
        flags = ["--configs", "debug", "--task", "track_7", "--logdir", self.logdir]
        flags += ["--run.learners", 2, "--run.coordinator_addr", self.address]
        flags += ["--run.steps", steps, "--run.train_ratio", 4, "--run.save_every", 1]
        flags += ["--run.log_every", 0.2]
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
        count = json.loads(found[-1].read_text())["updates"] if found else 0
        if count > self.checkpoints[-1]:
            self.checkpoints.append(count)
        return count

    def made(self):
        """The number of updates, up to the last metrics that were logged."""
        count, skipped = self.resumed
        found = rows(self.logdir / METRICS)[skipped:]
        return count + int(sum(row.get(TRAINED, 0) for row in found))

    def lose(self, host, process):
        """Kill a host and wait until the run has made up for what it lost."""
        leader, begin = self.commands[-1], time.monotonic()
        failures = leader.text().count(FAILED)
        process.kill()
        wait_for(lambda: leader.text().count(FAILED) > failures, "end", self.commands)
        made, saved = self.made(), self.saved()
        self.resumed = saved, len(rows(self.logdir / METRICS))
        wait_for(lambda: self.saved() > made, "recovery", self.commands, 240)
        return Loss(host, made - saved, time.monotonic() - begin)

    def interval(self):
        """The most updates between two checkpoints."""
        pairs = itertools.pairwise(self.checkpoints)
        return max(after - before for before, after in pairs)

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
def test_both_hosts_may_be_killed(hosts, capsys):
    """No more updates are lost than are made between checkpoints."""
    follower, leader = hosts.follow(), hosts.lead(10**6)
    hosts.wait_updates(5)
    (child,) = follower.children()
    losses = [hosts.lose("follower", child)]
    hosts.wait_updates(5)
    losses.append(hosts.lose("leader", hosts.role("agent")))
    hosts.wait_updates(5)
    for loss in losses:
        with capsys.disabled():
            print(f"\n{loss}, of at most {hosts.interval()} between checkpoints")
        # One checkpoint may have been under way.
        assert loss.updates <= 2 * hosts.interval()
    os.killpg(follower.process.pid, signal.SIGTERM)  # As a scheduler does to all.
    assert leader.stop(signal.SIGTERM, 90) == 0, leader.text()
    assert follower.wait() == 0, follower.text()
    assert leader.text().count(FAILED) == len(losses)
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
    wait_for(lambda: "is waiting for a server" in follower.text(), "word", [follower])
    assert follower.stop(signal.SIGINT) == 0, follower.text()
