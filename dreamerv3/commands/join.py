"""`dreamerv3 join`: take part in a run of another machine or interpreter."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import secrets
import signal
import socket
from collections.abc import Sequence
from typing import Any, NoReturn

import elements

from dreamerv3 import environments
from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.settings import config as settings
from dreamerv3.settings.config import ConfigError, Problem
from embodied import rpc
from embodied.core import spacefile
from embodied.process.supervisor import Role
from embodied.rpc import address as addresses
from embodied.run.parallel import (
    connections,
    coordinator,
    follower,
    member,
    placed,
    roles,
    run_keys,
)
from embodied.run.parallel.env import joined_env
from embodied.run.parallel.membership import MAX_COUNT
from embodied.run.parallel.roles import ENV, LEARNER

DESCRIPTION = """\
Join a run on another machine with the key of a role. Waits for the run, rejoins after
it restarts, and exits when it ends. Can be stopped or killed at any time.

  env       Step environments. Needs the same --task and its --env settings, but no JAX.
  replay    Store steps, for a run with --run.remote_replay True.
  logger    Write metrics, for a run with --run.remote_logger True.
  learner   Compute a share of each update, for a run with --run.learners 2 or more.
            Needs the same number of devices as the first host.
"""
EPILOG = """\
example, on two machines:
  dreamerv3 --task bounce_32 --run.coordinator_addr tcp://10.0.0.5:7000
  dreamerv3 join 10.0.0.5:7000 --key env.json env --task bounce_32 --count 8

The first makes the keys, in LOGDIR/keys. On one machine, give its log directory instead
of an address: dreamerv3 join LOGDIR env --task bounce_32
"""
KEYS = {
    ENV: run_keys.ENV,
    roles.REPLAY: run_keys.CORE,
    roles.LOGGER: run_keys.CORE,
    LEARNER: run_keys.LEARNER,
}
STEP_TIMEOUT = 300.0  # Seconds for a step, or for making the environments.
BUDGET = 20  # Failures of a learner in five minutes: each restart of the run is one.
GRACE = follower.STOP_AFTER + 10.0  # Seconds for a learner to end.
REJECTED = ("UnexpectedError", "PermissionError")


def run(argv: Sequence[str]) -> None:
    """Ask the coordinator about the run, then start the processes."""
    args, rest = make_parser().parse_known_args(argv)
    check_flags(args, rest)
    invitation = read_invitation(args.address, args.key, KEYS[args.role])
    try:
        {ENV: join_env, LEARNER: join_learner}.get(args.role, join_role)(
            args, rest, invitation
        )
    except KeyboardInterrupt:
        elements.print("Ended: asked to stop.", flush=True)


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        "dreamerv3 join",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "run.coordinator_addr of the run, or its log directory on this machine"
    add("address", metavar="HOST:PORT", help=text)
    add("role", choices=list(KEYS), help="what to run here")
    text = "env.json or learner.json of the run, or the directory of its keys"
    add("--key", metavar="FILE", help=text)
    add("--task", help="env: that of the run")
    add("--count", type=int, default=1, help="env: environments to run (1)")
    text = "env: environments that share a process (1)"
    add("--per-process", type=int, default=1, help=text)
    text = "env: base seed (that of the run)"
    add("--seed", type=int, help=text)
    add("--logdir", help="replay, logger: where to write on this machine")
    return parser


def check_flags(args: argparse.Namespace, rest: Sequence[str]) -> None:
    """Raise if flags are missing or belong to another role."""
    if args.role == ENV:
        if not args.task:
            raise CommandError("env needs --task, that of the run")
        if args.count < 1 or not 1 <= args.per_process <= MAX_COUNT:
            raise CommandError(
                "--count needs at least 1, and --per-process 1 to "
                f"{MAX_COUNT}, not {args.count} and {args.per_process}"
            )
    elif rest or own_flags(args):
        flags = " ".join([*own_flags(args), *rest])
        raise CommandError(
            f"{args.role} takes the settings of the run; leave out {flags}"
        )
    needs_logdir = args.role in (roles.REPLAY, roles.LOGGER)
    if needs_logdir and not args.logdir:
        raise CommandError(f"{args.role} needs --logdir, where it writes")


def own_flags(args: argparse.Namespace) -> list[str]:
    """Flags of environments that were given."""
    default = make_parser().parse_args([args.address, args.role])
    names = ("task", "count", "per_process", "seed")
    changed = [n for n in names if getattr(args, n) != getattr(default, n)]
    return [f"--{name.replace('_', '-')}" for name in changed]


def read_invitation(given: str, key: str | None, name: str) -> member.Invitation:
    """The address of a coordinator and the keys to connect with."""
    directory = pathlib.Path(given).expanduser()
    if directory.is_dir():
        given = f"ipc://{directory.absolute() / coordinator.SOCKET}"
        if not key and (directory / "keys").exists():
            key = str(directory / "keys")
    elif "/" in given and "://" not in given:
        raise CommandError(
            f"{given} does not exist; give HOST:PORT, or the log directory of a run on "
            "this machine"
        )
    try:
        address = addresses.normalize(given)
        keys = rpc.load_client(key, name) if key else None
    except (rpc.AddressError, rpc.KeyFileError) as error:
        raise CommandError(str(error)) from None
    if rpc.AUTO in address:
        raise CommandError(f"{given} names no port; give run.coordinator_addr")
    if keys is None and not addresses.is_local(address):
        raise CommandError(
            f"{given} is another machine, which needs --key: copy {name}.json of the "
            "run here, from run.key_dir or LOGDIR/keys"
        )
    return member.Invitation(address, keys)


def join_env(
    args: argparse.Namespace, rest: Sequence[str], invitation: member.Invitation
) -> None:
    """Run environments."""
    config = environments.read_config(args.task, rest)
    # Raises before anything is asked or waited for.
    spaces = spacefile.encode(*environments.ask_spaces(config))
    facts = describe(invitation, args, spaces)
    if facts is None:
        return
    check_rows(args.per_process, facts["rows"])
    seed = facts.get("seed", 0) if args.seed is None else args.seed
    factory = environments.EnvFactory(config.update(seed=seed))
    amount = f"{args.count}, {args.per_process} per process, seed {seed}"
    show({"Joins": args.address, "Task": args.task, "Envs": amount})
    placed.supervise(make_roles(factory, args, config.run.budget, invitation, spaces))


def make_roles(
    factory: environments.EnvFactory,
    args: argparse.Namespace,
    budget: int,
    invitation: member.Invitation,
    spaces: dict[str, Any],
) -> list[Role]:
    """One role per env process, each a member with a name of its own."""
    token, roles = make_name(), []
    for start in range(0, args.count, args.per_process):
        count = min(args.per_process, args.count - start)
        entry = member.Entry(ENV, f"{token}-{start}", count, spaces)
        given = (factory, invitation, entry)
        name = f"env{start}"
        roles.append(Role(name, joined_env, given, budget=budget, hang=STEP_TIMEOUT))
    return roles


def join_learner(
    args: argparse.Namespace, rest: Sequence[str], invitation: member.Invitation
) -> None:
    """Run one more host of the learner."""
    if not importlib.util.find_spec("jax"):
        raise CommandError(
            "learner needs JAX: install the whole package, not only its environments"
        )
    facts = describe(invitation, args)
    if facts is None:
        return
    patience = facts["config"]["run.agent_timeout"]
    name = make_name()
    show({"Joins": f"{args.address} as {name}"})
    learner = Role(
        LEARNER,
        follower.parallel_follower,
        (make_agent, name, invitation),
        budget=BUDGET,
        hang=patience,
        start=patience,
        grace=GRACE,
        essential=True,
    )
    placed.supervise([learner])


def make_agent(values: settings.Flat, spaces: spacefile.Pair) -> Any:
    """The agent of the run, from the settings it sent."""
    from dreamerv3 import main as training  # Imports what only training needs.

    return training.make_agent(settings.to_config(values), *spaces, quiet=True)


def join_role(
    args: argparse.Namespace, rest: Sequence[str], invitation: member.Invitation
) -> None:
    """Run the replay or the logger with the settings of the run."""
    facts = describe(invitation, args)
    if facts is None:
        return
    from dreamerv3 import main as training  # Imports what only training needs.

    logdir = pathlib.Path(args.logdir).expanduser().absolute()
    values = {**facts["config"], "script": f"parallel_{args.role}"}
    values |= {"logdir": str(logdir), "run.key_dir": find_keys(args)}
    values |= {f"run.{k}": v for k, v in facts.items() if k.endswith("_addr")}
    show({"Joins": args.address, "Role": args.role, "Logs": str(logdir)})
    training.place(settings.to_config(values))


def find_keys(args: argparse.Namespace) -> str:
    """The directory of the keys to serve with; none without keys."""
    if not args.key:
        return ""
    given = pathlib.Path(args.key).expanduser().absolute()
    directory = given.parent if given.suffix == ".json" else given
    try:
        rpc.load_server(directory, run_keys.CORE)
    except rpc.KeyFileError as error:
        raise CommandError(
            f"{args.role} serves others, for which it needs server.json of the "
            f"run beside core.json ({error})"
        ) from None
    return str(directory)


def describe(
    invitation: member.Invitation, args: argparse.Namespace, *more: Any
) -> dict[str, Any] | None:
    """Facts about the run; nothing if it has ended."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return member.describe(invitation, args.role, *more)
    except rpc.HandshakeError as error:
        raise CommandError(str(error)) from None
    except rpc.RemoteError as error:
        if connections.is_over(error):
            elements.print("Ended: the run has ended.", flush=True)
            return None
        if error.kind in REJECTED:
            raise CommandError(error.message) from None
        if error.kind == "AttributeError":  # It is another server.
            text = f"{args.address} is not a coordinator: give run.coordinator_addr"
            raise CommandError(f"{text} ({error.message})") from None
        if error.kind != coordinator.MismatchError.__name__:
            raise
        remedy = "give the task of the run and its --env.… settings here"
        problem = Problem("task", args.task, error.message, remedy)
        raise ConfigError([problem]) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def check_rows(per_process: int, rows: int) -> None:
    """Raise if a message would hold more than the run acts on at once."""
    if per_process > rows:
        raise CommandError(
            f"--per-process {per_process} is more than the {rows} observations that "
            f"the run acts on at once: give at most {rows}, or start the run "
            "with a larger --run.envs"
        )


def make_name() -> str:
    """A name that no other member has."""
    return f"{socket.gethostname()}-{secrets.token_hex(8)}"


def show(rows: dict[str, str]) -> None:
    """Print what is about to start."""
    text = "\n".join(f"{name + ':':<10}{text}" for name, text in rows.items())
    print(text, flush=True)


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    run_module(__file__)
