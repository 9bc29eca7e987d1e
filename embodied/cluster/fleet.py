"""The fleet: the env processes of a run as tasks of a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import os
import pathlib
import time
from typing import Any

import elements

from embodied.cluster import host
from embodied.core import parcel
from embodied.run import role
from embodied.run.parallel import farewell, wire
from embodied.run.parallel.env import env_roles

AUTO = "auto"  # The cluster that this machine belongs to.
CURRENT = pathlib.Path("/tmp/ray/ray_current_cluster")  # Written by `ray start`.


def parallel_fleet(make_env_train: bytes, make_env_eval: bytes, args: Any) -> None:
    """Run all environments on the cluster until the run ends.

    Ray starts the task of a machine that vanished on another one; the supervisor
    starts this role again if the connection to the cluster is lost.
    """
    ray: Any = importlib.import_module("ray")  # An extra.
    ray.init(address=args.ray.address, logging_level=logging.WARNING)
    try:
        keys = wire.client_keys(args)
        roles = env_roles(make_env_train, make_env_eval, args, keys)
        tell_shortage(len(roles) * args.ray.cpus, ray.cluster_resources())
        task = ray.remote(
            num_cpus=args.ray.cpus,
            max_retries=-1,
            retry_exceptions=[host.LeftError],
            scheduling_strategy="SPREAD",
        )(host.run)
        tasks = [
            task.options(name=each.name).remote(parcel.dumps(each)) for each in roles
        ]
        watch(ray, tasks)
        dismiss(ray, tasks)
    finally:
        ray.shutdown()  # Ends the tasks that are left.


def watch(ray: Any, tasks: list[Any]) -> None:
    """Wait until this role is asked to stop; raises what ends a task before."""
    while not role.stopping():
        role.beat()
        ended, _ = ray.wait(tasks, timeout=1.0)
        for task in ended:
            try:
                ray.get(task)
            except ray.exceptions.RayTaskError as error:
                # It was restarted where it ran as often as it may be.
                raise role.FinalError(str(error.cause)) from None
            return  # The run is over, which the environment knows first.


def dismiss(ray: Any, tasks: list[Any]) -> None:
    """Let the environments hear from the farewell that the run is over."""
    deadline = time.monotonic() + farewell.PATIENCE
    while tasks and time.monotonic() < deadline:
        role.beat()
        _, tasks = ray.wait(tasks, timeout=0.5)


def tell_shortage(need: float, resources: dict[str, float]) -> None:
    """A word on environments that will wait for a core."""
    have = resources.get("CPU", 0.0)
    if need > have:
        text = f"The environments reserve {need:g} cores, the Ray cluster has {have:g}"
        remedy = "some wait: add machines, or give a smaller --run.envs or --ray.cpus"
        elements.print(f"{text}; {remedy}.", color="yellow", flush=True)


def reachable(address: str) -> bool:
    """Whether there may be a cluster at this address."""
    return address != AUTO or "RAY_ADDRESS" in os.environ or CURRENT.exists()
