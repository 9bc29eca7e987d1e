"""The launcher: starts the roles of a run and connects them."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any, NamedTuple

import elements

from embodied import rpc
from embodied.cluster import discovery
from embodied.core import base, pickling, runfiles
from embodied.process.incarnations import Incarnations
from embodied.process.supervisor import Role, Stop, Supervisor
from embodied.rpc import address as addressing
from embodied.run.parallel import connections, run_keys, shutdown
from embodied.run.parallel.agent import parallel_agent
from embodied.run.parallel.coordinator import Coordinator, own_socket, serve
from embodied.run.parallel.env import env_roles
from embodied.run.parallel.logger import parallel_logger
from embodied.run.parallel.replay import parallel_replay
from embodied.run.parallel.roles import ENV, LEARNER
from embodied.run.settings import Given, RunSettings

# Stages in which roles are stopped: senders before receivers.
ENVS, FLEET, AGENT, LEARNERS, REPLAY, LOGGER = range(6)
LOCAL, RAY = "local", "ray"  # Who starts the environments.
FLEET_GRACE = 20.0  # Seconds to end what runs on a cluster.
FORMER = "lives"  # File of older runs, in the checkpoints of the replay.


class Factories(NamedTuple):
    """What makes the parts of a run: callables, or pickled ones."""

    agent: bytes | Callable[[], base.Agent]
    replay_train: bytes | Callable[[], base.Replay]
    replay_eval: bytes | Callable[[], base.Replay]
    env_train: bytes | Callable[[int], base.Env]
    env_eval: bytes | Callable[[int], base.Env]
    stream: bytes | Callable[[base.Replay, base.Mode], base.Stream]
    logger: bytes | Callable[[], elements.Logger]


def combined(
    make_agent: Callable[[], base.Agent],
    make_replay_train: Callable[[], base.Replay],
    make_replay_eval: Callable[[], base.Replay],
    make_env_train: Callable[[int], base.Env],
    make_env_eval: Callable[[int], base.Env],
    make_stream: Callable[[base.Replay, base.Mode], base.Stream],
    make_logger: Callable[[], elements.Logger],
    args: Given,
) -> str:
    """Launch every role and supervise them until the run ends; returns why it did."""
    args = RunSettings.of(args)
    opened = [name for name, where in addresses(args).items() if rpc.AUTO in where]
    args = resolve(open_up(args) if args.launcher == RAY else args)
    provide_keys(args)
    make = Factories(
        make_agent,
        make_replay_train,
        make_replay_eval,
        make_env_train,
        make_env_eval,
        make_stream,
        make_logger,
    )
    try:
        reason = run(make_roles(Factories(*map(pickling.dumps, make)), args), args)
    finally:
        for name in opened:  # A role that was killed leaves its socket.
            addressing.unlink(addresses(args)[name])
    elements.print(f"The run ended: {reason}.", flush=True)
    return reason


def run(roles: Sequence[Role], args: RunSettings) -> str:
    """Run roles and serve the coordinator; returns why the run ended."""
    logdir = pathlib.Path(args.logdir).expanduser()
    former = runfiles.checkpoints(logdir, "replay") / FORMER
    holders = logdir / runfiles.ISSUED
    issue = Incarnations(logdir / runfiles.INCARNATION, former, holders).next
    with serve(args, issue) as coordinator:
        others = make_others(coordinator, args)
        status = logdir / runfiles.ROLES
        reason = Supervisor(roles, status, issue, others).run(args.duration)
    coordinator.members.clear()  # No member can leave any more.
    return reason


def make_others(coordinator: Coordinator, args: RunSettings) -> dict[int, Stop]:
    """Shutdown handlers of remote processes, by stage."""
    others: dict[int, Stop] = {
        ENVS: bind(end_members, coordinator, ENV, "environments"),
        LEARNERS: bind(end_members, coordinator, LEARNER, "learners"),
    }
    if args.remote_replay:
        others[REPLAY] = bind(shutdown.end_role, "replay", args.replay_addr, args)
    if args.remote_logger:
        others[LOGGER] = bind(shutdown.end_role, "logger", args.logger_addr, args)
    return others


def end_members(
    coordinator: Coordinator, role: str, what: str, hurry: Callable[[], bool]
) -> None:
    """End the members of a role."""
    if not coordinator.end(role, hurry) and not hurry():
        shutdown.warn_unacknowledged(what)


def make_roles(make: Factories, args: RunSettings) -> list[Role]:
    """The roles that the launcher starts; `args` has all addresses."""
    on_ray = args.launcher == RAY
    make_role = bind(Role, budget=args.budget, grace=args.stop_timeout, essential=True)
    slow: dict[str, Any] = {"hang": args.agent_timeout, "start": args.agent_timeout}
    slow["thread"] = not args.agent_process
    roles = []
    if not args.remote_logger:
        logger = (make.logger, args)
        roles.append(
            make_role("logger", parallel_logger, logger, LOGGER, receives=True)
        )
    if not args.remote_replay:
        replays = (make.replay_train, make.replay_eval, make.stream, args)
        roles.append(
            make_role("replay", parallel_replay, replays, REPLAY, receives=True)
        )
    agent = (make.agent, args)
    roles.append(make_role("agent", parallel_agent, agent, AGENT, **slow))
    if on_ray:
        roles.append(fleet_role(make.env_train, make.env_eval, args))
    elif not args.remote_envs:
        roles += env_roles(make.env_train, make.env_eval, args)
    return [
        dataclasses.replace(role, saved=bind(shutdown.describe_saved, role.name, args))
        for role in roles
    ]


def open_up(args: RunSettings) -> RunSettings:
    """Let other machines join, as the environments are there."""
    address = args.coordinator_addr
    if address == rpc.AUTO:
        address = f"tcp://{discovery.look(args.ray.address).host}:{rpc.AUTO}"
    return dataclasses.replace(args, coordinator_addr=address, remote_envs=True)


def fleet_role(env_train: Any, env_eval: Any, args: RunSettings) -> Role:
    """The role that has environments run on a Ray cluster.

    It ends after the environments, which are members of the run.
    """
    from embodied.cluster.fleet import parallel_fleet  # Imports this package.

    return Role(
        "fleet",
        parallel_fleet,
        (env_train, env_eval, args),
        FLEET,
        budget=args.budget,
        grace=FLEET_GRACE,
    )


def is_protected(name: str, args: RunSettings) -> bool:
    """Whether the server at an address has keys; the learner is always on ZeroMQ."""
    return args.transport != connections.PORTAL or name == "learner_addr"


def resolve(args: RunSettings) -> RunSettings:
    """Choose all addresses that are `{auto}`.

    If other machines may join, the servers they need listen on the network, too.
    """
    place = rpc.resolve(own_socket(args))
    found: dict[str, Any] = addresses(args) | {"coordinator_addr": place}
    if addressing.is_local(place):
        if found.get("learner_addr") == rpc.AUTO:  # JAX has no other sockets.
            found["learner_addr"] = f"tcp://127.0.0.1:{rpc.AUTO}"
    else:
        host = place.rpartition(":")[0]
        called = ["actor_addr", "learner_addr"]
        called += ["logger_addr"] if args.remote_replay else []
        for name in called:
            if found.get(name) == rpc.AUTO and is_protected(name, args):
                found[name] = f"{host}:{rpc.AUTO}"
    free = f"localhost:{rpc.AUTO}" if args.transport == connections.PORTAL else rpc.AUTO
    for name, where in found.items():
        found[name] = rpc.resolve(free if where == rpc.AUTO else where)
    return dataclasses.replace(args, **found)


def addresses(args: RunSettings) -> dict[str, str]:
    """Where the servers of a run are, by the name of the setting."""
    found = {
        "coordinator_addr": args.coordinator_addr,
        "actor_addr": args.actor_addr,
        "replay_addr": args.replay_addr,
        "logger_addr": args.logger_addr,
    }
    return found | ({"learner_addr": args.learner_addr} if args.learners > 1 else {})


def provide_keys(args: RunSettings) -> None:
    """Make keys on the first start of a run that other machines can reach.

    Raises `KeyFileError` if existing keys are unusable.
    """
    local = all(map(addressing.is_local, addresses(args).values()))
    directory = run_keys.directory_of(args)
    if not local and not directory.exists():
        rpc.make_keys(directory, run_keys.CLIENTS)
        place = args.coordinator_addr.removeprefix("tcp://")
        elements.print(
            f"Keys of this run are in {directory}. On another machine, with the key of "
            f"its role: dreamerv3 join {place} --key FILE ROLE"
        )
    run_keys.server_keys(args, *run_keys.CLIENTS)
    for name in run_keys.CLIENTS:
        run_keys.client_keys(args, name)
