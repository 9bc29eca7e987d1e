"""Pages that are one file: the chart code, the styles and the data inside."""

from __future__ import annotations

import html
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

PAGE = pathlib.Path(__file__).parent / "page"
STYLES = ("style.css", "standalone.css")
SCRIPTS = ("format.js", "plot.js", "standalone.js")
DIGITS = 6  # Of numbers in curves.

Chart = dict[str, Any]  # title, note, about (a line on the metric), axis, series


def page(title: str, body: str, charts: Mapping[str, Chart]) -> str:
    """An HTML document; each chart is drawn into the element with its id."""
    data = json.dumps(charts, allow_nan=False).replace("<", "\\u003c")
    style = "".join((PAGE / name).read_text() for name in STYLES)
    script = "".join((PAGE / name).read_text() for name in SCRIPTS)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{html.escape(title)}</title>
<style>
{style}</style>
</head>
<body class="standalone">
<main>
{body}
</main>
<script type="application/json" id="data">{data}</script>
<script>
{script}</script>
</body>
</html>
"""


def place(name: str, chart: Chart, wide: bool = False) -> str:
    """The element that a chart is drawn into."""
    title, note = html.escape(chart["title"]), html.escape(chart.get("note", ""))
    about = html.escape(chart.get("about", ""))
    kind = "card wide" if wide else "card"
    return (
        f'<article class="{kind}" data-chart="{html.escape(name)}">'
        f'<h3><span class="name">{title}</span><small>{note}</small></h3>'
        f'<p class="about">{about}</p></article>'
    )


def is_empty(chart: Chart) -> bool:
    """Whether there is nothing to draw."""
    return all(y is None for series in chart["series"] for y in series["y"])


def table(label: str, rows: Sequence[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """A table of texts, which can be scrolled by keyboard if it is wide."""
    lines = [_row(row, "td") for row in rows]
    if head:
        lines.insert(0, _row(head, "th"))
    inner = "\n".join(lines)
    region = f'role="region" tabindex="0" aria-label="{html.escape(label)}"'
    return f'<div class="frame" {region}><table class="grid">\n{inner}\n</table></div>'


def _row(cells: Sequence[Any], tag: str) -> str:
    inner = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
    return f"<tr>{inner}</tr>"


def numbers(values: np.ndarray) -> list[float | None]:
    """Numbers with few digits; null where there is none."""
    return [
        float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None for value in values
    ]
