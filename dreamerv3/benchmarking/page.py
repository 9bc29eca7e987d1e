"""What a benchmark leaves behind: a page, a picture and JSON."""

from __future__ import annotations

import html
import json
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dreamerv3.benchmarking import aggregate, results
from dreamerv3.benchmarking.aggregate import Aggregate
from dreamerv3.benchmarking.jobs import Job
from dreamerv3.benchmarking.results import Cell, TaskResult
from dreamerv3.viewing import figure, standalone
from dreamerv3.viewing.groups import Group
from dreamerv3.viewing.published import Published
from embodied.core import files
from embodied.metrics.jsonl import SCORE

PAGE, PICTURE, DATA = "benchmark.html", "benchmark.png", "benchmark.json"
COLUMNS = 7  # Of the table at fixed steps, the last ones that were reached.
OURS = " (ours)"  # Behind our methods, where published ones are as well.


class Outcome(NamedTuple):
    """A whole benchmark, as read from its log directories."""

    suite: str
    command: str
    jobs: Sequence[Job]
    failed: Mapping[str, str]  # Name of a job to why it failed.
    done: int
    tasks: list[TaskResult]
    aggregates: list[Aggregate]


def write(outcome: Outcome, directory: pathlib.Path) -> list[pathlib.Path]:
    """Write everything; without curves only the JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    files.write_bytes(directory / DATA, json.dumps(data(outcome), indent=1).encode())
    if not outcome.tasks:
        return [directory / DATA]
    files.write_bytes(directory / PAGE, page(outcome).encode())
    groups = [g for task in outcome.tasks for g in shown(task)]
    unit = " and ".join(dict.fromkeys(task.unit for task in outcome.tasks))
    summaries = [each.summary for each in outcome.aggregates]
    summaries = [s._replace(method=_label(s.method, outcome)) for s in summaries]
    ends = {_label(a.summary.method, outcome): a[1:] for a in outcome.aggregates}
    words = figure.Words(unit, aggregate.unit(outcome.tasks), ends)
    figure.draw(groups, SCORE, "step", summaries, directory / PICTURE, words)
    return [directory / name for name in (PAGE, PICTURE, DATA)]


def shown(task: TaskResult) -> list[Group]:
    """Curves to draw."""
    ours = [each._replace(method=each.method + OURS) for each in task.ours]
    every = [*ours, *(each for _, each in task.published)]
    return [results.without_gaps(each) for each in every]


def _label(method: str, outcome: Outcome) -> str:
    own = {job.method for job in outcome.jobs}
    return method + OURS if method in own else method


def data(outcome: Outcome) -> dict[str, Any]:
    """Everything that the page shows, as numbers."""
    return {
        "suite": outcome.suite,
        "command": outcome.command,
        "done": outcome.done,
        "jobs": [
            {"task": j.task, "method": j.method, "seed": j.seed, "command": j.typed}
            for j in outcome.jobs
        ],
        "failed": dict(outcome.failed),
        "tasks": {task.task: _task_data(task) for task in outcome.tasks},
        "aggregates": [_aggregate_data(each, outcome) for each in outcome.aggregates],
        "differences": {s.name: words for s, words in protocols(outcome)},
        "findings": all_findings(outcome),
    }


def _task_data(task: TaskResult) -> dict[str, Any]:
    last = results.reached(task.ours)
    return {
        "unit": task.unit,
        "bin": task.bin,
        "ours": {each.method: _curve(each) for each in task.ours},
        "published": [name.name for name, _ in task.published],
        "table": {
            name: [_finite(c._asdict()) for c in cells]
            for name, cells in rows(task, last).items()
        },
    }


def _curve(group: Group) -> dict[str, Any]:
    seeds = [standalone.numbers(row) for row in group.seeds]
    return {"x": group.x.tolist(), "seeds": seeds}


def _aggregate_data(each: Aggregate, outcome: Outcome) -> dict[str, Any]:
    values = each.summary._asdict()
    values["method"] = _label(each.summary.method, outcome)
    for name, low, high in zip(aggregate.NAMES, each.low, each.high, strict=True):
        values[f"{name}_interval"] = [low, high]
    return values


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if v != v else v for k, v in values.items()}


def rows(task: TaskResult, last: float) -> dict[str, list[Cell]]:
    """Cells at fixed steps of every method."""
    steps = results.table_steps(task.bin, last)[-COLUMNS:]
    every = {each.method + OURS: (task.bin, each) for each in task.ours}
    every |= {s.title: (s.bin, each) for s, each in task.published}
    return {
        name: [results.cell(each, width, step, last) for step in steps]
        for name, (width, each) in every.items()
    }


def protocols(outcome: Outcome) -> list[tuple[Published, list[str]]]:
    """Each set of published curves, and how its protocol differs from what was run."""
    found: dict[str, Published] = {}
    for task in outcome.tasks:
        found |= {curves.name: curves for curves, _ in task.published}
    result = []
    for curves in found.values():
        jobs = [j for j in outcome.jobs if curves.find(j.task, j.values)]
        result.append((curves, results.differences(curves, jobs)))
    return result


def all_findings(outcome: Outcome) -> list[str]:
    """Curves that are far below published ones."""
    return [line for task in outcome.tasks for line in results.findings(task)]


def page(outcome: Outcome) -> str:
    """One HTML file."""
    charts = {task.task: _chart(task) for task in outcome.tasks}
    places = "\n".join(standalone.place(name, chart) for name, chart in charts.items())
    sections = [
        f"<h1>{html.escape(outcome.suite)}</h1>",
        f"<p>{outcome.done} of {len(outcome.jobs)} runs are done. Curves are the "
        "mean over seeds of the training episodes that ended in each bin, labelled by "
        "its right edge; bands are one standard deviation. Steps are those of the "
        "agent times its action repeat.</p>",
        f'<section class="charts">\n{places}\n</section>',
        _tables(outcome),
        _aggregates(outcome),
        _protocol(outcome),
        _failures(outcome),
        "<h2>Run this again</h2>",
        f'<pre class="wrap">{html.escape(outcome.command)}</pre>',
    ]
    return standalone.page(f"{outcome.suite}: benchmark", "\n".join(sections), charts)


def _chart(task: TaskResult) -> standalone.Chart:
    series = [_series(each, index) for index, each in enumerate(shown(task))]
    return {"title": task.task, "note": task.unit, "axis": "step", "series": series}


def _series(group: Group, color: int) -> dict[str, Any]:
    amount, numbers = len(group.seeds), standalone.numbers
    return {
        "name": f"{group.method} ({amount} {'seed' if amount == 1 else 'seeds'})",
        "color": color,
        "x": numbers(group.x),
        "y": numbers(group.mean),
        "low": numbers(group.mean - group.std),
        "high": numbers(group.mean + group.std),
        "deviation": numbers(group.std),
    }


def _tables(outcome: Outcome) -> str:
    parts = ["<h2>Scores at fixed steps</h2>"]
    for task in outcome.tasks:
        found = rows(task, results.reached(task.ours))
        steps = [f"{c.step:,}" for c in next(iter(found.values()))]
        lines = [(name, *map(_text, cells)) for name, cells in found.items()]
        head = (f"{task.task} ({task.unit})", *steps)
        parts.append(standalone.table(f"Scores of {task.task}", lines, head))
    parts.append(
        "<p>Mean ± standard deviation over seeds, of the bins up to one bin around "
        "the step that our curves have reached; in brackets the seeds.</p>"
    )
    return "\n".join(parts)


def _text(cell: Cell) -> str:
    if not cell.seeds:
        return ""
    spread = f" ± {cell.deviation:.3g}" if math.isfinite(cell.deviation) else ""
    return f"{cell.mean:.4g}{spread} ({cell.seeds})"


def _aggregates(outcome: Outcome) -> str:
    if not outcome.aggregates:
        return ""
    head = ("method", "tasks", "runs", "mean", "median", "IQM")
    lines = []
    for each in outcome.aggregates:
        s, ends = each.summary, zip(each.low, each.high, strict=True)
        values = zip((s.mean, s.median, s.iqm), ends, strict=True)
        cells = [f"{v:.2f} [{low:.2f}, {high:.2f}]" for v, (low, high) in values]
        lines.append((_label(s.method, outcome), s.tasks, s.runs, *cells))
    note = aggregate.unit(outcome.tasks)
    table = standalone.table("Normalised scores", lines, head)
    return (
        f"<h2>Normalised scores ({note})</h2>\n{table}\n"
        "<p>Over the last tenth of the steps that ours reached; in brackets the 95 % "
        "interval of a bootstrap over the seeds of each task. Mean and median are over "
        "tasks, IQM is the mean of the middle half of all runs.</p>"
    )


def _protocol(outcome: Outcome) -> str:
    parts = []
    for curves, words in protocols(outcome):
        title = html.escape(f"{curves.title}: {curves.source}")
        items = "".join(f"<li>{html.escape(line)}</li>" for line in words)
        parts.append(f"<h3>{title}</h3>\n<ul>{items}</ul>")
    if findings := all_findings(outcome):
        items = "".join(f"<li>{html.escape(line)}</li>" for line in findings)
        parts.append(f"<h2>Findings</h2>\n<ul>{items}</ul>")
    return "\n".join(["<h2>Differences of protocol</h2>", *parts]) if parts else ""


def _failures(outcome: Outcome) -> str:
    if not outcome.failed:
        return ""
    parts = [
        f"<h3>{html.escape(name)}</h3>\n<pre>{html.escape(text)}</pre>"
        for name, text in outcome.failed.items()
    ]
    return "\n".join(["<h2>Failed</h2>", *parts])
