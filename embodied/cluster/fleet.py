"""The fleet: the env processes of a run as tasks of a Ray cluster."""

from __future__ import annotations

import dataclasses
import importlib
import logging
import secrets
import signal
import time
from collections.abc import Sequence
from typing import Any

import elements

from embodied.cluster import host
from embodied.core import pickling
from embodied.process.context import Context, FinalError
from embodied.process.supervisor import Role
from embodied.run.parallel import member, run_keys
from embodied.run.parallel.env import env_roles, joined_env
from embodied.run.parallel.roles import ENV
from embodied.run.settings import RunSettings

PATIENCE = 5.0  # Seconds in which the tasks of environments may end.


def parallel_fleet(
    make_env_train: bytes,
    make_env_eval: bytes,
    args: RunSettings,
    ctx: Context | None = None,
) -> None:
    """Run all environments on the cluster until the run ends.

    Ray reschedules tasks of lost machines; the supervisor restarts this role if the
    connection to the cluster is lost.
    """
    ctx = ctx or Context()
    keys = run_keys.client_keys(args, run_keys.ENV)
    invitation = member.Invitation(args.coordinator_addr, keys)
    roles = joined_roles(env_roles(make_env_train, make_env_eval, args), invitation)
    ray = connect(args.ray.address)
    try:
        task = ray.remote(
            num_cpus=args.ray.cpus,
            max_retries=-1,
            retry_exceptions=[host.LeftError],
            scheduling_strategy="SPREAD",
        )(host.run)
        tasks = [
            task.options(name=each.name).remote(pickling.dumps(each)) for each in roles
        ]
        tell_shortage(len(tasks), args.ray.cpus, ray.nodes())
        watch(ray, tasks, ctx)
        dismiss(ray, tasks, ctx)
    finally:
        ray.shutdown()  # Kills the tasks that are left.
        member.remove(invitation, [role.args[2] for role in roles])


def joined_roles(roles: Sequence[Role], invitation: member.Invitation) -> list[Role]:
    """Roles that join the run from machines of the cluster.

    The name of a member is unique, as tasks of an earlier fleet may still run.
    """
    token, joined = secrets.token_hex(4), []
    for role in roles:
        make_env, numbers, _, is_eval, *_ = role.args
        name = f"{role.name}-{token}"
        entry = member.Entry(ENV, name, len(numbers), None, numbers)
        given = (make_env, invitation, entry, is_eval)
        joined.append(dataclasses.replace(role, target=joined_env, args=given))
    return joined


def connect(address: str, **options: Any) -> Any:
    """Ray, connected to a cluster."""
    ray: Any = importlib.import_module("ray")  # An extra.
    handler = signal.getsignal(signal.SIGTERM)
    ray.init(address=address, logging_level=logging.WARNING, **options)
    signal.signal(signal.SIGTERM, handler)  # Ray would end this process at once.
    return ray


def watch(ray: Any, tasks: Sequence[Any], ctx: Context) -> None:
    """Wait until this role is asked to stop; raises what ends a task before."""
    while not ctx.stopping():
        ctx.beat()
        ended, _ = ray.wait(tasks, timeout=1.0)
        for task in ended:
            try:
                ray.get(task)
            except host.FailedError as error:
                # It has used up its restart budget on its machine.
                raise FinalError(str(error.cause)) from None  # type: ignore[attr-defined]
            return  # The run has ended, which the environment knows first.


def dismiss(ray: Any, tasks: Sequence[Any], ctx: Context) -> None:
    """Wait until the environments, already notified, have exited."""
    deadline = time.monotonic() + PATIENCE
    while tasks and time.monotonic() < deadline:
        ctx.beat()
        _, tasks = ray.wait(tasks, timeout=0.5)


def tell_shortage(amount: int, cpus: float, nodes: Sequence[dict[str, Any]]) -> None:
    """Warn if some environments have to wait for a core."""
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
