"""`dreamerv3 plot`: learning curves of many runs in one picture."""

from __future__ import annotations

import argparse
import difflib
import html
import pathlib
from collections.abc import Sequence

from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.viewing import (
    glossary,
    groups,
    normalise,
    published,
    runs,
    standalone,
)
from dreamerv3.viewing.groups import Group
from dreamerv3.viewing.normalise import Summary
from dreamerv3.viewing.store import SCORE, RunData, Store

SUFFIXES = (".png", ".pdf", ".svg", ".html")
EXAMPLE = """example:
  dreamerv3 plot logdir -o curves.png
  dreamerv3 plot logdir --published
  dreamerv3 plot 'logdir/atari_*' -o curves.html --metric eval/episode/score

Runs with the same task and method in their config.yaml are seeds of one line: the
mean, with a band of one standard deviation. Of tasks with known random and human scores
(Atari) a human-normalised summary of the last tenth of training is drawn and printed.
"""


def run(argv: Sequence[str]) -> None:
    """Read, group, draw."""
    args = parser().parse_args(argv)
    path = pathlib.Path(args.output)
    if path.suffix not in SUFFIXES:
        raise CommandError(
            f"cannot write {path.suffix or 'a file without ending'} as {path}; "
            f"use one of {', '.join(SUFFIXES)}"
        )
    found, notes = collect(args)
    known = normalise.baselines()
    human = [g for g in (normalise.normalised(g, known) for g in found) if g]
    summaries = normalise.summarise(human) if args.metric == SCORE and human else []
    write(found, args, summaries, path)
    if summaries:
        print("Human-normalised scores (0 random, 1 human):")
        print(normalise.table(summaries))
    for note in notes:
        print(note)
    amount = sum(len(group.seeds) for group in found)
    print(f"{amount} {'run' if amount == 1 else 'runs'} drawn in {path}")


def collect(args: argparse.Namespace) -> tuple[list[Group], list[str]]:
    """The curves of all runs by task and method, and which runs have none."""
    try:
        runs.find(args.logdir)
    except runs.RunsError as error:
        raise CommandError(str(error)) from error
    with published.overlay(args.logdir, args.published, near=True) as places:
        store = Store(places)
        store.read_all()
    found = groups.collect(store.all(), args.metric, args.axis, args.bins)
    if found:
        _, without = groups.split(store.all(), args.metric, args.axis)
        return found, left_out(without, args.metric, args.axis) + unread(store)
    if args.axis == "time" and args.metric in store.names():
        raise CommandError("these runs kept no times; use --axis step")
    raise CommandError(f"no run has the metric {args.metric}{hint(args.metric, store)}")


def hint(metric: str, store: Store) -> str:
    """Metrics that may have been meant, else all groups of them."""
    names = sorted(store.names())
    near = [name for name in names if metric.rpartition("/")[2] in name]
    near += difflib.get_close_matches(metric, names, 5)
    if near:
        return f"; did you mean {', '.join(dict.fromkeys(near[:5]))}?"
    firsts = sorted({name.partition("/")[0] for name in names})
    return f"; there are {', '.join(firsts)} and their parts" if firsts else ""


def unread(store: Store) -> list[str]:
    """Lines on runs of which something cannot be read."""
    errors = [(data.run.name, data.error()) for data in store.all()]
    return [f"Cannot read all of {name}: {error}" for name, error in errors if error]


def left_out(without: Sequence[RunData], metric: str, axis: str) -> list[str]:
    """Lines on runs without a curve, by reason."""
    reasons: dict[str, list[str]] = {}
    for data in without:
        timeless = axis == "time" and metric in data.names()
        reason = "times, use --axis step" if timeless else metric
        reasons.setdefault(reason, []).append(data.run.name)
    return [f"Left out, without {why}: {', '.join(n)}" for why, n in reasons.items()]


def write(
    found: list[Group],
    args: argparse.Namespace,
    summaries: list[Summary],
    path: pathlib.Path,
) -> None:
    """The picture or the page."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".html":
            path.write_text(page(found, args, summaries))
        else:
            from dreamerv3.viewing import figure  # Matplotlib takes a while to import.

            figure.draw(found, args.metric, args.axis, summaries, path)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from error


def page(found: list[Group], args: argparse.Namespace, summaries: list[Summary]) -> str:
    """One HTML file with the curves of every task."""
    methods = list(dict.fromkeys(group.method for group in found))
    charts = {}
    for task in dict.fromkeys(group.task for group in found):
        own = [group for group in found if group.task == task]
        series = [_series(group, methods.index(group.method)) for group in own]
        title = task or "no task"
        charts[task] = {"title": title, "note": args.metric, "axis": args.axis}
        charts[task]["series"] = series
    charts = {k: c for k, c in charts.items() if not standalone.is_empty(c)}
    places = "\n".join(standalone.place(name, chart) for name, chart in charts.items())
    body = f"<h1>{html.escape(args.metric)}</h1>\n"
    body += f"<p>{html.escape(glossary.meaning(args.metric))}</p>\n"
    body += "<p>Mean over seeds, band of one standard deviation.</p>\n"
    if summaries:
        head = ("method", "tasks", "runs", "mean", "median", "IQM")
        rows = [(*s[:3], *(f"{v:.2f}" for v in s[3:])) for s in summaries]
        body += "<h2>Human-normalised scores</h2>\n" + (
            standalone.table("Human-normalised scores", rows, head)
        )
    body += "<h2>Curves</h2>\n"
    body += f'<section class="charts">\n{places}\n</section>'
    return standalone.page(f"{args.metric} of {len(found)} groups", body, charts)


def _series(group: Group, color: int) -> dict[str, object]:
    amount = len(group.seeds)
    numbers = standalone.numbers
    series: dict[str, object] = {
        "name": f"{group.method} ({amount} {'seed' if amount == 1 else 'seeds'})",
        "color": color,
        "x": numbers(group.x),
        "y": numbers(group.mean),
    }
    if amount > 1:
        series["low"] = numbers(group.mean - group.std)
        series["high"] = numbers(group.mean + group.std)
        series["deviation"] = numbers(group.std)
    return series


def parser() -> argparse.ArgumentParser:
    """What can be typed."""
    result = argparse.ArgumentParser(
        prog="dreamerv3 plot",
        description="Draw learning curves of many runs and seeds into a file.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    result.add_argument(
        "logdir", nargs="+", help="log directories, directories of them, or patterns"
    )
    result.add_argument(
        "-o",
        "--output",
        default="curves.png",
        help="png, pdf, svg or html (curves.png)",
    )
    result.add_argument("--metric", default=SCORE, help=f"what to draw ({SCORE})")
    result.add_argument("--axis", default="step", choices=("step", "time"))
    result.add_argument("--bins", type=bins, default=60, help="points of a curve (60)")
    result.add_argument("--published", action="store_true", help=published.HELP)
    return result


def bins(text: str) -> int:
    """How many points a curve has."""
    try:
        amount = int(text)
    except ValueError:
        amount = 0
    if amount < 2:
        raise argparse.ArgumentTypeError(f"'{text}' must be a number, 2 or more")
    return amount


if __name__ == "__main__":
    run_module(__file__)
