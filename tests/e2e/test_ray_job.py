"""A whole job on a Ray cluster of three nodes, of which the one it runs on is lost."""

import json
import os
import signal
import textwrap

import numpy as np
import psutil
import pytest

from tests.e2e.command import Command, logged_step, rows, stored, wait_for
from tests.e2e.ray_cluster import ENV, Cluster, ancestors
from tests.e2e.watching import columns

LENGTH = 11  # Of replayed sequences in the block `debug`.
# Numbers its steps unlike any other process.
NUMBERED = """
    import pathlib
    import secrets

    import elements
    import embodied
    import numpy as np

    LAST = 20  # Of the steps of an episode.

    class Env(embodied.Env):
        act_space = {
            "action": elements.Space(np.int32, (), 0, 2),
            "reset": elements.Space(bool),
        }
        obs_space = {
            "life": elements.Space(np.int32),
            "serial": elements.Space(np.int32),
            "reward": elements.Space(np.float32),
            **{f"is_{x}": elements.Space(bool) for x in ("first", "last", "terminal")},
        }

        def __init__(self):
            self.life, self.serial, self.count = secrets.randbits(30), 0, LAST

        def step(self, action):
            self.serial += 1
            if self.serial == 100:
                pathlib.Path(__file__).with_name(f"life-{self.life}").touch()
            restart = action["reset"] or self.count == LAST
            self.count = 0 if restart else self.count + 1
            return {
                "life": np.int32(self.life),
                "serial": np.int32(self.serial),
                "reward": np.float32(self.count > 0),
                "is_first": self.count == 0,
                "is_last": self.count == LAST,
                "is_terminal": False,
            }
"""


class Job:
    """A command at the head of a cluster, whose roles are on other nodes."""

    def __init__(self, cluster, directory):
        self.cluster, self.directory = cluster, directory
        self.logdir = directory / "run"
        path = directory / "numbered.py"
        path.write_text(textwrap.dedent(NUMBERED))
        self.flags = ["--configs", "debug", "--random_agent", "--task", f"{path}:Env"]
        self.flags += ["--logdir", self.logdir, "--launcher", "ray"]
        self.flags += ["--run.save_every", 1]
        self.flags += ["--run.envs_per_process", 2, "--run.eval_envs", 0]

    def start(self, *flags):
        # As in a driver that `ray job submit` starts.
        env = {**ENV, "RAY_ADDRESS": self.cluster.address}
        self.command = Command(self.directory / "job.txt", *self.flags, *flags, env=env)
        return self.command

    def wait(self, condition, what):
        wait_for(condition, what, [self.command], 240)

    def node(self):
        """The node of the replay."""
        roles = json.loads((self.logdir / "roles.json").read_text())
        above = ancestors(roles["replay"]["pid"])
        found = [n for n in self.cluster.nodes if n.process.pid in above]
        return found[0] if found else None

    def scores(self):
        """Step and score of each episode."""
        found = rows(self.logdir / "scores.jsonl")
        return [(row["step"], row["episode/score"]) for row in found]

    def recover(self):
        """Wait until the environments of the next job have made steps."""
        before = self.lives()
        self.wait(lambda: len(self.lives() - before) == 2, "steps of the new job")

    def lives(self):
        """Environments that have made 100 steps."""
        return set(self.directory.glob("life-*"))


@pytest.fixture
def cluster(tmp_path):
    if not os.environ.get("CI"):
        pytest.importorskip("ray")
    made = Cluster(tmp_path)
    try:
        made.start(cpus=1)
        for _ in range(2):
            made.add("--address", made.address, "--num-gpus", 1, cpus=2)
        yield made
    finally:
        made.close()


@pytest.mark.slow
def test_a_job_survives_the_loss_of_its_node(cluster, tmp_path):
    """It is followed and ended from a node that could not run it."""
    job = Job(cluster, tmp_path)
    greedy = job.start("--ray.gpus", 2)
    assert greedy.wait(120) == 2, greedy.text()
    assert "no node has ray.gpus 2" in greedy.text()
    assert "1 GPU, 2 CPU" in greedy.text()
    assert not job.logdir.exists()
    command = job.start("--ray.gpus", 1, "--ray.cpus_core", 1)
    job.wait(lambda: len(job.lives()) == 2 and job.scores(), "episodes")
    job.wait(lambda: "\nstep " in command.text(), "output of the job")
    first = job.node()
    assert first in cluster.nodes[1:]  # The others have a GPU.
    cluster.lose(first)
    saved = logged_step(job.logdir)
    kept = [(step, score) for step, score in job.scores() if step <= saved]
    job.recover()
    assert job.node() not in (None, first)
    (program,) = programs()
    program.kill()  # As for lack of memory; its node is still there.
    job.recover()
    assert command.text().count("The job was lost") == 2
    assert command.stop(signal.SIGTERM, 90) == 0, command.text()
    assert "The run ended: asked to stop" in command.text()
    assert not (job.logdir / "job").exists()
    wait_for(lambda: not programs(), "end of all programs")
    replay = stored(job.logdir, LENGTH)
    assert replay.total == logged_step(job.logdir) > saved
    found = columns(replay, "life", "serial")
    steps = np.stack(list(found.values()))
    assert len(np.unique(steps, axis=1).T) == replay.total, "stored twice"
    replay.close()
    assert job.scores()[: len(kept)] == kept, "saved episodes are missing"
    steps = [step for step, _ in job.scores()]
    assert steps == sorted(steps)


def programs():
    """Programs that Ray has started for us."""
    found = psutil.process_iter(["cmdline"])
    return [p for p in found if "embodied.cluster.job" in (p.info["cmdline"] or [])]
