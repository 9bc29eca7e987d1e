"""CURVE key pairs of a run: made once, kept in files that only their owner can read.

A server proves its identity with its pair and admits only clients whose keys it knows.
Clients have names, of which a server admits some: copy to another machine the file of
the client that runs there, `NAME.json`, and `server.json` only if it serves.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import zmq

from embodied.core import files
from embodied.rpc import errors

SERVER_FILE = "server.json"
REMEDY = "copy it from where it was made, or make keys anew with `dreamerv3 keys`"
CLIENT = "client"  # Name of the only client, if no names are given.


class ServerKeys(NamedTuple):
    """What a server needs; each key is 40 characters of Z85."""

    public: str
    secret: str
    clients: tuple[str, ...]  # Public keys that are admitted.
    names: tuple[str, ...] = ()  # Of these clients, if known.

    def __repr__(self) -> str:
        return f"ServerKeys(public={self.public!r}, secret=...)"


class ClientKeys(NamedTuple):
    """What a client needs; each key is 40 characters of Z85."""

    public: str
    secret: str
    server: str  # Public key of the server, so that no other can pose as it.

    def __repr__(self) -> str:
        return f"ClientKeys(public={self.public!r}, secret=...)"


class Keys(NamedTuple):
    """All keys of a run."""

    server: ServerKeys  # Admits all clients.
    clients: dict[str, ClientKeys]

    @property
    def client(self) -> ClientKeys:
        """The keys of the only client."""
        (keys,) = self.clients.values()
        return keys


def make_keys(
    directory: str | os.PathLike | None = None, clients: Sequence[str] = (CLIENT,)
) -> Keys:
    """New keys, or those a run already has in `directory`; without one, in memory.

    Safe to call from several processes at once: all get the same keys.
    """
    made = _generate(clients)
    if directory is None:
        return _assemble(made)
    path = pathlib.Path(directory)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The clients' files follow from the server's, so the first server file decides.
    _create(path / SERVER_FILE, made)
    keys = _assemble(_read_server(path))
    for name, client in keys.clients.items():
        _create(client_file(path, name), client._asdict())
    return keys


def client_file(directory: str | os.PathLike, name: str = CLIENT) -> pathlib.Path:
    """Where the keys of a client are kept."""
    return pathlib.Path(directory) / f"{name}.json"


def load_server(directory: str | os.PathLike, *admitted: str) -> ServerKeys:
    """The server's keys, which admit the named clients; all, if none is named."""
    stored = _read_server(pathlib.Path(directory))
    names = admitted or tuple(stored["clients"])
    missing = [name for name in names if name not in stored["clients"]]
    if missing:
        raise errors.KeyFileError(
            f"{directory} has keys of {', '.join(stored['clients'])} but not of "
            f"{', '.join(missing)}: make new keys in another directory"
        )
    public = tuple(stored["clients"][name]["public"] for name in names)
    return ServerKeys(stored["public"], stored["secret"], public, names)


def load_client(directory: str | os.PathLike, name: str = CLIENT) -> ClientKeys:
    """The keys of a client; also by the path of the file."""
    path = pathlib.Path(directory)
    path = path if path.suffix == ".json" else client_file(path, name)
    return ClientKeys(**_read(path, {"public", "secret", "server"}))


def _generate(clients: Sequence[str]) -> dict[str, Any]:
    """The content of a server's file."""
    if not zmq.has("curve"):
        raise errors.KeyFileError(
            "this build of ZeroMQ has no CURVE: install the pyzmq wheel from PyPI"
        )
    return {**_pair(), "clients": {name: _pair() for name in clients}}


def _pair() -> dict[str, str]:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return {"public": public, "secret": secret}


def _assemble(stored: dict[str, Any]) -> Keys:
    pairs = stored["clients"]
    public = tuple(pair["public"] for pair in pairs.values())
    clients = {n: ClientKeys(**p, server=stored["public"]) for n, p in pairs.items()}
    server = ServerKeys(stored["public"], stored["secret"], public, tuple(pairs))
    return Keys(server, clients)


def _read_server(directory: pathlib.Path) -> dict[str, Any]:
    path = directory / SERVER_FILE
    stored = _read(path, {"public", "secret", "clients"}, {"client_secret"})
    if not isinstance(stored["clients"], dict):
        raise errors.KeyFileError(
            f"{path} is of release 0.1, whose only client key allowed everything: "
            f"remove {directory} and make new keys with `dreamerv3 keys {directory}`"
        )
    return stored


def _create(path: pathlib.Path, content: dict) -> None:
    """Write a file that only its owner can read, unless it exists."""
    files.create(path, json.dumps(content).encode(), mode=0o600)


def _read(
    path: pathlib.Path, fields: set[str], former: Collection[str] = ()
) -> dict[str, Any]:
    try:
        mode = path.stat().st_mode
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise errors.KeyFileError(
            f"cannot read keys from {path}: {error}; {REMEDY}"
        ) from None
    if stat.S_IMODE(mode) & 0o077:
        raise errors.KeyFileError(
            f"other users may read the keys in {path}: run chmod 600 {path}, and make "
            "new keys if they could have"
        )
    if not isinstance(content, dict) or set(content) - set(former) != fields:
        raise errors.KeyFileError(
            f"{path} does not hold the fields {sorted(fields)}; {REMEDY}"
        )
    return content
