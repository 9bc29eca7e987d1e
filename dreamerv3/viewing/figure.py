"""Learning curves as a picture, through matplotlib."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from dreamerv3.viewing.groups import Group
from dreamerv3.viewing.normalise import Summary

COLORS = (
    "#3b78e7", "#e8710a", "#12a37f", "#c4449d", "#8b5cf6", "#c99700", "#0fa3b1",
    "#dd4b4b", "#7a8b2a", "#a05a2c", "#5a6fb0", "#6b7280",
)  # fmt: skip
STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#9aa3b2",
    "axes.grid": True,
    "grid.color": "#eceff3",
    "xtick.color": "#556070",
    "ytick.color": "#556070",
    "pdf.fonttype": 42,  # Text that can be edited and searched.
}
WIDTH, HEIGHT = 3.1, 2.2  # Inches of one panel.


class Words(NamedTuple):
    """What a picture says of its numbers."""

    unit: str = "environment steps"
    scale: str = "human-normalised"
    # By method the low and high ends of mean, median and IQM.
    intervals: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {}


def draw(
    groups: Sequence[Group],
    key: str,
    axis: str,
    summaries: Sequence[Summary],
    path: pathlib.Path,
    words: Words | None = None,
) -> None:
    """One panel a task, one line a method, a band of one standard deviation."""
    words = words or Words()
    tasks = list(dict.fromkeys(group.task for group in groups))
    methods = list(dict.fromkeys(group.method for group in groups))
    panels = len(tasks) + bool(summaries)
    columns = min(panels, max(2, math.ceil(math.sqrt(panels * 1.3))))
    rows = math.ceil(panels / columns)
    with matplotlib.rc_context(STYLE):
        size = (max(4.2, WIDTH * columns), HEIGHT * rows + 0.5)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False).flatten()
        for task, panel in zip(tasks, axes, strict=False):
            own = [group for group in groups if group.task == task]
            _curves(panel, own, task, methods, axis)
        if summaries:
            _bars(axes[len(tasks)], summaries, methods, words)
        for panel in axes[panels:]:
            panel.set_visible(False)
        figure.supylabel(key, fontsize=9, color="#556070")
        figure.supxlabel(
            words.unit if axis == "step" else "hours",
            fontsize=9,
            color="#556070",
        )
        _legend(figure, axes[0], methods)
        figure.savefig(path, dpi=160)


def _curves(
    panel: Any, groups: Sequence[Group], task: str, methods: list[str], axis: str
) -> None:
    for group in groups:
        color = COLORS[methods.index(group.method) % len(COLORS)]
        x = group.x if axis == "step" else group.x / 3600
        dot = "o" if np.isfinite(group.mean).sum() == 1 else ""  # It makes no line.
        panel.plot(x, group.mean, dot + "-", color=color, linewidth=1.6)
        if len(group.seeds) > 1:
            low, high = group.mean - group.std, group.mean + group.std
            panel.fill_between(x, low, high, color=color, alpha=0.18, linewidth=0)
    counts = sorted({len(group.seeds) for group in groups})
    noun = "seed" if counts == [1] else "seeds"
    amount = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    panel.set_title(f"{task or 'no task'} ({amount} {noun})", loc="left")
    panel.margins(x=0.01)
    if axis == "step":
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))


def _bars(
    panel: Any, summaries: Sequence[Summary], methods: list[str], words: Words
) -> None:
    names = ("mean", "median", "iqm")
    width = 0.8 / len(summaries)
    for index, summary in enumerate(summaries):
        color = COLORS[methods.index(summary.method) % len(COLORS)]
        places = np.arange(len(names)) + (index - (len(summaries) - 1) / 2) * width
        values = [getattr(summary, name) for name in names]
        low, high = words.intervals.get(summary.method, (values, values))
        errors = np.abs([np.subtract(values, low), np.subtract(high, values)])
        line = {"linewidth": 1} if summary.method in words.intervals else {"alpha": 0}
        bars = panel.bar(
            places, values, width * 0.92, color=color, yerr=errors, error_kw=line
        )
        panel.bar_label(bars, fmt="%.2f", fontsize=7, padding=1)
    panel.set_xticks(np.arange(len(names)), ["mean", "median", "IQM"])
    panel.grid(axis="x", visible=False)
    panel.axhline(1, color="#556070", linewidth=0.8, linestyle=":")
    panel.set_title(f"{words.scale} ({summaries[0].tasks} tasks)", loc="left")


def _legend(figure: Figure, panel: Any, methods: list[str]) -> None:
    lines = [
        matplotlib.lines.Line2D([], [], color=COLORS[i % len(COLORS)], linewidth=2)
        for i in range(len(methods))
    ]
    figure.legend(
        lines,
        [method or "no method" for method in methods],
        loc="outside upper center",
        ncols=min(len(methods), 6),
        frameon=False,
        fontsize=9,
    )
