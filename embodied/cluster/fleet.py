"""The fleet: the env processes of a run as tasks of a Ray cluster."""

from __future__ import annotations

import importlib
import logging
import signal
import time
from collections.abc import Sequence
from typing import Any

import elements

from embodied.cluster import host
from embodied.core import parcel
from embodied.run import role
from embodied.run.parallel import farewell, wire
from embodied.run.parallel.env import env_roles


def parallel_fleet(make_env_train: bytes, make_env_eval: bytes, args: Any) -> None:
    """Run all environments on the cluster until the run ends.

    Ray starts the task of a machine that vanished on another one; the supervisor
    starts this role again if the connection to the cluster is lost.
    """
    ray = connect(args.ray.address)
    try:
        keys = wire.client_keys(args)
        roles = env_roles(make_env_train, make_env_eval, args, keys)
        task = ray.remote(
            num_cpus=args.ray.cpus,
            max_retries=-1,
            retry_exceptions=[host.LeftError],
            scheduling_strategy="SPREAD",
        )(host.run)
        tasks = [
            task.options(name=each.name).remote(parcel.dumps(each)) for each in roles
        ]
        tell_shortage(len(tasks), args.ray.cpus, ray.nodes())
        watch(ray, tasks)
        dismiss(ray, tasks)
    finally:
        ray.shutdown()  # Ends the tasks that are left.


def connect(address: str) -> Any:
    """Ray, connected to a cluster."""
    ray: Any = importlib.import_module("ray")  # An extra.
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=address, logging_level=logging.WARNING)
    signal.signal(signal.SIGTERM, handler)  # Ray would end this process at once.
    return ray


def watch(ray: Any, tasks: Sequence[Any]) -> None:
    """Wait until this role is asked to stop; raises what ends a task before."""
    while not role.stopping():
        role.beat()
        ended, _ = ray.wait(tasks, timeout=1.0)
        for task in ended:
            try:
                ray.get(task)
            except host.FailedError as error:
                # It was restarted where it ran as often as it may be.
                raise role.FinalError(str(error.cause)) from None  # type: ignore[attr-defined]
            return  # The run is over, which the environment knows first.


def dismiss(ray: Any, tasks: Sequence[Any]) -> None:
    """Let the environments hear from the farewell that the run is over."""
    deadline = time.monotonic() + farewell.PATIENCE
    while tasks and time.monotonic() < deadline:
        role.beat()
        _, tasks = ray.wait(tasks, timeout=0.5)


def tell_shortage(amount: int, cpus: float, nodes: Sequence[dict[str, Any]]) -> None:
    """A word on environments that will wait for a core."""
    cores = [node["Resources"].get("CPU", 0.0) for node in nodes if node["Alive"]]
    room = sum(int(each / cpus) for each in cores) if cpus else amount
    if room < amount:
        elements.print(
            f"The Ray cluster has room for {room} of {amount} environment processes "
            f"of {cpus:g} cores each; the others wait. Add machines, or give a smaller "
            "--run.envs or --ray.cpus.",
            color="yellow",
            flush=True,
        )
