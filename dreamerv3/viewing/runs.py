"""Finds runs below directories and tells what their files other than metrics say."""

from __future__ import annotations

import functools
import glob
import hashlib
import os
import pathlib
import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ruamel.yaml

from dreamerv3.settings import logdir
from embodied.core import files, runfiles
from embodied.envs import custom

FILES = {runfiles.METRICS, runfiles.SCORES, runfiles.CONFIG}
KINDS = {".mp4": "video", ".gif": "image", ".png": "image", ".txt": "text"}
OVERLAY = "published-curves"  # A folder of runs that are not the user's own.
DEPTH = 6  # How far below a given directory runs are looked for.
UNKNOWN = 60.0  # Seconds without a write after which a run without a lock has ended.
REMOTE = 600.0  # The same for a run that is locked by another machine.
LONGEST = 1000  # Letters of a line with one of these settings.
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
    error: str = ""  # Why its settings cannot be read.


class Medium(NamedTuple):
    """A video, image or text of one step."""

    step: int
    file: str  # Name in the folder of its key.
    kind: str


class RoleHealth(NamedTuple):
    """One process of a parallel run."""

    name: str
    pid: int | None
    restarts: int
    alive: bool  # On this machine; a remote role counts as ended.


def find(places: Sequence[str], strict: bool = True) -> list[Run]:
    """Runs at or below the given directories and patterns, by name.

    A place that does not exist is an error if `strict`.
    """
    paths = [path for place in places for path in _expand(place, strict)]
    found = list(dict.fromkeys(p for root in paths for p in _below(root, DEPTH)))
    if not found and strict:
        raise RunsError(
            f"no run in {', '.join(places)}: a run is a directory with "
            f"{runfiles.METRICS}; give its log directory or one above it"
        )
    own = [path.parent for path in found if OVERLAY not in path.parts]
    root = pathlib.Path(os.path.commonpath(own)) if own else pathlib.Path("/")
    runs = [_describe(path, _name(path, root)) for path in found]
    return sorted(runs, key=_by_name)


def _name(path: pathlib.Path, root: pathlib.Path) -> str:
    """The path below all runs; that of published ones has nothing to do with it."""
    if OVERLAY in path.parts:
        root = path.parents[len(path.parts) - path.parts.index(OVERLAY) - 1]
    return str(path.relative_to(root))


def exists(place: str) -> bool:
    """Whether a directory is there or a pattern matches something."""
    return bool(_expand(place, strict=False))


def _by_name(run: Run) -> tuple[str, str]:
    return run.name, run.id


def _expand(place: str, strict: bool) -> list[pathlib.Path]:
    matches = sorted(glob.glob(os.path.expanduser(place), recursive=True))
    if strict and not matches:
        raise RunsError(f"{place} does not exist; give a log directory")
    return [pathlib.Path(path).resolve() for path in matches if os.path.isdir(path)]


def _below(path: pathlib.Path, depth: int) -> Iterator[pathlib.Path]:
    """The directory if it is a run, else the runs below it."""
    try:
        entries = list(os.scandir(path))
    except OSError:
        return
    if any(entry.name in FILES for entry in entries):
        yield path
    elif depth:
        for entry in sorted(entries, key=os.fspath):
            if os.path.isdir(entry.path) and not entry.name.startswith("."):
                yield from _below(pathlib.Path(entry.path), depth - 1)


def _describe(path: pathlib.Path, name: str) -> Run:
    known, error = header(path)
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:10]
    task, method, seed = (known.get(key, "") for key in HEADER[:3])
    return Run(digest, name, path, custom.label(task), method, seed, error)


def header(path: pathlib.Path) -> tuple[dict[str, str], str]:
    """Task, method, seed and script, or why they cannot be read.

    Reading all settings takes 20 ms a run.
    """
    file = path / runfiles.CONFIG
    try:
        known, problem = _header(file, file.stat().st_ctime_ns)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        known, problem = {}, error.strerror or str(error)
    return known, f"{runfiles.CONFIG}: {problem}" if problem else ""


@functools.lru_cache(maxsize=10_000)
def _header(file: pathlib.Path, changed: int) -> tuple[dict[str, str], str]:
    try:
        lines = files.read_text(file, logdir.LIMIT).splitlines()
    except UnicodeDecodeError:
        return {}, "no text"
    own = [line for line in lines if line.split(":")[0] in HEADER]
    text = "\n".join(line for line in own if len(line) <= LONGEST)
    try:
        found = ruamel.yaml.YAML(typ="safe").load(text)
    except ruamel.yaml.YAMLError:
        found = None
    if not isinstance(found, dict) or any(map(_is_nested, found.values())):
        return {}, f"no {', '.join(HEADER)}" if any(lines) else ""
    return {key: str(value) for key, value in found.items()}, ""


def _is_nested(value: Any) -> bool:
    return isinstance(value, list | dict)


def media(path: pathlib.Path) -> dict[str, list[Medium]]:
    """Videos, images and texts of a run by key, in order of their steps."""
    root = path / runfiles.MEDIA
    result: dict[str, list[Medium]] = {}
    for folder, _, names in os.walk(root):
        found = [m for m in map(_medium, names) if m]
        if found:
            key = os.path.relpath(folder, root).replace(os.sep, "/")
            result[key] = sorted(found)
    return dict(sorted(result.items()))


def _medium(file: str) -> Medium | None:
    stem, suffix = os.path.splitext(file)
    if suffix not in KINDS or not stem.isdecimal():
        return None
    return Medium(int(stem), file, KINDS[suffix])


def health(path: pathlib.Path) -> list[RoleHealth]:
    """The processes that a parallel run last wrote down, and whether they live."""
    roles = runfiles.read_roles(path / runfiles.ROLES)
    return [RoleHealth(r.name, r.pid, r.restarts, r.is_alive()) for r in roles]


def is_active(path: pathlib.Path, silent: float) -> bool:
    """Whether a run still trains; `silent` is the time since its last write.

    The lock of a run names its process and machine and is empty once it has ended.
    """
    file = path / runfiles.LOCK
    try:
        holder, written = files.read_text(file, LONGEST), file.stat().st_mtime
    except (OSError, ValueError):
        return silent < UNKNOWN
    pid, _, host = holder.partition(" on ")
    if host not in ("", socket.gethostname()):
        return silent < REMOTE
    process = runfiles.RoleProcess(
        "run", int(pid) if pid.isdecimal() else None, 0, written
    )
    return process.is_alive()
