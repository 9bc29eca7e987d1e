"""Keys of a run that other machines can reach: one kind for each kind of client."""

from __future__ import annotations

import pathlib

from embodied import rpc
from embodied.run.settings import RunSettings

# Clients of a run over a network; each has a key of its own (see docs/rpc.md).
CORE = "core"  # Agent, replay, logger and launcher: calls every server.
ENV = "env"  # Environments: call coordinator and actor.
LEARNER = "learner"  # Further hosts of the learner: call coordinator and first host.
CLIENTS = (CORE, ENV, LEARNER)


def directory_of(args: RunSettings) -> pathlib.Path:
    """Where the keys of a run are kept."""
    return pathlib.Path(args.key_dir or f"{args.logdir}/keys").expanduser()


def client_keys(args: RunSettings, name: str = CORE) -> rpc.ClientKeys | None:
    """The keys to connect with, unless the run stays on this machine."""
    directory = directory_of(args)
    return rpc.load_client(directory, name) if directory.exists() else None


def server_keys(args: RunSettings, *admitted: str) -> rpc.ServerKeys | None:
    """The keys to serve with, unless the run stays on this machine.

    They admit the core of the run and the other clients that are named.
    """
    directory = directory_of(args)
    return rpc.load_server(directory, CORE, *admitted) if directory.exists() else None
