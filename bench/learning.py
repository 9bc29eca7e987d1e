"""Learning curves that docs/results.md is about, through `dreamerv3 benchmark`.

    python bench/learning.py                       # What there is.
    python bench/learning.py track                 # Run or resume it.
    python bench/learning.py track --seeds 2 --keep docs/results

Trainings live in logdir/learning/NAME. A crossing is the end of the first thousand
agent steps whose episodes have a mean score above the goal.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import shutil
import statistics
from typing import NamedTuple

import matplotlib.figure
import numpy as np

from dreamerv3.benchmarking import api, page, results
from dreamerv3.benchmarking.jobs import Job, Request

WINDOW = 1000  # Agent steps per point.
RESAMPLES = 10_000  # Of the seeds, for the interval of the median crossing.
SERIAL = "--script train --run.env_processes False --run.log_every 5"
SERIAL += " --run.report_every 1e9 --logger.outputs jsonl"
# Without images, a device for each core is faster: see "Devices" in docs/agent.md.
VECTORS = f"{SERIAL} --jax.mock_devices 2 --jax.train_devices 0 1"


class Entry(NamedTuple):
    """What to run and what to compare it with."""

    suite: str
    task: str
    seeds: int
    budget: int  # Agent steps times action repeat.
    flags: str = VECTORS
    goal: float = math.nan  # Score whose first crossing is reported.
    random: float = math.nan  # Score of random play.
    best: float = math.nan  # Of perfect play, or the largest there is.
    sweep: tuple[str, ...] = ()  # A setting and values to try.


def proprio(task: str, seeds: int = 1) -> Entry:
    """A task of the published curves with their protocol, to 50,000 simulator steps."""
    return Entry("dmc_proprio_2023", f"dmc_{task}", seeds, 50_000)


RATIO = "--run.train_ratio 64"
TRACK = Entry("track", "track_7", 20, 12_000, VECTORS, 12, 2.29, 14.57)
CARTPOLE = "gymnasium_CartPole-v1"
PENDULUM = "gymnasium_Pendulum-v1"
DOORKEY = "minigrid_DoorKey-5x5-v0"
IMAGES = f"{SERIAL} {RATIO}"
ENTRIES = {
    "track": TRACK,
    "track_discrete": TRACK._replace(
        seeds=5, flags=f"{VECTORS} --env.track.discrete True"
    ),
    "track_parallel": TRACK._replace(seeds=2, flags="--script parallel"),
    "cartpole": Entry("small", CARTPOLE, 3, 15_000, f"{VECTORS} {RATIO}", 400, 22, 500),
    "pendulum": Entry(
        "small", PENDULUM, 3, 20_000, f"{VECTORS} {RATIO}", -300, -1200, -120
    ),
    "doorkey": Entry("small", DOORKEY, 3, 20_000, IMAGES, 0.5, 0.05, 0.97),
    "cartpole_swingup": proprio("cartpole_swingup", 2),
    "cartpole_balance": proprio("cartpole_balance"),
    "reacher_easy": proprio("reacher_easy"),
    "ball_in_cup_catch": proprio("ball_in_cup_catch"),
    "walker_walk": proprio("walker_walk"),
    "minigrid": Entry(
        "track", "minigrid_Empty-6x6-v0", 3, 8_000, IMAGES, 0.9, 0.1, 0.97
    ),
    "pinpad": Entry(
        "track", "pinpad_three", 1, 12_000, f"{SERIAL} --env.pinpad.length 500", 20, 0
    ),
    # Only the last step of an episode is rewarded. See "Pong" in docs/results.md.
    "unimix": Entry(
        "track",
        DOORKEY,
        5,
        20_000,
        IMAGES,
        0.5,
        0.05,
        0.97,
        ("agent.policy.unimix", "0.0", "0.01"),
    ),
}
# Env steps per second and first window above 12 on track, on two quiet cores.
PUBLIC_SPEED, PUBLIC_CROSSING = 43, "10-11 k and 7-8 k"


def main() -> None:
    """Run the entries, print crossings, and keep the curves."""
    args = parse()
    for name in args.entries:
        entry = ENTRIES[name]
        logdir = f"logdir/learning/{name}"
        outcome = api.run(request(entry, args.seeds, logdir), "local", args.slots, 1)
        found = {
            method: summary(entry, [j for j in outcome.jobs if j.method == method])
            for method in dict.fromkeys(job.method for job in outcome.jobs)
        }
        for method, values in found.items():
            print(f"{name}, {method}: {describe(entry, values)}")
        if name.startswith("track"):
            print(f"public code: above 12 in {PUBLIC_CROSSING}, {PUBLIC_SPEED} steps/s")
        if args.keep:
            keep(args.keep, name, pathlib.Path(logdir), found)


def parse() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("entries", nargs="*", metavar="NAME", help=", ".join(ENTRIES))
    parser.add_argument("--seeds", type=int, default=0, help="another number of them")
    parser.add_argument("--slots", type=int, default=1, help="trainings at once (1)")
    parser.add_argument("--keep", type=pathlib.Path, help="directory for the results")
    args = parser.parse_args()
    if unknown := set(args.entries) - set(ENTRIES):
        parser.error(f"no such entry: {', '.join(sorted(unknown))}")
    if not args.entries:
        for name, entry in ENTRIES.items():
            print(
                f"{name}: {api.command(request(entry, 0, f'logdir/learning/{name}'))}"
            )
    return args


def request(entry: Entry, seeds: int, logdir: str) -> Request:
    """An entry as a benchmark."""
    sweep = {entry.sweep[0]: entry.sweep[1:]} if entry.sweep else {}
    words = tuple(entry.flags.split())
    seeds = seeds or entry.seeds
    tasks = (entry.task,)
    return Request(entry.suite, tasks, seeds, entry.budget, sweep, logdir, words)


def summary(entry: Entry, jobs: list[Job]) -> dict:
    """Crossings of all seeds with an interval of their median, and speeds."""
    ends = [crossing(entry, job) for job in jobs]
    result = {
        "crossings": [None if math.isinf(end) else end for end in ends],
        "steps_per_second": [round(speed(job.logdir), 1) for job in jobs],
        "last_windows": [round(last(job), 3) for job in jobs],
        "random": entry.random,
        "best": entry.best,
    }
    if not math.isnan(entry.goal):
        low, high = interval(ends)
        result["median"] = _plain(statistics.median_low(ends))
        result["median_interval"] = [_plain(low), _plain(high)]
    return {k: None if v != v else v for k, v in result.items()}


def windows(job: Job) -> list[tuple[int, float]]:
    """End of each window and the mean score in it."""
    steps, scores = results.episodes(job.logdir)
    ends = (steps // WINDOW + 1) * WINDOW
    return [(int(end), float(scores[ends == end].mean())) for end in np.unique(ends)]


def crossing(entry: Entry, job: Job) -> float:
    """The end of the first window whose mean is above the goal; infinity if none."""
    found = windows(job)
    return next((end for end, score in found if score > entry.goal), math.inf)


def last(job: Job) -> float:
    """Mean of the last three windows."""
    scores = [score for _, score in windows(job)[-3:]]
    return statistics.fmean(scores) if scores else math.nan


def interval(ends: list[float]) -> tuple[float, float]:
    """95 % interval of the median by the bootstrap; seeds that never cross count."""
    drawn = np.random.default_rng(0).choice(ends, (RESAMPLES, len(ends)))
    medians = np.sort(drawn, 1)[:, (len(ends) - 1) // 2]  # No mean with infinity.
    return tuple(np.quantile(medians, [0.025, 0.975], method="nearest"))


def speed(logdir: pathlib.Path) -> float:
    """Steps per second after the first tenth, in which everything is compiled."""
    path = logdir / "metrics.jsonl"
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    rows = [json.loads(line) for line in lines]
    rows = [row for row in rows if row["step"] > 0.1 * rows[-1]["step"]]
    if len(rows) < 2 or rows[-1]["time"] <= rows[0]["time"]:
        return math.nan
    return (rows[-1]["step"] - rows[0]["step"]) / (rows[-1]["time"] - rows[0]["time"])


def describe(entry: Entry, values: dict) -> str:
    """All seeds in words."""
    rate = statistics.median(values["steps_per_second"])
    text = f"last windows {values['last_windows']} (random {entry.random:g}, best "
    text += f"{entry.best:g}), {rate:.0f} agent steps/s"
    if math.isnan(entry.goal):
        return text
    ends = ", ".join("never" if e is None else f"{e:,}" for e in values["crossings"])
    low, high = (_words(end) for end in values["median_interval"])
    return (
        f"above {entry.goal:g} by {ends}; median {_words(values['median'])}, 95 % "
        f"interval {low} to {high}; {text}"
    )


def _words(end: float | None) -> str:
    return "never" if end is None else f"{end:,.0f}"


def _plain(value: float) -> float | None:
    return None if math.isinf(value) else float(value)


def keep(
    directory: pathlib.Path, name: str, logdir: pathlib.Path, found: dict[str, dict]
) -> None:
    """Curves, crossings and commands as JSON, and the picture."""
    directory.mkdir(parents=True, exist_ok=True)
    data = json.loads((logdir / page.DATA).read_text())
    (directory / f"{name}.json").write_text(
        json.dumps({**data, "summary": found}) + "\n"
    )
    if (logdir / page.PICTURE).exists():
        shutil.copy(logdir / page.PICTURE, directory / f"{name}.png")
    if all("median" in values for values in found.values()):
        draw_crossings(found, name, directory / f"{name}_crossings.png")


def draw_crossings(found: dict[str, dict], name: str, path: pathlib.Path) -> None:
    """Share of the seeds that have crossed the goal, and the interval of the median."""
    figure = matplotlib.figure.Figure((4, 2.6), layout="constrained")
    axes = figure.subplots()
    for index, (method, values) in enumerate(found.items()):
        ends = sorted(end for end in values["crossings"] if end is not None)
        share = np.arange(len(ends) + 1) / len(values["crossings"])
        label = f"{method} ({len(values['crossings'])} seeds)"
        axes.step([0, *ends], share, where="post", color=f"C{index}", label=label)
        low, high = (end or axes.get_xlim()[1] for end in values["median_interval"])
        axes.plot([low, high], [0.5, 0.5], color=f"C{index}", linewidth=4, alpha=0.4)
    axes.set(xlabel="agent steps", ylabel="above the goal", title=name, ylim=(0, 1.02))
    axes.legend(fontsize=7)
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main()
