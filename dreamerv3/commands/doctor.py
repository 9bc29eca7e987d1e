"""`dreamerv3 doctor`: what this machine has, what is wrong, and what fixes it."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import pathlib
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import psutil

from dreamerv3.commands.base import run_module
from dreamerv3.commands.check_env import line
from dreamerv3.settings.plan import human_bytes
from embodied.core import extras, machine
from embodied.envs import headless, registry
from embodied.testing.env_report import Finding

PYTHON = (3, 11)
FOREIGN = "dreamerv3"  # Someone else's package, which has the same import name.
MEMORY, DISK = 2e9, 5e9  # Bytes below which a small run gets into trouble.
SIZE, REPEATS = 1024, 5  # Of the matrix product.
EPILOG = """\
examples:
  dreamerv3 doctor
  dreamerv3 doctor --logdir /data/runs --key-dir ~/keys
"""


def run(argv: Sequence[str]) -> None:
    """Print the findings and exit with 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        "dreamerv3 doctor",
        description="Check Python, packages, devices, cores, memory, disk, OpenGL, "
        "suites and keys. Ends with 1 if something is wrong.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    here = pathlib.Path("logdir")
    parser.add_argument(
        "--logdir", type=pathlib.Path, default=here, help="where runs will be (logdir)"
    )
    parser.add_argument("--key-dir", type=pathlib.Path, help="keys of a run to check")
    args = parser.parse_args(argv)
    failed = []
    for finding in examine(args.logdir.expanduser(), args.key_dir):
        print(line(finding), flush=True)
        failed += [finding.name] if finding.ok is False else []
    names = ", ".join(dict.fromkeys(failed))
    print(f"\nWrong: {names}." if failed else "\nAll is well.")
    sys.exit(1 if failed else 0)


def examine(logdir: pathlib.Path, key_dir: pathlib.Path | None) -> Iterator[Finding]:
    """Findings one by one; a check that fails itself is one as well."""
    checks: list[tuple[Callable[..., Any], tuple]] = [
        (python, ()),
        (package, ()),
        (packages, ()),
        (devices, ()),
        (cores, ()),
        (memory, ()),
        (disk, (logdir,)),
        (opengl, ()),
        (suites, ()),
        (keys, (key_dir,)),
    ]
    for check, args in checks:
        try:
            yield from check(*args)
        except Exception as error:  # A broken machine is what this is for.
            text = f"could not be checked, {type(error).__name__}: {error}"
            yield Finding(check.__name__, False, text, "fix what it names")


def python() -> Iterator[Finding]:
    """The interpreter."""
    found = ".".join(map(str, sys.version_info[:3]))
    fits = sys.version_info[:2] >= PYTHON
    remedy = "" if fits else "make clean && make install PYTHON=python3.11"
    yield Finding("python", fits, f"{found}, {sys.executable}", remedy)


def package() -> Iterator[Finding]:
    """This distribution, and the one that would hide it."""
    yield Finding("package", True, f"{extras.distribution()} {extras.version()}")
    if _version(FOREIGN):
        text = f"the distribution '{FOREIGN}' {_version(FOREIGN)} has the same import "
        text += "name; it is someone else's, or an older release of this one"
        remedy = f"pip uninstall {FOREIGN}, then install {extras.distribution()} again"
        yield Finding("package", None, text, remedy)


def packages() -> Iterator[Finding]:
    """What this distribution requires."""
    try:
        required = importlib.metadata.requires(extras.distribution()) or []
    except importlib.metadata.PackageNotFoundError:
        remedy = "make install, or pip install the repository"
        yield Finding("packages", None, "not installed, run from source", remedy)
        return
    base = [text for text in required if "extra ==" not in text]
    names = [re.match(r"[\w.-]+", text)[0] for text in base]  # type: ignore[index]
    found = {name: _version(name) for name in names}
    missing = [name for name, version in found.items() if not version]
    shown = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        remedy = f"pip install {shlex.join(missing)}"
        yield Finding("packages", False, f"missing: {', '.join(missing)}", remedy)
    yield Finding("packages", True, shown)


def devices() -> Iterator[Finding]:
    """Each device of JAX with a timed matrix product, and those it does not use."""
    if not importlib.util.find_spec("jax"):
        remedy = "fine for environments only; else install the whole package"
        yield Finding("devices", None, "there is no JAX here", remedy)
        return
    import jax

    for device in jax.local_devices():
        seconds = time_product(device)
        rate = 2 * SIZE**3 / seconds / 1e9
        text = f"{device.platform} {device.id}, {device.device_kind}: a product of "
        text += f"{SIZE}x{SIZE} matrices takes {1000 * seconds:.2f} ms, "
        yield Finding("device", True, f"{text}{rate:,.0f} GFLOP/s")
    for note in machine.unused():
        text, _, remedy = note.rpartition(": ")
        yield Finding("device", False, text, remedy)


def time_product(device: Any) -> float:
    """Seconds of a matrix product on a device, the fastest of a few."""
    import jax
    import numpy as np

    matrix = jax.device_put(np.ones((SIZE, SIZE), np.float32), device)
    product = jax.jit(jax.numpy.matmul)
    product(matrix, matrix).block_until_ready()
    times = [time.perf_counter()]
    for _ in range(REPEATS):
        product(matrix, matrix).block_until_ready()
        times.append(time.perf_counter())
    return float(np.diff(times).min())


def cores() -> Iterator[Finding]:
    """Cores of this process and of the machine."""
    own, total = machine.cores(), os.cpu_count() or 1
    text = f"{own} of {total}" if own < total else str(own)
    yield Finding("cores", True, text)


def memory() -> Iterator[Finding]:
    """Free and whole memory."""
    found = psutil.virtual_memory()
    enough = found.available >= MEMORY
    text = f"{human_bytes(found.available)} free of {human_bytes(found.total)}"
    remedy = f"a small run needs {human_bytes(MEMORY)}: close other programs"
    yield Finding("memory", enough, text, "" if enough else remedy)


def disk(logdir: pathlib.Path) -> Iterator[Finding]:
    """Free space where runs and their replay will be."""
    folder = logdir.absolute()
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if not os.access(there, os.W_OK):
        remedy = "choose another folder, for example --logdir ~/logdir"
        yield Finding("disk", False, f"{there} cannot be written to", remedy)
        return
    enough = free >= DISK
    remedy = "free some, choose another --logdir, or limit --replay.size"
    text = f"{human_bytes(free)} free in {there}"
    yield Finding("disk", enough, text, "" if enough else remedy)


def opengl() -> Iterator[Finding]:
    """Whether MuJoCo can draw without a screen."""
    if not importlib.util.find_spec("dm_control"):
        text = "not checked, no suite that draws with it is installed"
        yield Finding("opengl", None, text)
        return
    reasons = {name: headless.attempt(name) for name in headless.BACKENDS}
    working = [name for name, reason in reasons.items() if not reason]
    if working:
        yield Finding("opengl", True, f"MuJoCo draws with {' and '.join(working)}")
        return
    text = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    yield Finding("opengl", False, text, "apt install libegl1 libosmesa6")


def suites() -> Iterator[Finding]:
    """Suites that are installed, and how to get the others."""
    lacks = {k: registry.missing_packages(v) for k, v in registry.suites().items()}
    there = [name for name, missing in lacks.items() if not missing]
    missing = [name for name, needs in lacks.items() if needs]
    yield Finding("suites", True, f"installed: {', '.join(there)}")
    if missing:
        remedy = "dreamerv3 envs shows the commands that install them"
        yield Finding("suites", None, f"missing: {', '.join(missing)}", remedy)


def keys(directory: pathlib.Path | None) -> Iterator[Finding]:
    """Whether runs over a network can be encrypted, and the keys of one."""
    import zmq

    from embodied import rpc

    if not zmq.has("curve"):
        remedy = "pip install --force-reinstall pyzmq"
        yield Finding("keys", False, "this build of ZeroMQ has no CURVE", remedy)
        return
    if directory is None:
        yield Finding("keys", True, "runs over a network can be encrypted")
        return
    try:
        rpc.load_server(directory.expanduser())
        yield Finding("keys", True, f"{directory} has the keys of a server")
    except (rpc.KeyFileError, OSError) as error:
        remedy = f"dreamerv3 keys {shlex.quote(str(directory))}"
        yield Finding("keys", False, str(error), remedy)


def _version(name: str) -> str:
    """The version of an installed distribution, or nothing."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    run_module(__file__)
