"""Finds runs below directories and tells what their files other than metrics say."""

from __future__ import annotations

import functools
import glob
import hashlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import psutil
import ruamel.yaml

from embodied.envs import custom
from embodied.metrics.media import FOLDER as MEDIA

METRICS, SCORES = "metrics.jsonl", "scores.jsonl"
CONFIG, ROLES = "config.yaml", "roles.json"
FILES = {METRICS, SCORES, CONFIG}
KINDS = {".mp4": "video", ".gif": "image", ".png": "image", ".txt": "text"}
DEPTH = 6  # How far below a given directory runs are looked for.
HEADER = ("task", "method", "seed", "script")


class RunsError(Exception):
    """A path at which there is nothing to look at; says what to do."""


class Run(NamedTuple):
    """A log directory and what its settings say it is."""

    id: str  # Stays the same between starts of the viewer.
    name: str
    path: pathlib.Path
    task: str
    method: str
    seed: str


class Medium(NamedTuple):
    """A video, image or text of one step."""

    step: int
    file: str  # Name in the folder of its key.
    kind: str


class RoleHealth(NamedTuple):
    """One process of a parallel run."""

    name: str
    pid: int
    restarts: int
    alive: bool  # On this machine; a role elsewhere counts as ended.


def find(places: Sequence[str], strict: bool = True) -> list[Run]:
    """Runs at or below the given directories and patterns, by name.

    A place that does not exist is an error if `strict`.
    """
    paths = [path for place in places for path in _expand(place, strict)]
    found = list(dict.fromkeys(p for root in paths for p in _below(root, DEPTH)))
    if not found and strict:
        raise RunsError(
            f"no run in {', '.join(places)}: a run is a directory with {METRICS}; "
            "give its log directory or one above it"
        )
    root = os.path.commonpath([path.parent for path in found]) if found else ""
    runs = [_describe(path, str(path.relative_to(root))) for path in found]
    return sorted(runs, key=_by_name)


def exists(place: str) -> bool:
    """Whether a directory is there or a pattern matches something."""
    return bool(_expand(place, strict=False))


def _by_name(run: Run) -> tuple[str, str]:
    return run.name, run.id


def _expand(place: str, strict: bool) -> list[pathlib.Path]:
    matches = sorted(glob.glob(os.path.expanduser(place), recursive=True))
    paths = [pathlib.Path(match).resolve() for match in matches]
    if strict and not paths:
        raise RunsError(f"{place} does not exist; give a log directory")
    return [path for path in paths if path.is_dir()]


def _below(path: pathlib.Path, depth: int) -> Iterator[pathlib.Path]:
    """The directory if it is a run, else the runs below it."""
    try:
        entries = list(os.scandir(path))
    except (PermissionError, FileNotFoundError):
        return
    if any(entry.name in FILES for entry in entries):
        yield path
    elif depth:
        for entry in sorted(entries, key=os.fspath):
            if entry.is_dir() and not entry.name.startswith("."):
                yield from _below(pathlib.Path(entry.path), depth - 1)


def _describe(path: pathlib.Path, name: str) -> Run:
    known = header(path)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
    task, method, seed = (str(known.get(key, "")) for key in HEADER[:3])
    return Run(digest, name, path, custom.label(task), method, seed)


def header(path: pathlib.Path) -> dict[str, Any]:
    """Task, method, seed and script; reading all settings takes 20 ms a run."""
    try:
        file = path / CONFIG
        return _header(file, file.stat().st_mtime_ns)
    except OSError:
        return {}


@functools.lru_cache(maxsize=10_000)
def _header(file: pathlib.Path, changed: int) -> dict[str, Any]:
    lines = file.read_text().splitlines()
    text = "\n".join(line for line in lines if line.split(":")[0] in HEADER)
    try:
        return ruamel.yaml.YAML(typ="safe").load(text) or {}
    except ruamel.yaml.YAMLError:
        return {}


def media(path: pathlib.Path) -> dict[str, list[Medium]]:
    """Videos, images and texts of a run by key, in order of their steps."""
    root = path / MEDIA
    result: dict[str, list[Medium]] = {}
    for folder, _, files in os.walk(root):
        found = [m for m in map(_medium, files) if m]
        if found:
            key = os.path.relpath(folder, root).replace(os.sep, "/")
            result[key] = sorted(found)
    return dict(sorted(result.items()))


def _medium(file: str) -> Medium | None:
    stem, suffix = os.path.splitext(file)
    if suffix not in KINDS or not stem.isdigit():
        return None
    return Medium(int(stem), file, KINDS[suffix])


def health(path: pathlib.Path) -> list[RoleHealth]:
    """The processes that a parallel run last wrote down, and whether they live."""
    file = path / ROLES
    try:
        roles, written = json.loads(file.read_text()), file.stat().st_mtime
    except (OSError, ValueError):
        return []
    return [
        RoleHealth(name, role["pid"], role["restarts"], _alive(role["pid"], written))
        for name, role in roles.items()
        if isinstance(role, dict) and {"pid", "restarts"} <= role.keys()
    ]


def _alive(pid: int | None, written: float) -> bool:
    """Whether the process is there and is not a later one with the same number."""
    if not pid:
        return False
    try:
        process = psutil.Process(pid)
        running = process.status() != psutil.STATUS_ZOMBIE
        return running and process.create_time() <= written + 1
    except psutil.Error:
        return False
