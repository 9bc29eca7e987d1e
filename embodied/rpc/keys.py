"""CURVE key pairs of a run: made once, kept in files that only their owner can read.

The server proves who it is with its pair, and lets in only clients that have the run's
client pair. Copy `client.json` (not `server.json`) to machines that run environments.
"""

from __future__ import annotations

import json
import os
import pathlib
import secrets
import stat
from typing import NamedTuple

import zmq

from embodied.rpc import errors

SERVER_FILE = "server.json"
CLIENT_FILE = "client.json"


class ServerKeys(NamedTuple):
    """What a server needs; each key is 40 characters of Z85."""

    public: str
    secret: str
    clients: tuple[str, ...]  # Public keys that are let in.

    def __repr__(self) -> str:
        return f"ServerKeys(public={self.public!r}, secret=...)"


class ClientKeys(NamedTuple):
    """What a client needs; each key is 40 characters of Z85."""

    public: str
    secret: str
    server: str  # Public key of the server, so that nobody can pose as it.

    def __repr__(self) -> str:
        return f"ClientKeys(public={self.public!r}, secret=...)"


class Keys(NamedTuple):
    """All keys of a run."""

    server: ServerKeys
    client: ClientKeys


def make_keys(directory: str | os.PathLike | None = None) -> Keys:
    """New keys, or those a run already has in `directory`; without one, in memory.

    Safe to call from several processes at once: all get the same keys.
    """
    keys = _generate()
    if directory is None:
        return keys
    path = pathlib.Path(directory)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The client's file follows from the server's, so the first server file decides.
    server = dict(keys.server._asdict(), client_secret=keys.client.secret)
    _create(path / SERVER_FILE, server)
    stored = _read(path / SERVER_FILE, {"public", "secret", "clients", "client_secret"})
    client_public = stored["clients"][0]
    client = ClientKeys(client_public, stored["client_secret"], stored["public"])
    _create(path / CLIENT_FILE, client._asdict())
    return Keys(load_server(path), load_client(path))


def load_server(directory: str | os.PathLike) -> ServerKeys:
    """The server's keys that `make_keys` stored."""
    path = pathlib.Path(directory) / SERVER_FILE
    stored = _read(path, {"public", "secret", "clients", "client_secret"})
    return ServerKeys(stored["public"], stored["secret"], tuple(stored["clients"]))


def load_client(directory: str | os.PathLike) -> ClientKeys:
    """The client's keys that `make_keys` stored; also by the path of the file."""
    path = pathlib.Path(directory)
    path = path if path.suffix == ".json" else path / CLIENT_FILE
    return ClientKeys(**_read(path, {"public", "secret", "server"}))


def _generate() -> Keys:
    if not zmq.has("curve"):
        raise errors.KeyFileError(
            "this build of ZeroMQ has no CURVE: install the pyzmq wheel from PyPI"
        )
    server_public, server_secret = (key.decode() for key in zmq.curve_keypair())
    client_public, client_secret = (key.decode() for key in zmq.curve_keypair())
    return Keys(
        ServerKeys(server_public, server_secret, (client_public,)),
        ClientKeys(client_public, client_secret, server_public),
    )


def _create(path: pathlib.Path, content: dict) -> None:
    """Write a file whole or, if it exists, not at all; only its owner can read it."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(content, file)
        os.link(temporary, path)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def _read(path: pathlib.Path, fields: set[str]) -> dict:
    try:
        mode = path.stat().st_mode
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise errors.KeyFileError(f"cannot read keys from {path}: {error}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise errors.KeyFileError(
            f"other users may read the keys in {path}: run chmod 600 {path}, and make "
            "new keys if somebody could have"
        )
    if not isinstance(content, dict) or set(content) != fields:
        raise errors.KeyFileError(f"{path} does not hold the fields {sorted(fields)}")
    return content
