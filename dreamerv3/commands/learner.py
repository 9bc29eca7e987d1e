"""`dreamerv3 learner`: join a running training as one more host of its learner."""

from __future__ import annotations

import argparse
import importlib.util
import secrets
import socket
from collections.abc import Sequence
from typing import Any

from dreamerv3 import config as settings
from dreamerv3.commands.base import CommandError
from dreamerv3.commands.env import read_address
from embodied.core import spacefile
from embodied.run.parallel import ensemble, placed
from embodied.run.parallel.guest import Invitation
from embodied.run.supervisor import Role

DESCRIPTION = """\
Compute a share of every update of a training that runs elsewhere. Needs neither the
settings of the training nor its environments, only its address and its client key, and
as many devices as the host of the training uses. Waits for the training, joins again
after it was restarted, and ends when it is over.
"""
EPILOG = """\
example, on the second of two hosts:
  dreamerv3 learner --connect 10.0.0.5:7004 --key client.json

where 10.0.0.5 runs
  dreamerv3 --task atari_pong --run.learners 2 --run.learner_addr tcp://10.0.0.5:7004
"""
BUDGET = 20  # Failures in five minutes: each restart of the training is one.
HANG = 900.0  # Seconds for an update, of which the first is compiled.
GRACE = ensemble.STOP_AFTER + 10.0  # Seconds to end.


def main(argv: Sequence[str]) -> None:
    """Run the process that learns."""
    args = make_parser().parse_args(argv)
    if not importlib.util.find_spec("jax"):
        raise CommandError("needs JAX: install the whole package, not dreamerv3-env")
    invitation = Invitation(*read_address(args.connect, args.key))
    name = f"{socket.gethostname()}-{secrets.token_hex(4)}"
    print(f"Joins:    {args.connect} as {name}", flush=True)
    target = (make_agent, name, invitation)
    learner = Role(
        "learner",
        ensemble.parallel_follower,
        target,
        budget=BUDGET,
        hang=HANG,
        start=HANG,
        grace=GRACE,
        essential=True,
    )
    placed.supervise([learner])


def make_agent(values: settings.Flat, spaces: spacefile.Pair) -> Any:
    """The agent of the training, from the settings it sent."""
    from dreamerv3 import main as training  # Imports what only training needs.

    return training.make_agent(settings.to_config(values), *spaces, quiet=True)


def make_parser() -> argparse.ArgumentParser:
    """The flags of the command."""
    parser = argparse.ArgumentParser(
        "dreamerv3 learner",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "run.learner_addr there"
    add("--connect", metavar="HOST:PORT", required=True, help=text)
    add("--key", metavar="FILE", help="client.json of the training, or its directory")
    return parser
