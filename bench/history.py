"""The history of speed: ratios that `make bench` appends, a check and a page.

    python bench/history.py             # Warnings, and the page bench/history.html.
    python bench/history.py --check     # Warnings only, for CI.
    python bench/history.py --strict    # The same, and an exit code if there are some.

A ratio compares with something measured in the same run (a floor, portal) or with a
figure of the public code that is scaled to this machine. Higher is better. It fell if
it is more than 15 % below the lowest of the last five that were recorded before.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

FILE = pathlib.Path(__file__).parent / "history.jsonl"
PAGE = FILE.with_suffix(".html")
VARIABLE = "BENCH_HISTORY"  # The file to append to; `make bench` sets it.
BEFORE = 5  # Earlier values that are compared with.
FALL = 0.15


def record(bench: str, ratios: Mapping[str, float]) -> None:
    """Append ratios with the commit, if this is part of `make bench`."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    row = {
        "time": round(time.time()),
        "commit": commit(),
        "bench": bench,
        "ratios": {name: float(f"{value:.4g}") for name, value in ratios.items()},
    }
    with open(path, "a") as file:
        file.write(json.dumps(row) + "\n")


def commit() -> str:
    """The commit that is measured, with a mark if files were changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=FILE.parent
    )
    return done.stdout.strip() or "unknown"


def read(path: pathlib.Path) -> dict[str, list[tuple[str, float]]]:
    """Commits and values of each ratio, in order of time."""
    lines = path.read_text().splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    found: dict[str, list[tuple[str, float]]] = {}
    for row in rows:
        for name, value in row["ratios"].items():
            key = f"{row['bench']}: {name}"
            found.setdefault(key, []).append((row["commit"], value))
    return found


def warnings(history: Mapping[str, Sequence[tuple[str, float]]]) -> list[str]:
    """Ratios whose last value fell by more than their spread explains."""
    found = []
    for name, points in history.items():
        *before, (commit, value) = points
        values = [earlier for _, earlier in before[-BEFORE:]]
        if values and value < (1 - FALL) * min(values):
            found.append(
                f"warning: {name} fell to {value:g} at {commit}; the last "
                f"{len(values)} values were {min(values):g} to {max(values):g}"
            )
    return found


def page(history: Mapping[str, Sequence[tuple[str, float]]]) -> str:
    """One HTML file with a chart a ratio."""
    from dreamerv3.viewing import standalone

    charts: dict[str, dict[str, Any]] = {}
    for name, points in history.items():
        first, last = points[0][0], points[-1][0]
        x, y = list(range(len(points))), [value for _, value in points]
        series = [{"name": name, "x": x, "y": y}]
        note = first if first == last else f"{first} to {last}"
        charts[name] = {"title": name, "note": note, "axis": "step", "series": series}
    places = "\n".join(standalone.place(name, chart) for name, chart in charts.items())
    body = "<h1>Speed history</h1>\n<p>Ratios of every `make bench`; higher is better."
    body += f'</p>\n<section class="charts">\n{places}\n</section>'
    return standalone.page("Speed history", body, charts)


def main() -> None:
    """Check, and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", type=pathlib.Path, default=FILE)
    parser.add_argument("--check", action="store_true", help="write no page")
    parser.add_argument("--strict", action="store_true", help="fail if there is one")
    args = parser.parse_args()
    history = read(args.file)
    found = warnings(history)
    print("\n".join(found or [f"{len(history)} ratios, none of which fell"]))
    if history and not (args.check or args.strict):
        PAGE.write_text(page(history))
        print(f"Page: {PAGE}")
    if found and args.strict:
        sys.exit(1)


if __name__ == "__main__":
    main()
