"""`dreamerv3 env`: join a running training with environments of this machine."""

from __future__ import annotations

import argparse
import pathlib
import secrets
import signal
import socket
from collections.abc import Sequence
from typing import Any, NoReturn

import elements

from dreamerv3 import environments
from dreamerv3.commands.base import CommandError
from dreamerv3.config import ConfigError, Problem
from embodied import rpc
from embodied.core import spacefile
from embodied.rpc import address as addresses
from embodied.run.parallel import guest, placed, wire
from embodied.run.parallel.roster import MismatchError
from embodied.run.supervisor import Role

DESCRIPTION = """\
Step environments for a training that runs elsewhere. Needs neither JAX nor the settings
of the training, only its address, its client key and the same task. Waits for the
training, goes on after it was away, and ends when it is over. May be started, stopped
and killed at any time, on as many machines as you like. Settings of the task may follow
as flags.
"""
EPILOG = """\
example:
  dreamerv3 env --connect 10.0.0.5:7001 --key client.json --task bounce_32 --count 8

where 10.0.0.5 runs
  dreamerv3 --task bounce_32 --run.actor_addr tcp://10.0.0.5:7001 --run.key_dir keys
"""


def main(argv: Sequence[str]) -> None:
    """Ask the training what there is to know, then run the processes."""
    parser = make_parser()
    args, rest = parser.parse_known_args(argv)
    if args.count < 1 or args.per_process < 1:
        raise CommandError("--count and --per-process need at least 1")
    config = environments.read_config(args.task, rest)
    if args.spaces:
        write_spaces(config, args.spaces)
        return
    invitation = guest.Invitation(*read_address(args.connect, args.key))
    # Raises before anybody is asked or waited for.
    spaces = spacefile.encode(*ask_spaces(config))
    try:
        facts = greet(invitation, spaces, args.task)
    except KeyboardInterrupt:
        elements.print("Ended: asked to stop.", flush=True)
        return
    if facts is None:
        elements.print("Ended: the run is over.", flush=True)
        return
    check_rows(args.per_process, facts["rows"])
    seed = facts.get("seed", 0) if args.seed is None else args.seed
    factory = environments.EnvFactory(config.update(seed=seed))
    print(describe(args, seed), flush=True)
    placed.supervise(make_roles(factory, args, config.run.budget, invitation, spaces))


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        "dreamerv3 env",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    where = parser.add_mutually_exclusive_group(required=True)
    text = "run.actor_addr there"
    where.add_argument("--connect", metavar="HOST:PORT", help=text)
    text = "instead, write spaces.json for a training that cannot make the task itself"
    where.add_argument("--spaces", metavar="DIRECTORY", type=pathlib.Path, help=text)
    add("--key", metavar="FILE", help="client.json of the training, or its directory")
    add("--task", required=True, help="as for the training")
    add("--count", type=int, default=1, help="environments to run (1)")
    text = "environments that share a process (1)"
    add("--per-process", type=int, default=1, help=text)
    text = "from which, with their number, seeds are made (that of the training)"
    add("--seed", type=int, help=text)
    return parser


def read_address(connect: str, key: str | None) -> tuple[str, rpc.ClientKeys | None]:
    """The address and the keys to connect with."""
    try:
        address = addresses.normalize(connect)
        keys = rpc.load_client(key) if key else None
    except (rpc.AddressError, rpc.KeyFileError) as error:
        raise CommandError(str(error)) from None
    if rpc.AUTO in address:
        raise CommandError(f"--connect {connect} names no port; give that of the run")
    if keys is None and not addresses.is_local(address):
        raise CommandError(
            f"--connect {connect} is another machine, which needs --key: copy "
            "client.json of the training here, from run.key_dir or LOGDIR/keys"
        )
    return address, keys


def ask_spaces(config: elements.Config) -> spacefile.Pair:
    """What the task's environment shows and takes."""
    env = environments.make_env(config)
    environments.try_reset(env, config.task)
    env.close()
    return env.obs_space, env.act_space


def write_spaces(config: elements.Config, directory: pathlib.Path) -> None:
    """Keep the spaces of the task where a training looks for them."""
    spaces = ask_spaces(config)
    directory.mkdir(parents=True, exist_ok=True)
    spacefile.write(directory, *spaces)
    print(f"Wrote {directory / spacefile.FILE}; copy it into the training's --logdir.")


def greet(
    invitation: guest.Invitation, spaces: dict[str, Any], task: str
) -> dict[str, Any] | None:
    """What the training says of itself; nothing if it is over."""
    previous = signal.signal(signal.SIGTERM, _interrupt)
    try:
        return guest.greet(invitation, spaces)
    except rpc.HandshakeError as error:
        raise CommandError(str(error)) from None
    except rpc.RemoteError as error:
        if wire.is_over(error):
            return None
        if error.kind != MismatchError.__name__:
            raise
        remedy = "give the task of the training and its --env.… settings here"
        raise ConfigError([Problem("task", task, error.message, remedy)]) from None
    finally:
        signal.signal(signal.SIGTERM, previous)


def check_rows(per_process: int, rows: int) -> None:
    """Raise if a message would hold more than the training acts on at once."""
    if per_process > rows:
        raise CommandError(
            f"--per-process {per_process} is more than the {rows} observations that "
            f"the training acts on at once: give at most {rows}, or start the training "
            "with a larger --run.envs"
        )


def make_roles(
    factory: environments.EnvFactory,
    args: argparse.Namespace,
    budget: int,
    invitation: guest.Invitation,
    spaces: dict[str, Any],
) -> list[Role]:
    """One role per process; its name is known to nobody else."""
    token = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    roles = []
    for start in range(0, args.count, args.per_process):
        count = min(args.per_process, args.count - start)
        target = (factory, f"{token}-{start}", count, invitation, spaces)
        roles.append(
            Role(
                f"env{start}",
                guest.parallel_guest,
                target,
                budget=budget,
                hang=guest.HANG,
            )
        )
    return roles


def describe(args: argparse.Namespace, seed: int) -> str:
    """Lines on what is about to start."""
    rows = {
        "Joined": args.connect,
        "Task": args.task,
        "Envs": f"{args.count}, {args.per_process} a process, seed {seed}",
    }
    return "\n".join(f"{name + ':':<10}{text}" for name, text in rows.items())


def _interrupt(number: int, frame: Any) -> NoReturn:
    raise KeyboardInterrupt
