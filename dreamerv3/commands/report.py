"""`dreamerv3 report`: one HTML file about a run."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.viewing import published, report, runs

EXAMPLE = """example:
  dreamerv3 report logdir/demo -o report.html

The file needs nothing else: curves, last videos, settings, throughput, restarts and the
command to train again are inside. Send it to someone."""


def run(argv: Sequence[str]) -> None:
    """Write the file and say where it is."""
    args = parser().parse_args(argv)
    path = pathlib.Path(args.output or pathlib.Path(args.logdir) / report.FILE)
    if path.is_dir():
        raise CommandError(f"--output {path} is a directory: name a file in it")
    try:
        found = runs.find([args.logdir])
        if len(found) > 1:
            names = ", ".join(run.name for run in found[:5])
            raise CommandError(
                f"{args.logdir} holds {len(found)} runs ({names}, …); a report is "
                "about one of them (dreamerv3 plot and view compare runs)"
            )
        content = report.read(found[0].path, args.published)
    except runs.RunsError as error:
        raise CommandError(str(error)) from error
    except OSError as error:
        raise CommandError(f"cannot read {args.logdir}: {error}") from error
    try:
        size = report.save(content, path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from error
    print(f"Report: {path} ({size / 1e6:.1f} MB)")


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    result = argparse.ArgumentParser(
        prog="dreamerv3 report",
        description="Write one HTML file about a run, to send to someone.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument("logdir", help="the log directory of a run")
    result.add_argument(
        "-o", "--output", help=f"where to write it ({report.FILE} in the log directory)"
    )
    result.add_argument("--published", action="store_true", help=published.HELP)
    return result


if __name__ == "__main__":
    run_module(__file__)
