"""The report of a run: one HTML file with everything inside."""

from __future__ import annotations

import base64
import html
import math
import mimetypes
import os
import pathlib
import shlex
import time

import numpy as np

from dreamerv3.settings import config, logdir
from dreamerv3.settings.config import Flat
from dreamerv3.viewing import endpoints, glossary, published, runs, standalone
from dreamerv3.viewing.standalone import Chart, table
from dreamerv3.viewing.store import SCORE, Axis, RunData, Store
from embodied.core import extras, files, runfiles

FILE = "report.html"
POINTS = 300  # Of each curve.
SMOOTH = 0.9  # Of the score, whose episodes vary much.
PREFERRED = ("eval/episode/score", "episode/length")
PREFIXES = (
    "fps/",
    "train/loss/",
    "train/opt/",
    "train/ret",
    "train/rew",
    "replay/items",
)
MOST_CHARTS = 24
MOST_BYTES = 8_000_000  # Of one video; larger ones are named, not included.


def write(directory: str | os.PathLike, path: pathlib.Path) -> int:
    """Write the report of a run; returns its bytes."""
    return save(read(directory), path)


def read(directory: str | os.PathLike, overlay: bool = False) -> bytes:
    """The report of a run, with `overlay` beside published curves of its task."""
    store = Store([str(directory)])
    store.read_all()
    (data,) = store.all()
    return make(data, overlay).encode()


def save(content: bytes, path: pathlib.Path) -> int:
    """Write a report whole or not at all; returns its bytes."""
    files.write_bytes(path, content)
    return len(content)


def make(data: RunData, overlay: bool = False) -> str:
    """The page about a run."""
    values = logdir.read(data.run.path)
    charts = all_charts(data)
    if overlay and SCORE in charts:
        charts[SCORE]["series"] += published.series(data.run.task, values)
    run = data.run
    title = " ".join(part for part in (run.task, run.method) if part) or run.name
    sections = [
        f"<h1>{html.escape(title)}</h1>",
        f"<p>{html.escape(str(run.path))}, written {time.strftime('%Y-%m-%d %H:%M')} "
        f"by dreamerv3 {extras.version()}</p>",
        warning(data),
        facts(data),
        curves(charts),
        videos(data),
        throughput(data),
        roles(data),
        settings(values),
    ]
    return standalone.page(f"{title}: report", "\n".join(sections), charts)


def warning(data: RunData) -> str:
    """What could not be read."""
    text = data.error()
    return f'<p class="error">{html.escape(text)}</p>' if text else ""


def facts(data: RunData) -> str:
    """The few numbers that matter most."""
    seconds = training_time(data)
    rows = {
        "steps": f"{data.step():,}",
        "score, mean of the last 20 episodes": _text(data.recent(SCORE)),
        "wall-clock time": human_time(seconds) if seconds else "not kept",
        "seed": data.run.seed or "unknown",
    }
    cells = "".join(f"<div><b>{v}</b><span>{k}</span></div>" for k, v in rows.items())
    return f'<div class="facts">{cells}</div>'


def all_charts(data: RunData) -> dict[str, Chart]:
    """The score and what else tells how training went."""
    keys = [SCORE, *PREFERRED]
    keys += [
        key for prefix in PREFIXES for key in data.names() if key.startswith(prefix)
    ]
    known = set(data.names())
    chosen = [key for key in dict.fromkeys(keys) if key in known]
    charts = {key: chart(data, key) for key in chosen}
    full = [(k, c) for k, c in charts.items() if not standalone.is_empty(c)]
    return dict(full[:MOST_CHARTS])


def chart(data: RunData, key: str) -> Chart:
    """One metric over steps."""
    low, high = data.extent(key, "step")
    curve = data.curve(key, Axis("step", low, high, POINTS))
    numbers = standalone.numbers
    series = {"name": key, "x": numbers(curve.x), "y": numbers(curve.mean)}
    if key == SCORE:
        series["faint"], series["y"] = series["y"], numbers(smooth(curve.mean, SMOOTH))
    about = glossary.meaning(key)
    return {"title": key, "about": about, "axis": "step", "series": [series]}


def smooth(values: np.ndarray, amount: float) -> np.ndarray:
    """Moving average that starts at the first value, as in the page."""
    result, total, weight = values.copy(), 0.0, 0.0
    for index, value in enumerate(values):
        if math.isfinite(value):
            total = total * amount + value * (1 - amount)
            weight = weight * amount + (1 - amount)
            result[index] = total / weight
    return result


def curves(charts: dict[str, Chart]) -> str:
    """The score large, the others below it."""
    if not charts:
        return "<h2>Curves</h2><p>No metrics were written.</p>"
    places = [standalone.place(k, c, wide=k == SCORE) for k, c in charts.items()]
    return '<h2>Curves</h2>\n<section class="charts">{}</section>'.format(
        "\n".join(places)
    )


def videos(data: RunData) -> str:
    """The last video, image or text of each key."""
    cards = []
    for key, found in runs.media(data.run.path).items():
        medium = found[-1]
        path = data.run.path / runfiles.MEDIA / key / medium.file
        note = f"step {medium.step:,}"
        cards.append(
            f'<article class="card"><h3><span class="name">{html.escape(key)}</span>'
            f"<small>{note}</small></h3>{embed(path, medium.kind, f'{key}, {note}')}"
            f'<p class="about">{html.escape(glossary.meaning(key))}</p></article>'
        )
    if not cards:
        return ""
    return '<h2>Last videos</h2>\n<section class="media">{}</section>'.format(
        "\n".join(cards)
    )


def embed(path: pathlib.Path, kind: str, label: str) -> str:
    """A file as part of the page."""
    label = html.escape(label)
    try:
        with files.open_regular(path) as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        return f"<p>cannot be read: {html.escape(str(error))}</p>"
    if len(content) > MOST_BYTES:
        return f"<p>too large to include: {html.escape(str(path))}</p>"
    if kind == "text":
        text = html.escape(content.decode(errors="replace"))
        region = f'tabindex="0" role="region" aria-label="{label}"'
        return f'<pre class="wrap" {region}>{text}</pre>'
    mime = mimetypes.guess_type(path.name)[0]
    address = f"data:{mime};base64,{base64.b64encode(content).decode()}"
    if kind == "image":
        return f'<img src="{address}" alt="{label}">'
    flags = "controls loop muted autoplay playsinline"
    return f'<video src="{address}" aria-label="{label}" {flags}></video>'


def throughput(data: RunData) -> str:
    """How fast it was, over all and at the end."""
    seconds = training_time(data)
    rows = []
    if seconds:
        rows.append(
            ("environment steps per second, over all", _text(data.step() / seconds))
        )
    rates = [key for key in data.names() if endpoints.is_rate(key)]
    rows += [
        (f"{key}, last values", _text(data.recent(key, 3))) for key in sorted(rates)
    ]
    line = endpoints.bottleneck(data)
    if line:
        rows.append(("bottleneck", line))
    if not rows:
        return ""
    return "<h2>Throughput</h2>\n" + table("Throughput", rows)


def roles(data: RunData) -> str:
    """Processes and how often they were restarted."""
    found = runs.health(data.run.path)
    if not found:
        return ""
    rows = [(r.name, r.restarts, "running" if r.alive else "ended") for r in found]
    head = ("process", "restarts", "now")
    return "<h2>Processes</h2>\n" + table("Processes", rows, head)


def settings(values: Flat) -> str:
    """How to train this again, what differs from the defaults, and everything."""
    if not values:
        return "<h2>Settings</h2><p>None were kept with the run.</p>"
    changed = changes(values)
    defaults = config.read_blocks().defaults
    rows = [
        (
            key,
            config.show(value),
            config.show(defaults[key]) if key in defaults else "none",
        )
        for key, value in changed.items()
    ]
    every = [(key, config.show(value)) for key, value in values.items()]
    return "\n".join(
        [
            "<h2>Train this again</h2>",
            f'<pre class="wrap">{html.escape(command(values))}</pre>',
            "<h2>Settings that are not the defaults</h2>",
            table("Changed settings", rows, ("key", "value", "default")),
            "<details><summary>All settings</summary>",
            table("All settings", every),
            "</details>",
        ]
    )


def changes(values: Flat) -> Flat:
    """Settings that are not the defaults."""
    defaults = config.read_blocks().defaults
    return {k: v for k, v in values.items() if k not in defaults or defaults[k] != v}


def command(values: Flat) -> str:
    """What to type to train with the same settings in a new log directory."""
    parts = ["dreamerv3"]
    for key, value in changes(values).items():
        if key != "logdir":
            parts += [f"--{key}", shlex.quote(_typed(value))]
    return " ".join(parts)


def _typed(value: object) -> str:
    """A value as a flag takes it, exact also for floats."""
    if isinstance(value, list | tuple):
        return ",".join(map(_typed, value))
    return str(value)


def training_time(data: RunData) -> float:
    """Seconds from the first to the last line with a time; 0 if there is none."""
    ends = [data.extent(key, "time")[1] for key in data.names()]
    return max((end for end in ends if math.isfinite(end)), default=0.0)


def human_time(seconds: float) -> str:
    """A duration for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _text(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "none"
