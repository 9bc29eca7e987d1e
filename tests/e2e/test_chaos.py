"""A random role is killed every ten seconds for five minutes; then all adds up."""

import os
import random
import signal
import threading

import pytest

from tests.e2e.watching import Run, check_counts

SECONDS = float(os.environ.get("CHAOS_SECONDS", "300"))
EVERY = 10.0


@pytest.mark.slow
def test_chaos(tmp_path):
    run = Run(tmp_path, "--budget", 999)
    run.wait_episodes(8)
    rng, pause, killed = random.Random(0), threading.Event(), []
    for _ in range(int(SECONDS / EVERY)):
        role = rng.choice(["agent", "replay", "logger", *list(run.roles())])
        run.kill(role, signal.SIGKILL)
        killed.append(role)
        run.wait_restart(role, killed.count(role))
        run.wait_episodes(len(run.scores()) + 4)
        pause.wait(EVERY)
    assert run.stop() == 0, run.output
    restarts = {name: role["restarts"] for name, role in run.roles().items()}
    assert restarts == {name: killed.count(name) for name in restarts}
    check_counts(run, agents=killed.count("agent"))
    print(f"{len(killed)} kills, {run.step():,} steps, {len(run.scores()):,} episodes")
