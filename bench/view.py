"""Measures `dreamerv3 view` with 50 runs of a million values each.

    python bench/view.py [--runs 50] [--values 1000000] [--keep DIRECTORY]

Makes the runs (5 tasks, 2 methods, 5 seeds; 50 metrics, of which the score has most
values), then starts the server as the command does, twice: with nothing known, and with
what the first start kept. Times are from the start of the process to the answer. If
Chromium and playwright are there, also from opening the page to the first curves.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request

import numpy as np

ROW = 49  # Metrics of a row that the learner writes; the score has rows of its own.
CHROMIUM = "/usr/bin/chromium"


def make_runs(root: pathlib.Path, runs: int, values: int, share: float) -> int:
    """Write the log directories; returns their bytes."""
    names = [f"train/metric{i:02d}" for i in range(ROW)]
    size = 0
    for index in range(runs):
        task, method, seed = index // 10, index // 5 % 2, index % 5
        folder = root / f"task{task}-method{method}-seed{seed}"
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(
            f"task: bench_task{task}\nmethod: method{method}\nseed: {seed}\n"
        )
        random = np.random.default_rng(index)
        size += write_metrics(folder, names, values, int(values * share), random)
    return size


def write_metrics(
    folder: pathlib.Path,
    names: list[str],
    values: int,
    scores: int,
    random: np.random.Generator,
) -> int:
    """Scores are in both files, as in a real run."""
    rows = max(1, (values - scores) // len(names))
    every = scores // rows
    start = 1.7e9
    with (
        (folder / "metrics.jsonl").open("w") as metrics,
        (folder / "scores.jsonl").open("w") as file,
    ):
        for row in range(rows):
            lines = []
            for number, score in enumerate(random.normal(row / rows, 0.2, every)):
                step = (row * every + number) * 10
                lines.append(
                    f'{{"step": {step}, "time": {start + step / 50:.2f}, '
                    f'"episode/score": {score:.6f}}}\n'
                )
            file.write("".join(lines))
            step = (row + 1) * every * 10
            columns = {"step": step, "time": start + step / 50}
            columns |= dict(zip(names, random.random(len(names)).round(6), strict=True))
            metrics.write("".join(lines) + json.dumps(columns) + "\n")
    return sum(path.stat().st_size for path in folder.iterdir())


class Viewer:
    """The command in a process of its own, with a cache of its own."""

    def __init__(self, root: pathlib.Path, cache: pathlib.Path):
        self.begin = time.perf_counter()
        command = [sys.executable, "-m", "dreamerv3", "view", str(root), "--port", "0"]
        env = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command, env=env, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        self.address = re.findall(r"http://\S+", line)[0]

    def ask(self, path: str, **query: object) -> bytes:
        url = f"{self.address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url) as answer:
            return answer.read()

    def passed(self) -> float:
        return time.perf_counter() - self.begin

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def measure(root: pathlib.Path, cache: pathlib.Path, name: str) -> None:
    """One start: first answers, reading, then curves of all runs."""
    viewer = Viewer(root, cache)
    try:
        state = json.loads(viewer.ask("/api/state"))
        report(name, "run list", viewer.passed())
        ids = ",".join(run["id"] for run in state["runs"])
        report(name, "page: " + browse(viewer.address), None)
        while state["busy"]:
            time.sleep(0.5)
            state = json.loads(viewer.ask("/api/state"))
        report(name, "everything read", viewer.passed())
        for key in ("episode/score", "train/metric07"):
            begin = time.perf_counter()
            body = viewer.ask("/api/curves", key=key, runs=ids, amount=300)
            took = time.perf_counter() - begin
            report(name, f"{key} of all runs, {len(body) / 1e3:.0f} kB", took)
        begin = time.perf_counter()
        viewer.ask("/api/curves", key="episode/score", runs=ids, low=1e6, high=1.1e6)
        report(name, "zoomed to 2 % of the steps", time.perf_counter() - begin)
        report(name, "page: " + browse(viewer.address), None)
        points = sum(run["points"] for run in state["runs"])
        memory = resident(viewer.process.pid)
        report(
            name, f"{points:,} values, {memory[0]} MB own memory, {memory[1]} MB mapped"
        )
    finally:
        viewer.close()


def resident(pid: int) -> tuple[int, int]:
    """Anonymous and mapped memory of a process in MB."""
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"(Rss\w+):\s+(\d+)", text))
    return int(found["RssAnon"]) // 1000, int(found["RssFile"]) // 1000


def browse(address: str) -> str:
    """Times of a fresh browser until the page can be used and shows curves."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return "not measured, playwright is missing"
    if not os.path.exists(CHROMIUM):
        return "not measured, Chromium is missing"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM)
        page = browser.new_page()
        page.goto("about:blank")
        begin = time.perf_counter()
        page.goto(address, wait_until="commit")
        page.wait_for_selector("#runs li")
        usable = time.perf_counter() - begin
        page.wait_for_selector("[data-key='episode/score'][data-points]")
        drawn = time.perf_counter() - begin
        browser.close()
    return f"usable after {usable:.2f} s, curves after {drawn:.2f} s"


def report(name: str, text: str, seconds: float | None = None) -> None:
    """Print one line."""
    print(
        f"{name:<6}{text}" + ("" if seconds is None else f": {seconds:.3f} s"),
        flush=True,
    )


def main() -> None:
    """Make, measure, clean up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--values", type=int, default=1_000_000)
    parser.add_argument("--scores", type=float, default=0.2, help="part of the values")
    parser.add_argument("--keep", help="keep the runs here and use them if there")
    args = parser.parse_args()
    work = pathlib.Path(tempfile.mkdtemp(prefix="bench-view-"))
    root = pathlib.Path(args.keep) if args.keep else work / "runs"
    try:
        if not root.exists():
            size = make_runs(root, args.runs, args.values, args.scores)
            print(f"{args.runs} runs, {size / 1e9:.2f} GB")
        measure(root, work / "cache", "cold")
        measure(root, work / "cache", "kept")
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
