"""A parallel run in a process of its own, and what must hold of what it leaves."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest

from tests.e2e import command, parallel_run

SCRIPT = pathlib.Path(parallel_run.__file__)
LENGTH = parallel_run.CONTEXT + parallel_run.LENGTH


class Run:
    """A run in a process of its own."""

    def __init__(self, logdir, *args):
        self.logdir = pathlib.Path(logdir)
        words = [sys.executable, "-m", "tests.e2e.parallel_run", logdir, *args]
        self.process = subprocess.Popen(
            list(map(str, words)),
            cwd=SCRIPT.parents[2],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.output = ""
        self.reader = None

    def follow(self):
        """Let a thread add what the run prints to `output`."""

        def read():
            for line in self.process.stdout:
                self.output += line

        self.reader = threading.Thread(target=read, daemon=True)
        self.reader.start()

    def printed(self):
        """All that the run printed, once it has ended."""
        if not self.reader:
            return self.process.stdout.read()
        self.reader.join(30)
        return self.output

    def roles(self):
        return json.loads((self.logdir / "roles.json").read_text())

    def wait_for(self, condition, what, timeout=60):
        """Look every now and then until a condition holds."""
        pause = threading.Event()
        for _ in range(int(timeout / 0.05)):
            if condition():
                return
            if self.process.poll() is not None:
                pytest.fail(f"the run ended before {what}:\n{self.printed()}")
            pause.wait(0.05)
        self._kill()
        pytest.fail(f"no {what} in {timeout} s:\n{self.printed()}")

    def _kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def wait_episodes(self, amount):
        self.wait_for(lambda: len(self.scores()) >= amount, f"{amount} episodes")

    def wait_restart(self, role, amount=1):
        def restarted():
            return self.roles()[role]["restarts"] >= amount

        self.wait_for(restarted, f"restart of {role}")

    def kill(self, role, number=signal.SIGKILL):
        os.kill(self.roles()[role]["pid"], number)

    def stop(self, number=signal.SIGTERM):
        """End the run by a signal and return its exit code."""
        pids = [role["pid"] for role in self.roles().values()]
        self.process.send_signal(number)
        if self.reader:
            self.reader.join(30)
            self.process.wait(30)
        else:
            self.output, _ = self.process.communicate(timeout=30)
        assert not any(map(psutil.pid_exists, pids)), "orphans"
        return self.process.returncode

    def lived(self):
        """How many incarnations of environments have made some steps."""
        return len(list((self.logdir / "pauses").glob("*.lived")))

    def scores(self):
        return command.rows(self.logdir / "scores.jsonl")

    def step(self):
        return command.logged_step(self.logdir)

    def finish(self, timeout=120):
        """Wait for a run that ends by itself and return its exit code."""
        try:
            self.output, _ = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self._kill()
            pytest.fail(f"no end in {timeout} s:\n{self.printed()}")
        return self.process.returncode


def stored(logdir):
    """What the replay holds, opened as a new run would."""
    return command.stored(logdir, LENGTH)


def check_counts(run, agents=0):
    """The step counter equals the steps collected, and sequences are not stitched.

    `agents` is how many agents were killed, each of which takes along steps of every
    environment that the replay had not acknowledged.
    """
    replay = stored(run.logdir)
    assert replay.total == run.step()
    assert replay.stats()["steps"] == replay.total
    check_steps(run, replay, agents)
    for _ in range(20):
        batch = replay.sample(16)
        counts, first = batch["count"], batch["is_first"][:, 1:]
        following = np.diff(counts, axis=1) == 1
        assert (following | first).all(), "stitched from two incarnations"
        assert (counts[:, 1:][first] == 0).all()
        assert (batch["latent/count"] == counts).all(), "carry of another episode"
    check_metrics(run, replay)
    replay.close()


def check_steps(run, replay, agents):
    """Each step is there once, none is missing, and each episode has its score."""
    steps = columns(replay, "serial", "is_first", "is_last", "reward")
    assert len(steps["serial"]) == replay.total
    assert len(np.unique(steps["serial"])) == replay.total, "stored twice"
    gaps = np.diff(steps["serial"]) != 1
    restarted = np.diff(steps["serial"] >> 32) != 0
    assert steps["is_first"][1:][gaps].all(), "stitched over missing steps"
    assert (gaps & ~restarted).sum() <= agents * parallel_run.ENVS, (
        "acknowledged steps are missing"
    )
    starts = np.flatnonzero(steps["is_first"])
    returns = np.add.reduceat(steps["reward"], starts)
    finished = np.sort(returns[np.logical_or.reduceat(steps["is_last"], starts)])
    scores = np.sort([row["episode/score"] for row in run.scores()])
    np.testing.assert_allclose(scores, finished, rtol=1e-5)


def columns(replay, *keys):
    """Values of all steps in the order in which the environments made them."""
    chunks = list(replay._index.chunks.values())
    found = {k: np.concatenate([c.columns[k][: c.count] for c in chunks]) for k in keys}
    order = np.argsort(found["serial"])
    return {key: value[order] for key, value in found.items()}


def incarnations(replay):
    """The incarnation of the environment of each step."""
    return columns(replay, "serial")["serial"] >> 32


def check_metrics(run, replay):
    """Every episode that the replay holds was logged, once."""
    steps = [row["step"] for row in run.scores()]
    assert steps == sorted(steps)
    lines = (run.logdir / "metrics.jsonl").read_text().splitlines()
    speeds = [line for line in lines if "fps/policy" in line]  # Never alike.
    assert len(set(speeds)) == len(speeds), "written twice"
    written = [json.loads(line)["step"] for line in lines]
    assert written == sorted(written)
    chunks = replay._index.chunks.values()
    finished = sum(int(c.columns["is_last"][: c.count].sum()) for c in chunks)
    assert len(steps) == finished
