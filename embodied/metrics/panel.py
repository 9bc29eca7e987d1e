"""The state of a run as a few lines of fixed width, with rich."""

from __future__ import annotations

import io
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from embodied.core import runfiles
from embodied.metrics import formatting
from embodied.metrics.health import Group
from embodied.metrics.jsonl import SCORE
from embodied.metrics.status import BOTTLENECK, RECENT, Status

LABEL = 8  # Columns of the names on the left.
SPEEDS = ("fps/policy", "fps/train", "fps/env")
OWN = {SCORE, *SPEEDS}  # Metrics that have a place of their own.
LIMIT = 8  # Other metrics.


def make_console(width: int, environ: Mapping[str, str] = os.environ) -> Console:
    """One that renders for a terminal, in colours unless NO_COLOR is set."""
    return Console(
        file=io.StringIO(),
        force_terminal=True,
        width=width,
        height=100,
        no_color=bool(environ.get("NO_COLOR")),
        color_system="standard",
        legacy_windows=False,
        highlight=False,
        _environ={},
    )


def render(
    console: Console,
    status: Status,
    groups: Sequence[Group] = (),
    logdir: str = "",
    waiting: str = "",
    ended: bool = False,
) -> list[str]:
    """Lines to print; `waiting` says what the first metrics wait for."""
    room = max(1, console.width - LABEL - 1)
    with status.lock:
        rows = list(_rows(status, room, groups, logdir, waiting, ended))
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(width=LABEL, no_wrap=True, style="dim")
    grid.add_column(width=room, no_wrap=True, overflow="ellipsis")
    for label, content in rows:
        grid.add_row(label, content)
    with console.capture() as capture:
        console.print(Text("─" * console.width, style="dim"))
        console.print(grid)
    return capture.get().splitlines()


def _rows(
    status: Status,
    room: int,
    groups: Sequence[Group],
    logdir: str,
    waiting: str,
    ended: bool,
) -> Iterable[tuple[str, RenderableType]]:
    yield "step", _progress(status, room, promise=not (ended or waiting))
    if waiting and not ended:
        yield "waits", Text(waiting, style="yellow")
    if status.recent or status.odd:
        yield "score", _score(status, room)
    if any(name in status.metrics for name in SPEEDS):
        parts = [_named(status, n) for n in SPEEDS if n in status.metrics]
        yield from _labelled("speed", _fill(parts, room))
    if status.texts.get(BOTTLENECK):
        lines = textwrap.wrap(status.texts[BOTTLENECK], room)
        yield from _labelled("limit", lines)
    if groups:
        yield "roles", _roles(groups, ended)
    yield from _others(status, room)
    if logdir:
        yield "logs", Text(logdir)


def _progress(status: Status, room: int, promise: bool) -> RenderableType:
    """Count, share, bar, and the times passed and left."""
    progress, elapsed = status.progress, status.elapsed
    count = f"{progress.step:,} of {progress.steps:,}  {progress.fraction:.0%}"
    times = f"{formatting.duration(elapsed)} elapsed"
    left = progress.left(elapsed)
    if promise and left < float("inf"):
        times += f", {formatting.duration(left)} left"
    grid = Table.grid(padding=(0, 2, 0, 0))
    width = max(4, min(60, room - len(count) - len(times) - 4))
    done = progress.fraction * 1000
    grid.add_row(count, ProgressBar(1000, done, width), times)
    return grid


def _score(status: Status, room: int) -> Text:
    """The running mean and the whole curve."""
    text = Text()
    if status.recent:
        mean = sum(status.recent) / len(status.recent)
        count = min(RECENT, len(status.recent))
        text.append(f"{mean:.2f}", style="bold")
        text.append(f"  mean of {count} episode{'s' if count > 1 else ''}  ")
        points = status.curve.points(max(1, min(40, room - 50)))
        text.append(formatting.sparkline(points), style="green")
        text.append(
            f"  {formatting.number(min(points))} to {formatting.number(max(points))}"
        )
    if status.odd:
        text.append(f"  {status.odd} not finite", style="red")
    return text


def _roles(groups: Sequence[Group], ended: bool) -> Text:
    """A dot per kind: green lives, red does not; restarts are counted."""
    text = Text()
    for group in groups:
        dead = 0 if ended else group.total - group.alive  # They end one by one.
        text.append("● ", style="red" if dead else "green")
        text.append(group.name + (f" x{group.total}" if group.total > 1 else ""))
        if dead:
            text.append(f" {dead} not running", style="red")
        if group.restarts:
            plural = "s" if group.restarts > 1 else ""
            text.append(f" {group.restarts} restart{plural}", style="yellow")
        text.append("  ")
    return text


def _others(status: Status, room: int) -> Iterable[tuple[str, Text]]:
    """The newest of all other metrics, as many as fit in a few lines, and texts."""
    names = formatting.in_order(set(status.metrics) - OWN)
    parts = [_named(status, name) for name in names[:LIMIT]]
    if len(names) > LIMIT:
        parts.append(f"+{len(names) - LIMIT} in {runfiles.METRICS}")
    yield from _labelled("metrics", _fill(parts, room))
    for name, value in status.texts.items():
        if name != BOTTLENECK:
            yield "", Text(f"{name}: {value.splitlines()[0] if value else ''}")


def _named(status: Status, name: str) -> str:
    return formatting.named(name, status.metrics[name])


def _fill(parts: Sequence[str], room: int) -> list[str]:
    """As many parts on a line as fit whole, since half a number misleads."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) + 3 <= room:
            lines[-1] += f" · {part}"
        else:
            lines.append(part)
    return lines


def _labelled(label: str, lines: Sequence[str]) -> Iterable[tuple[str, Text]]:
    for index, line in enumerate(lines):
        yield ("" if index else label), Text(line)
