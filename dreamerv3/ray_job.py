"""Runs the launcher with agent, replay and logger on a node of a Ray cluster."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial as bind
from typing import Any

from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, logdir
from dreamerv3.settings.config import ConfigError, Flat, Problem
from dreamerv3.settings.schema import Settings
from embodied.cluster import discovery, host
from embodied.cluster.job import JobError, Needs
from embodied.cluster.job import run as run_job
from embodied.core import runfiles
from embodied.envs import custom
from embodied.process.supervisor import ASKED, LOST
from embodied.rpc import address as addresses
from embodied.run.parallel import launch

KEYS = ("ray.gpus", "ray.cpus_core", "ray.memory")
LOCK_TIMEOUT = 60  # Seconds in which the program of a lost node lets go of its files.
GB = 1e9


def is_wanted(values: Mapping[str, Any]) -> bool:
    """Whether all roles run on a node of the cluster, not only environments."""
    on_ray = values["launcher"] == launch.RAY and values["script"] == "parallel"
    return on_ray and any(values[key] for key in KEYS)


def check(
    values: Flat, cluster: discovery.Cluster, served: Collection[str]
) -> list[Problem]:
    """Problems of a job: addresses that it serves, and resources of the cluster."""
    if not is_wanted(values):
        return []
    problems = []
    for key in served:
        if addresses.AUTO not in values[key]:
            rule = "cannot name the node of the job, which Ray chooses"
            problems.append(Problem(key, values[key], rule, f"use {addresses.AUTO}"))
    if all(map(_needs(values).missing, cluster.resources.values())):
        key = next(key for key in KEYS if values[key])
        shown = ", ".join(f"{key} {values[key]:g}" for key in KEYS if values[key])
        rule = f"no node has {shown}; the cluster has {_shown(cluster)}"
        remedy = "give less, or add such a node by `ray start --address`"
        problems.append(Problem(key, values[key], rule, remedy))
    return problems


def submit(
    blocks: settings.Blocks,
    typed: flags.Flags,
    config: Settings,
    factory: Callable[..., Any] | None,
) -> None:
    """Run the command on a node, and follow it from here.

    Raises `JobError` with its exit code if it fails there.
    """
    directory = pathlib.Path(config.logdir).absolute()
    with logdir.hold(directory):
        pass  # Another run there is better noticed here.
    typed = typed._replace(values={**typed.values, "logdir": [str(directory)]})
    target = bind(run_here, blocks, typed, factory)
    marker = str(directory / runfiles.JOB)
    needs = _needs(config.flat)
    code = run_job(target, needs, config.ray.address, marker, config.run.budget)
    if code:
        raise JobError(f"the job ended with exit code {code}; see above", code)


def run_here(
    blocks: settings.Blocks,
    typed: flags.Flags,
    factory: Callable[..., Any] | None,
) -> int:
    """Run the command on this node; returns `host.LEFT` if it was asked to stop."""
    from dreamerv3 import cli, main  # They import this module.

    with cli.explained():
        if factory:
            custom.hold(typed.values["task"][0], factory)
        values, saved = main.resolve(blocks, typed, [])
        wait_free(values["logdir"])
        reason = main.run(values, saved, typed, factory)
    return host.LEFT if reason in (ASKED, LOST) else 0


def wait_free(directory: str) -> None:
    """Wait for the program of a lost node, which may take a moment to end."""
    pause = threading.Event()
    for _ in range(LOCK_TIMEOUT):
        try:
            with logdir.hold(directory):
                return
        except ConfigError:
            pause.wait(1.0)


def _needs(values: Mapping[str, Any]) -> Needs:
    return Needs(*(values[key] for key in KEYS))


def _shown(cluster: discovery.Cluster) -> str:
    """What each node of a cluster has."""
    return "; ".join(
        f"{name}: {has.get('GPU', 0):g} GPU, {has.get('CPU', 0):g} CPU, "
        f"{has.get('memory', 0) / GB:.1f} GB"
        for name, has in cluster.resources.items()
    )
