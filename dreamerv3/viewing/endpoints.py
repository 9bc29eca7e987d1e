"""The server's endpoints: what the page can request."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import numpy as np

from dreamerv3.settings import config, logdir
from dreamerv3.viewing import glossary, runs
from dreamerv3.viewing.store import SCORE, Axis, RunData, Store
from embodied.core import files, runfiles

Query = dict[str, str]

MOST = 4000  # Points of a curve that a page may ask for.
LINE = 10_000  # Bytes of the text about the bottleneck.
BOTTLENECK = "parallel/bottleneck"


def state(store: Store, query: Query) -> dict[str, Any]:
    """All runs and metrics; a request makes the server look for new data."""
    store.refresh()
    return {
        "version": store.version,
        "busy": not store.ready.is_set(),
        "progress": round(store.progress(), 3),
        "runs": [_summary(data) for data in store.all()],
        "keys": store.names(),
    }


def _summary(data: RunData) -> dict[str, Any]:
    return {
        "id": data.run.id,
        "name": data.run.name,
        "path": str(data.run.path),
        "task": data.run.task,
        "method": data.run.method,
        "seed": data.run.seed,
        "step": data.step(),
        "score": number(data.recent(SCORE)),
        "active": runs.is_active(data.run.path, time.time() - data.updated()),
        "timed": math.isfinite(data.start()),
        "points": data.count(),
        "error": data.error(),
    }


def curves(store: Store, query: Query) -> bytes:
    """A metric of several runs: length of a JSON header, the header, then numbers.

    The header has each run's number of points; the numbers are little-endian doubles:
    for each run x, mean, minimum and maximum.
    """
    chosen = chosen_runs(store, query)
    axis = store.limits(chosen, query["key"], parse_axis(query))
    found = [data.curve(query["key"], axis) for data in chosen]
    header = {
        "low": axis.low,
        "high": axis.high,
        "runs": [[d.run.id, len(c.x)] for d, c in zip(chosen, found, strict=True)],
    }
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 4) % 8)  # Browsers want doubles aligned.
    body = b"".join(np.stack(part).astype("<f8").tobytes() for part in found)
    return len(text).to_bytes(4, "little") + text + body


def parse_axis(query: Query) -> Axis:
    """The x axis a page asks for."""
    name = query.get("x", "step")
    if name not in ("step", "time"):
        raise ValueError(name)
    low, high = float(query.get("low", "nan")), float(query.get("high", "nan"))
    amount = int(query.get("amount", "600"))
    if not 1 <= amount <= MOST or math.isinf(low) or math.isinf(high):
        raise ValueError(amount)
    return Axis(name, low, high, amount)


def chosen_runs(store: Store, query: Query) -> list[RunData]:
    """The runs whose ids were given."""
    return store.select(query.get("runs", "").split(","))


def meanings(store: Store, query: Query) -> dict[str, str]:
    """A line about one metric, video or text, or about each metric."""
    keys = [query["key"]] if "key" in query else store.names()
    return {key: glossary.meaning(key) for key in keys}


def media(store: Store, query: Query) -> dict[str, Any]:
    """Videos, images and texts of runs by key."""
    return {d.run.id: runs.media(d.run.path) for d in chosen_runs(store, query)}


def settings(store: Store, query: Query) -> dict[str, Any]:
    """Settings of runs as text, and the defaults."""
    defaults = config.read_blocks().defaults
    return {
        "defaults": {key: config.show(value) for key, value in defaults.items()},
        "runs": {d.run.id: shown_settings(d) for d in chosen_runs(store, query)},
    }


def shown_settings(data: RunData) -> dict[str, str]:
    """Settings of a run as one would type them."""
    try:
        found = logdir.read(data.run.path)
    except config.ConfigError as error:
        return {runfiles.CONFIG: error.problems[0].rule}
    return {k: config.show(v) for k, v in found.items()}


def health(store: Store, query: Query) -> dict[str, Any]:
    """Processes of runs, their throughput and what holds them up."""
    return {d.run.id: run_health(d) for d in chosen_runs(store, query)}


def run_health(data: RunData) -> dict[str, Any]:
    """Processes of a run, its throughput and when it last wrote."""
    updated = data.updated()
    rates = {key: number(data.recent(key, 3)) for key in data.names() if is_rate(key)}
    return {
        "roles": [role._asdict() for role in runs.health(data.run.path)],
        "silent": round(time.time() - updated) if updated else None,
        "rates": rates,
        "bottleneck": bottleneck(data),
    }


def is_rate(key: str) -> bool:
    """Whether a metric is a throughput."""
    return key.startswith("fps/")


def bottleneck(data: RunData) -> str:
    """The last line on what holds the run up, if it was kept."""
    folder = data.run.path / runfiles.MEDIA / BOTTLENECK
    found = sorted(folder.glob("*.txt"))
    try:
        return files.read_text(found[-1], LINE, "replace") if found else ""
    except OSError as error:
        return f"{found[-1].name}: {error.strerror}"


def number(value: float) -> float | None:
    """A number that JSON can hold."""
    return value if math.isfinite(value) else None


JSON = {
    "state": state,
    "meanings": meanings,
    "media": media,
    "settings": settings,
    "health": health,
}
