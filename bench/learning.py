"""Learning curves on small tasks, beside the figures of the public code.

    python bench/learning.py                  # Track, five seeds.
    python bench/learning.py cartpole --seeds 1
    python bench/learning.py --keep docs/results   # Also write curves (JSON and PNG).

Each run is the command that is printed. A curve is the mean score of the episodes that
ended within each thousand steps; speed is measured once everything is compiled.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

WINDOW = 1000  # Steps per point of a curve.
IMAGES = "--script train --run.env_processes False"  # All in one process.
# Without images, a device for each core is faster: see "Devices" in docs/agent.md.
VECTORS = f"{IMAGES} --jax.mock_devices 2 --jax.train_devices 0 1"


class Task(NamedTuple):
    """What to run and what to compare it with."""

    flags: str
    random: float  # Score of random play.
    best: float  # Of perfect play, or the largest there is.
    goal: float  # Score whose first crossing is reported.


TASKS = {
    "track": Task(f"--configs track {VECTORS} --run.steps 12000", 2.29, 14.57, 12),
    "track_discrete": Task(
        f"--configs track {VECTORS} --env.track.discrete True --run.steps 12000",
        2.29,
        14.57,
        12,
    ),
    "track_parallel": Task(
        "--configs track --script parallel --run.steps 12000", 2.29, 14.57, 12
    ),
    "cartpole": Task(
        f"--configs track {VECTORS} --task gymnasium_CartPole-v1 --run.steps 15000 "
        "--run.train_ratio 64",
        22,
        500,
        400,
    ),
    "pendulum": Task(
        f"--configs track {VECTORS} --task gymnasium_Pendulum-v1 --run.steps 20000 "
        "--run.train_ratio 64",
        -1200,
        -120,
        -300,
    ),
    "cartpole_swingup": Task(
        f"--configs track {VECTORS} --task dmc_cartpole_swingup --env.dmc.image False "
        "--env.dmc.repeat 2 --run.steps 15000 --run.train_ratio 64",
        30,
        880,
        600,
    ),
    "minigrid": Task(
        f"--configs track {IMAGES} --task minigrid_Empty-6x6-v0 --run.steps 8000 "
        "--run.train_ratio 64",
        0.1,
        0.97,
        0.9,
    ),
    "pinpad": Task(
        f"--configs track {IMAGES} --task pinpad_three --env.pinpad.length 500 "
        "--run.steps 12000",
        0,
        200,
        20,
    ),
}
# Env steps per second and first window above 12 on track, on two quiet cores.
PUBLIC_SPEED, PUBLIC_CROSSING = 43, "10-11 k and 7-8 k"


class Run(NamedTuple):
    """One seed."""

    curve: list[tuple[int, float]]  # End of each window and mean score in it.
    speed: float  # Environment steps per second, once compiled.


def main() -> None:
    """Run the tasks and print one line a seed."""
    args = parse()
    for name in args.tasks or ["track"]:
        task = TASKS[name]
        print(f"{name}: dreamerv3 {task.flags} --seed N --logdir DIR")
        runs = {}
        for seed in range(args.seeds):
            with tempfile.TemporaryDirectory() as directory:
                runs[seed] = train(task, seed, pathlib.Path(directory) / "run")
            print(f"  seed {seed}: {describe(task, runs[seed])}", flush=True)
        summarize(name, task, list(runs.values()))
        if args.keep:
            keep(args.keep, name, task, runs)


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=", ".join(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--keep", type=pathlib.Path, help="directory for curves")
    args = parser.parse_args()
    if unknown := set(args.tasks) - set(TASKS):  # `choices` refuse to be left out.
        parser.error(f"no such task: {', '.join(sorted(unknown))}")
    return args


def train(task: Task, seed: int, logdir: pathlib.Path) -> Run:
    """Run the command and read the scores it logged."""
    words = [sys.executable, "-m", "dreamerv3", *shlex.split(task.flags)]
    words += ["--seed", str(seed), "--logdir", str(logdir), "--run.log_every", "5"]
    words += ["--run.report_every", "1e9", "--logger.outputs", "jsonl"]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        raise RuntimeError(f"{shlex.join(words)}:\n{result.stderr}")
    windows: dict[int, list[float]] = {}
    for row in read(logdir / "scores.jsonl"):
        end = (int(row["step"]) // WINDOW + 1) * WINDOW
        windows.setdefault(end, []).append(row["episode/score"])
    curve = [(end, statistics.fmean(scores)) for end, scores in sorted(windows.items())]
    return Run(curve, speed(read(logdir / "metrics.jsonl")))


def read(path: pathlib.Path) -> list[dict]:
    """The rows of a JSON lines file."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def speed(rows: list[dict]) -> float:
    """Steps per second after the first tenth, in which everything is compiled."""
    rows = [row for row in rows if row["step"] > 0.1 * rows[-1]["step"]]
    return (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["time"] - rows[0]["time"])


def crossing(task: Task, run: Run) -> int | None:
    """The end of the first window whose mean is above the goal."""
    return next((end for end, score in run.curve if score > task.goal), None)


def describe(task: Task, run: Run) -> str:
    """One seed in words."""
    end = crossing(task, run)
    when = f"in steps {end - WINDOW:,} to {end:,}" if end else "never"
    last = statistics.fmean(score for _, score in run.curve[-3:])
    return (
        f"above {task.goal:g} {when}, last three windows {last:.2f} (random "
        f"{task.random:g}, best {task.best:g}), {run.speed:.0f} env steps/s"
    )


def summarize(name: str, task: Task, runs: list[Run]) -> None:
    """The median over seeds; for Track beside the public code."""
    ends = sorted(crossing(task, run) or sys.maxsize for run in runs)
    middle = statistics.median_low(ends)
    rate = statistics.median(run.speed for run in runs)
    when = f"{middle:,}" if middle < sys.maxsize else "never"
    print(f"  median of {len(runs)}: above {task.goal:g} by {when}, {rate:.0f} steps/s")
    if name.startswith("track"):
        print(
            f"  public code: above 12 in steps {PUBLIC_CROSSING}, {PUBLIC_SPEED} env "
            f"steps/s on its machine; ours is {rate / PUBLIC_SPEED:.1f} times as fast"
        )


def keep(directory: pathlib.Path, name: str, task: Task, runs: dict[int, Run]) -> None:
    """Curves as a small JSON file and a picture."""
    directory.mkdir(parents=True, exist_ok=True)
    data = {
        "command": f"dreamerv3 {task.flags} --seed N",
        "window": WINDOW,
        "random": task.random,
        "best": task.best,
        "seeds": {
            seed: {
                "steps_per_second": round(run.speed, 1),
                "curve": [[end, round(score, 3)] for end, score in run.curve],
            }
            for seed, run in runs.items()
        },
    }
    (directory / f"{name}.json").write_text(json.dumps(data) + "\n")
    figure, axes = plt.subplots(figsize=(4, 2.6))
    for seed, run in runs.items():
        axes.plot(*zip(*run.curve, strict=True), label=f"seed {seed}")
    axes.axhline(task.random, color="gray", linestyle=":")
    axes.axhline(task.best, color="gray", linestyle="--")
    axes.set(title=name, xlabel="environment steps", ylabel="score")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(directory / f"{name}.png", dpi=90)
    plt.close(figure)


if __name__ == "__main__":
    main()
