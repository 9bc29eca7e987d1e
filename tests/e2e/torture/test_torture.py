"""A run learns while random faults hit it; then no step and no episode is missing."""

import contextlib
import os
import subprocess

import numpy as np
import pytest

from tests.e2e import machines
from tests.e2e.torture import faults
from tests.e2e.torture.reconcile import reconcile
from tests.e2e.torture.run import FAR, NEAR, TortureRun
from tests.learning.tasks import OPTIMUM

# The short form; `make torture` takes half an hour. Within the minute this seed cuts
# the network for longer than connections last, and kills replay and agent.
SECONDS = float(os.environ.get("TORTURE_SECONDS", "60"))
SEED = int(os.environ.get("TORTURE_SEED", "268"))
CHOSEN = os.environ.get("TORTURE_FAULTS", "kill,stop,partition")
MEGABYTES = 512  # Of the disk: several times what the run writes.
LAST = 100  # Episodes whose mean score counts.
NOISE = 0.5  # Two standard deviations of that mean, without any learning.
LONG = 900.0  # Seconds from which on the run has to learn the task.
LEARNED = 8000  # Steps after which a run has done so.
REFERENCES = 2  # Undisturbed runs to compare with, of other seeds.


@pytest.fixture
def torture_run(tmp_path):
    kinds = [kind for kind in CHOSEN.split(",") if kind]
    with contextlib.ExitStack() as stack:
        network = disk = None
        try:
            if faults.PARTITION in kinds:
                network = stack.enter_context(machines.namespaces())
            if faults.DISK in kinds:
                path = tmp_path / "disk"
                disk = stack.enter_context(machines.small_disk(path, MEGABYTES))
        except (OSError, subprocess.CalledProcessError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"not allowed here: {error}; TORTURE_FAULTS=kill,stop works")
        run = TortureRun(tmp_path, network, disk, seed=SEED)
        yield stack.enter_context(run), kinds


@pytest.mark.slow
def test_torture(torture_run, tmp_path):
    run, kinds = torture_run
    planned = faults.plan(SEED, SECONDS, kinds, NEAR + FAR)
    print(f"\nSeed {SEED}, {SECONDS:.0f} s, {len(planned)} faults of {kinds}:")
    print(*planned, sep="\n", flush=True)
    run.wait_episodes(20)
    injector = faults.Injector(run)
    injector.inject(planned, SECONDS)
    run.wait_episodes(20)
    run.stop()
    report = reconcile(run, injector.deaths)
    print(
        f"{len(planned)} faults, of which {len(injector.deaths)} killed the agent; "
        f"{report.made:,} steps made, {report.stored:,} stored, {report.lost} died "
        f"with a process; {report.episodes:,} episodes; final score {final(run):.2f}"
    )
    if faults.CRASH not in kinds:  # Its successor begins to count anew.
        agents = injector.killed.count("agent")
        assert run.failures("agent") == agents, "the agent failed by itself"
    if SECONDS >= LONG:
        assert report.stored >= LEARNED
        others = [undisturbed(tmp_path, SEED + 1 + i) for i in range(REFERENCES)]
        print("Undisturbed runs:", *(f"{score:.2f}" for score in others))
        assert min(others) - NOISE <= final(run) <= 1.15 * OPTIMUM


def final(run):
    """Mean score of the last episodes."""
    return float(np.mean(run.scores()[-LAST:]))


def undisturbed(directory, seed, steps=LEARNED):
    """The final score of a run without faults."""
    folder = directory / f"undisturbed{seed}"
    folder.mkdir()
    with TortureRun(folder, seed=seed) as run:
        run.wait_step(steps, timeout=1800)
        run.stop()
        reconcile(run, deaths=[])
        return final(run)


def test_a_seed_gives_the_same_faults():
    def plan(seed):
        return faults.plan(seed, 600.0, list(faults.KINDS), NEAR + FAR)

    assert plan(0) == plan(0)
    assert plan(0) != plan(1)
    assert {fault.kind for fault in plan(0)} == set(faults.KINDS)
