"""The launcher: who runs where, and who talks to whom."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from functools import partial as bind

import elements

from embodied import rpc
from embodied.cluster import scout
from embodied.core import base, parcel
from embodied.rpc.address import is_local, unlink
from embodied.run.parallel import farewell, options, wire
from embodied.run.parallel.agent import parallel_agent
from embodied.run.parallel.env import env_roles
from embodied.run.parallel.logger import parallel_logger
from embodied.run.parallel.replay import parallel_replay
from embodied.run.supervisor import Role, Supervisor

# Stages in which roles are stopped: senders before receivers.
ENVS, AGENT, FAREWELL, REPLAY, LOGGER = range(5)
ADDRESSES = ("actor_addr", "replay_addr", "logger_addr")
LOCAL, RAY = "local", "ray"  # Who starts the environments.
FLEET_GRACE = 20.0  # Seconds to end what runs on a cluster.


def combined(
    make_agent: Callable[[], base.Agent],
    make_replay_train: Callable[[], base.Replay],
    make_replay_eval: Callable[[], base.Replay],
    make_env_train: Callable[[int], base.Env],
    make_env_eval: Callable[[int], base.Env],
    make_stream: Callable[[base.Replay, base.Mode], base.Stream],
    make_logger: Callable[[], elements.Logger],
    args: elements.Config,
) -> None:
    """Launch every role, supervise them, and block until the run ends."""
    args = options.complete(args)
    expects_guests = rpc.AUTO not in args.actor_addr  # It can be told to others.
    open_addresses = [name for name in ADDRESSES if rpc.AUTO in args[name]]
    on_ray = args.launcher == RAY
    args = resolve(open_up(args) if on_ray else args)
    provide_keys(args)
    factories = (make_replay_train, make_replay_eval, make_stream)
    replays = tuple(map(parcel.dumps, factories))
    env_train, env_eval = map(parcel.dumps, (make_env_train, make_env_eval))
    logger, agent = parcel.dumps(make_logger), parcel.dumps(make_agent)
    make_role = bind(Role, budget=args.budget, grace=args.stop_timeout, essential=True)
    slow = {"hang": args.agent_timeout, "start": args.agent_timeout}
    slow["thread"] = not args.agent_process
    roles = []
    if not args.remote_logger:
        roles.append(make_role("logger", parallel_logger, (logger, args), LOGGER))
    if not args.remote_replay:
        roles.append(make_role("replay", parallel_replay, (*replays, args), REPLAY))
    roles.append(make_role("agent", parallel_agent, (agent, args), AGENT, **slow))
    if on_ray:
        roles.append(fleet_role(env_train, env_eval, args))
    elif not args.remote_envs:
        roles += env_roles(env_train, env_eval, args)
    apart = args.remote_envs or args.remote_replay or args.remote_logger
    if expects_guests or apart or args.learners > 1:
        grace = farewell.longest(args)
        target = farewell.parallel_farewell
        told = (args, not on_ray)
        roles.append(make_role("farewell", target, told, FAREWELL, grace=grace))
    status = pathlib.Path(args.logdir).expanduser() / "roles.json"
    try:
        reason = Supervisor(roles, status).run(args.duration)
    finally:
        for name in open_addresses:  # A role that was killed leaves its socket.
            unlink(args[name])
    elements.print(f"The run ended: {reason}.", flush=True)


def open_up(args: elements.Config) -> elements.Config:
    """Let other machines reach the actor, as the environments are there."""
    address = args.actor_addr
    if address == rpc.AUTO:
        address = f"tcp://{scout.look(args.ray.address).host}:{rpc.AUTO}"
    return args.update(actor_addr=address, remote_envs=True)


def fleet_role(env_train: bytes, env_eval: bytes, args: elements.Config) -> Role:
    """The role that has environments run on a Ray cluster.

    It ends with the farewell, from which the environments hear that the run is over.
    """
    from embodied.cluster.fleet import parallel_fleet  # Imports this package.

    return Role(
        "fleet",
        parallel_fleet,
        (env_train, env_eval, args),
        FAREWELL,
        budget=args.budget,
        grace=FLEET_GRACE,
    )


def resolve(args: elements.Config) -> elements.Config:
    """Fill in the addresses that were left open."""
    return args.update({name: rpc.resolve(args[name]) for name in addresses(args)})


def addresses(args: elements.Config) -> list[str]:
    """Settings that say where the servers of a run are."""
    return [*ADDRESSES, *(["learner_addr"] if args.learners > 1 else [])]


def provide_keys(args: elements.Config) -> None:
    """Make keys for a run that other machines can reach; the first start does.

    Raises `KeyFileError` if keys are there that its roles could not use.
    """
    local = all(is_local(args[name]) for name in addresses(args))
    directory = wire.keys_directory(args)
    if not local and not directory.exists():
        rpc.make_keys(directory)
        elements.print(f"Other machines need the client key in {directory}.")
    wire.server_keys(args)
    wire.client_keys(args)
