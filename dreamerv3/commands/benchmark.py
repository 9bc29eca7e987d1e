"""`dreamerv3 benchmark`: a suite with several seeds, over published curves."""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence

from dreamerv3.benchmarking import api, suites
from dreamerv3.benchmarking.jobs import Request
from dreamerv3.commands.base import CommandError, run_module
from embodied.core import extras

EXAMPLE = """example:
  dreamerv3 benchmark dmc_proprio_2023 --tasks dmc_cartpole_swingup --seeds 2 \\
      --budget 50000 --dry-run
  dreamerv3 benchmark atari100k --on ray --logdir /shared/atari100k
  dreamerv3 benchmark builtin --sweep agent.opt.lr 1e-4 4e-5 --configs debug

Other flags go to every run. Run the same command again to resume: finished
runs are not repeated. Page, picture and JSON are written to the log directory."""


def run(argv: Sequence[str]) -> None:
    """Run, resume or estimate a benchmark."""
    args, more = parser().parse_known_args(argv)
    request = to_request(args, more)
    if args.on == "ray" and not importlib.util.find_spec("ray"):
        raise CommandError(f"--on ray needs Ray: {extras.install_line('ray')}")
    for name in ("slots", "cores"):
        if getattr(args, name) < (name == "cores"):
            raise CommandError(f"--{name} {getattr(args, name)} is too small")
    if args.dry_run:
        print(api.describe(request, args.slots))
        return
    try:
        outcome = api.run(request, args.on, args.slots, args.cores)
    except KeyboardInterrupt:
        print(f"All runs are stopped. To resume: {api.command(request)}")
        raise
    for name, text in outcome.failed.items():
        print(f"{name}: {text}")
    if outcome.done < len(outcome.jobs):
        missing = len(outcome.jobs) - outcome.done
        raise CommandError(
            f"{missing} of {len(outcome.jobs)} runs are not done, see job.log in "
            f"their log directories; to try again: {api.command(request)}"
        )


def to_request(args: argparse.Namespace, more: Sequence[str]) -> Request:
    """The arguments as a request."""
    sweep = {key: tuple(values) for key, *values in args.sweep}
    return Request(
        args.suite,
        tuple(args.tasks),
        args.seeds,
        args.budget,
        sweep,
        args.logdir or f"logdir/{args.suite}",
        tuple(more),
    )


def number(text: str) -> int:
    """A number of steps, such as 50000 or 5e4."""
    value = float(text)
    if value < 1 or value != int(value):
        raise argparse.ArgumentTypeError(f"'{text}' must be a whole number above 0")
    return int(value)


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    result = argparse.ArgumentParser(
        prog="dreamerv3 benchmark",
        description="Train on a suite with several seeds, over published curves.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    names = ", ".join([*suites.PUBLISHED, *suites.OWN])
    add = result.add_argument
    add("suite", help=f"{names}, or a block of settings")
    add("--tasks", nargs="+", default=(), help="of the suite's or any (all of it)")
    add("--seeds", type=int, default=5, help="0 to this number, less one (5)")
    add(
        "--budget",
        type=number,
        default=0,
        help="agent steps times action repeat of each run, as published curves "
        "count (that of the suite)",
    )
    add(
        "--sweep",
        nargs="+",
        action="append",
        default=[],
        metavar=("KEY", "VALUE"),
        help="a setting and values to try; several make all combinations",
    )
    add("--on", choices=("local", "ray"), default="local", help="where to run (local)")
    add(
        "--slots",
        type=int,
        default=0,
        help="concurrent runs (0: one per GPU, one without GPUs, on Ray what fits)",
    )
    add(
        "--cores",
        type=int,
        default=1,
        help="cores of a run on Ray without GPUs (1)",
    )
    add("--logdir", default="", help="where everything is kept (logdir/SUITE)")
    add("--dry-run", action="store_true", help="list the runs and estimate the time")
    return result


if __name__ == "__main__":
    run_module(__file__)
