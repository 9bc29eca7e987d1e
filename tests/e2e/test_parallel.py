"""The parallel run with real processes: it ends, resumes and survives."""

import json
import re
import signal
import threading
import time

import numpy as np
import psutil
import pytest

from tests.e2e import parallel_run
from tests.e2e.command import rows
from tests.e2e.watching import LENGTH, Run, check_counts, incarnations, stored

PAUSE = 2.0  # Seconds that an environment may be kept waiting by the end of another.
MANY = 40  # Environments of a large machine, ten times as many as sequences in a batch.


def test_steps_end_the_run_and_it_resumes(tmp_path):
    first = Run(tmp_path, "--steps", 1000)
    assert first.finish() == 0, first.output
    assert "agent completed the run" in first.output
    assert first.step() == 1000
    check_counts(first)
    checkpoint = newest(first)
    again = Run(tmp_path, "--steps", 1000)
    assert again.finish() == 0, again.output
    assert newest(again) == checkpoint, "a complete run has changed"
    second = Run(tmp_path, "--steps", 1501)
    assert second.finish() == 0, second.output
    assert "Resumed from" in second.output
    assert second.step() == 1501
    check_counts(second)
    check_metric_counts(second)


def newest(run):
    """The newest checkpoint of the agent."""
    return max((run.logdir / "ckpt" / "agent").glob("0*"))


METRICS = """
train/loss report/mean_reward fps/train fps/policy fps/env episode/length
limiter/avail replay/items replay_eval/items parallel/ep_states
parallel/env_wait parallel/actor_wait parallel/learner_wait
parallel/insert_wait parallel/sample_wait
timer/actor/policy/share timer/learner/train/share timer/learner/batch/mean
timer/replay/sample/share timer/replay/add/count
usage/agent/cpu usage/replay/memory usage/logger/threads usage/envs/processes
server/actor/recv_rate client/actor/calls server/replay/recv_rate
client/learner/calls server/logger/recv_rate
"""


def check_metric_counts(run):
    """What the metrics of all starts add up to is what the checkpoints say."""
    metrics = rows(run.logdir / "metrics.jsonl")
    names = {name for row in metrics for name in row}
    assert set(METRICS.split()) <= names

    def total(name):
        return sum(row.get(name, 0) for row in metrics)

    learner = json.loads((newest(run) / "learner" / "tree.json").read_text())
    assert total("limiter/inserts") == run.step() == learner["step"]
    assert total("timer/learner/train/count") == learner["updates"] > 0
    # Each insert earns samples; both sides may be a tolerance ahead.
    ratio = 16 / parallel_run.LENGTH
    minsize = parallel_run.BATCH * LENGTH
    earned = (run.step() - minsize) * ratio
    tolerance = 4 * parallel_run.BATCH
    assert abs(earned - total("limiter/samples")) <= tolerance + 2 * 4 * ratio
    meta = json.loads((newest(run) / "meta.json").read_text())
    assert meta["format"] == 2
    assert meta["config"]["batch_length"] == parallel_run.LENGTH


SLOW = {
    ("--slow", "env", "--train_ratio", 50): "env: environments are busy",
    ("--slow", "policy", "--train_ratio", 50): "actor: busy",
    ("--slow", "train"): "learner: idle",
    # One environment and the policy take turns, so that neither is busy all the time.
    ("--slow", "both", "--envs", 1): "replay limiter: the learner waits",
}


@pytest.mark.parametrize("flags", SLOW, ids=lambda flags: "-".join(map(str, flags)))
def test_the_bottleneck_is_named(tmp_path, flags):
    run = Run(tmp_path, *flags, "--eval_envs", 0)
    run.follow()
    pattern = f"parallel/bottleneck: {SLOW[flags]}"
    run.wait_for(lambda: re.search(pattern, run.output), pattern)
    assert run.stop() == 0, run.output


def test_the_agent_can_be_threads_of_the_launcher(tmp_path):
    """It completes, resumes, and Ctrl-C ends it without loss."""
    flags = ("--agent_process", "false", "--actor_threads", 2)
    first = Run(tmp_path, *flags, "--steps", 500)
    assert first.finish() == 0, first.output
    assert "agent completed the run" in first.output
    assert first.roles()["agent"]["pid"] == first.process.pid
    assert first.step() == 500
    check_counts(first)
    second = Run(tmp_path, *flags)
    second.wait_episodes(len(second.scores()) + 8)
    assert second.stop(signal.SIGINT) == 0, second.output
    assert "Resumed from" in second.output
    assert "asked to stop" in second.output
    assert second.step() > 500
    check_counts(second)


@pytest.mark.slow
def test_forty_environments_all_take_part(tmp_path):
    run = Run(tmp_path, "--envs", MANY, "--eval_envs", 0)
    run.wait_for(lambda: run.lived() == MANY, f"steps of {MANY} environments", 300)
    assert run.stop() == 0, run.output
    check_counts(run)
    replay = stored(tmp_path)
    steps = np.bincount(np.unique(incarnations(replay), return_inverse=True)[1])
    replay.close()
    assert len(steps) == MANY, run.output
    assert steps.min() >= parallel_run.LIVED


def test_duration_ends_the_run(tmp_path):
    run = Run(tmp_path, "--duration", 8)
    assert run.finish() == 0, run.output
    assert "8 seconds passed" in run.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_without_loss(tmp_path, number):
    run = Run(tmp_path)
    run.wait_episodes(8)
    assert run.stop(number) == 0, run.output
    assert "asked to stop" in run.output
    assert "did not stop in time" not in run.output
    check_counts(run)


class Stalls(threading.Thread):
    """Measures how long this machine keeps a thread waiting that should run."""

    def __init__(self):
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._longest = 0.0

    def run(self):
        last = time.monotonic()
        while not self._ended.wait(0.02):
            now = time.monotonic()
            self._longest = max(self._longest, now - last - 0.02)
            last = now

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *args):
        self._ended.set()
        self.join()

    def longest(self):
        return self._longest


def check_pauses(run, begin, stalls, but):
    """Since `begin` no environment waited long, but the one that was ended.

    A step needs three processes, each of which a busy machine may keep waiting.
    """
    limit = PAUSE + 3 * stalls.longest()
    for path in (run.logdir / "pauses").glob("*.jsonl"):
        if path.name.startswith(f"{but}-"):
            continue
        pauses = [end - start for start, end in rows(path) if end > begin]
        assert max(pauses, default=0) <= limit, (path.name, pauses)


# The others go on while one of these is replaced. Without the replay or the agent there
# is nobody to act or to keep the steps: they wait until it is there again.
PAUSES = {"env0": False, "logger": False, "replay": True, "agent": True}


@pytest.mark.parametrize("role", PAUSES)
def test_a_killed_role_is_replaced_and_nothing_is_lost(tmp_path, role):
    run = Run(tmp_path)
    run.wait_episodes(8)
    with Stalls() as stalls:
        begin = time.monotonic()
        run.kill(role)
        run.wait_restart(role)
        run.wait_episodes(len(run.scores()) + 8)
    if not PAUSES[role]:
        check_pauses(run, begin, stalls, but=role.removeprefix("env"))
    assert run.stop() == 0, run.output
    assert f"{role} failed" in run.output
    restarts = {name: role["restarts"] for name, role in run.roles().items()}
    assert restarts == {name: int(name == role) for name in restarts}
    check_counts(run, agents=int(role == "agent"))


def test_no_score_is_lost_with_the_agent_while_the_logger_hangs(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    run.kill("logger", signal.SIGSTOP)
    files = len(list((tmp_path / "replay").iterdir()))
    more = files + 10  # Each of 64 steps.
    run.wait_for(
        lambda: len(list((tmp_path / "replay").iterdir())) > more,
        "steps without logger",
    )
    run.kill("agent")
    run.wait_restart("agent")
    run.kill("logger", signal.SIGCONT)
    run.wait_episodes(len(run.scores()) + 8)
    assert run.stop() == 0, run.output
    check_counts(run, agents=1)


FAULTS = {
    "raise": "broken on purpose",
    "nan": "observation 'vector' is not finite",
    "shape": r"observation 'vector' has shape \(3,\), its space says \(7,\)",
    "missing": "observation lacks 'vector'",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_environment_is_reported_and_restarted(tmp_path, fault):
    run = Run(tmp_path, "--fault", fault)
    run.wait_for(lambda: (tmp_path / "fault").exists(), "fault")
    run.wait_restart("env0")
    run.wait_episodes(len(run.scores()) + 8)
    assert run.stop() == 0, run.output
    assert re.search(f"env0 failed .* {FAULTS[fault]}", run.output)
    check_counts(run)


def test_an_environment_that_never_starts_ends_the_run(tmp_path):
    run = Run(tmp_path, "--fault", "start", "--budget", 2)
    assert run.finish() == 1
    last = "\n".join(run.output.splitlines()[-25:])
    assert "role 'env0' failed 3 times" in last
    assert "OSError: no simulator here" in last


def test_a_hung_environment_is_replaced(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    with Stalls() as stalls:
        begin = time.monotonic()
        run.kill("env1", signal.SIGSTOP)
        run.wait_restart("env1")
        run.wait_episodes(len(run.scores()) + 8)
    check_pauses(run, begin, stalls, but="1")
    assert run.stop() == 0, run.output
    assert re.search(r"env1 failed .* no heartbeat", run.output)
    check_counts(run)


def test_children_vanish_with_a_killed_launcher_and_it_resumes(tmp_path):
    run = Run(tmp_path)
    run.wait_episodes(8)
    pids = [role["pid"] for role in run.roles().values()]
    run.process.kill()
    run.process.wait(30)
    processes = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    assert not psutil.wait_procs(processes, timeout=10)[1]
    before = stored(tmp_path)
    total = before.total
    before.close()
    again = Run(tmp_path)
    again.wait_episodes(len(again.scores()) + 8)
    assert again.stop() == 0, again.output
    assert again.step() > total
    check_counts(again, agents=1)
