"""What every backend is tested with: one metric of each kind, and a browser."""

import os
import pathlib

import numpy as np
import pytest

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture
def frames():
    """A bright square that moves to the right [T, H, W, C], of odd size."""
    frames = np.zeros((6, 33, 47, 3), np.uint8)
    for index, frame in enumerate(frames):
        frame[8:20, 5 * index : 5 * index + 12] = (250, 200, 20)
        frame[25:] = (20, 60, 180)
    return frames


@pytest.fixture
def every_kind(frames):
    """Summaries as the logger hands them out, at two steps."""
    kinds = {
        "episode/score": np.asarray(1.5),
        "train/count": np.asarray(3),
        "train/bad": np.asarray(np.nan),
        "train/dist": np.random.default_rng(0).standard_normal(100),
        "train/nothing": np.full(4, np.nan),
        "report/map": np.linspace(0, 1, 12 * 16).reshape(12, 16),
        "report/image": frames[0],
        "report/openloop/image": frames,
        "epstats/stacked": np.zeros((3, 8, 8, 4), np.uint8),
        "parallel/bottleneck": "actor: it is busy 90 %, é",
    }
    rows = [(step, name, value) for step in (10, 20) for name, value in kinds.items()]
    return [*rows, (20, "episode/score", np.asarray(2.5))]


@pytest.fixture
def browser():
    """Headless Chromium; a machine of a user may lack it, CI not."""
    if not pathlib.Path(CHROMIUM).exists() and not os.environ.get("CI"):
        pytest.skip(f"needs {CHROMIUM}")
    playwright = pytest.importorskip("playwright.sync_api")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    flags += ["--disable-background-networking", "--disable-component-update"]
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=[*flags, "--disable-sync"]
        )
        yield chromium
        chromium.close()
