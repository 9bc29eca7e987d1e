"""Addresses: `tcp://host:port`, `host:port`, a port of this machine or `ipc:///path`.

A port may be `{auto}`.
"""

from __future__ import annotations

import contextlib
import ipaddress
import pathlib
import secrets
import socket
import tempfile

import zmq

from embodied.rpc import errors

AUTO = "{auto}"
# The kernel's limit of a Unix socket path is 108 bytes with the final zero.
MAX_IPC_BYTES = 107
_IPC_PREFIX = "rpc-"  # Of temporary directories that hold one socket.
_given: set[int] = set()  # Ports handed out by this process, free or in use by now.


def resolve(address: str, directory: str | None = None) -> str:
    """The address with `{auto}` replaced by a free port or an unused socket path.

    A bare `{auto}` is a Unix socket in `directory` if the path is short enough there,
    else in a temporary directory of its own that only this user can enter.
    """
    if address in (AUTO, f"ipc://{AUTO}"):
        return f"ipc://{_free_path(directory)}"
    address = normalize(address)
    if AUTO not in address:
        return address
    scheme, rest = address.split("://")
    if scheme == "ipc":
        return normalize(f"ipc://{rest.replace(AUTO, secrets.token_hex(4))}")
    host, _ = _split(address)
    return f"tcp://{host}:{_free_port(host)}"


def normalize(address: str) -> str:
    """The address with its scheme; raises `AddressError` if it cannot be one."""
    if "://" not in address:
        host = "localhost:" if address.isdigit() else ""
        address = f"tcp://{host}{address}"
    scheme, rest = address.split("://", 1)
    if scheme == "ipc":
        length = len(rest.encode())
        if not rest or length > MAX_IPC_BYTES:
            raise errors.AddressError(
                f"the path of '{address}' has {length} bytes, a socket may have "
                f"{MAX_IPC_BYTES}: choose a shorter one, or '{AUTO}'"
            )
        return address
    if scheme != "tcp":
        raise errors.AddressError(f"'{address}' is neither tcp:// nor ipc://")
    host, port = _split(address)
    # Only numbers can be bound, and ::1 is not always there.
    host = "127.0.0.1" if host == "localhost" else host
    return f"tcp://{host}:{port}"


def is_local(address: str) -> bool:
    """Whether only processes of this machine can reach a normalized address."""
    if address.startswith("ipc://"):
        return True
    host = _split(address)[0]
    if not _is_number(host):
        return host == "lo"
    return ipaddress.ip_address(host.strip("[]")).is_loopback


def to_open(address: str) -> str:
    """A normalized address as a socket can be opened at: its host as a number."""
    if address.startswith("ipc://"):
        return address
    host, port = _split(address)
    interfaces = [name for _, name in socket.if_nameindex()]
    if host == "*" or host in interfaces or _is_number(host):
        return address
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise errors.AddressError(
            f"cannot resolve the host name '{host}' in '{address}' ({error})"
        ) from None
    number = str(min(found, key=lambda each: each[0] != socket.AF_INET)[4][0])
    if ipaddress.ip_address(number).is_loopback:  # As /etc/hosts of Debian says.
        raise errors.AddressError(
            f"the host name '{host}' in '{address}' resolves to {number}, which other "
            "machines cannot reach: use an IP address that they can reach"
        )
    return f"tcp://[{number}]:{port}" if ":" in number else f"tcp://{number}:{port}"


def require_openable(address: str) -> None:
    """Raise `AddressError` if no server could be opened at a normalized address now.

    A socket path is not probed, since binding would steal it from its owner.
    """
    if address.startswith("ipc://"):
        return
    number = to_open(address)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as probe:
        probe.set(zmq.IPV6, "[" in number)
        try:
            probe.bind(number)
        except zmq.ZMQError as error:
            raise errors.AddressError(f"cannot be opened here: {error}") from None


def require_local(address: str) -> None:
    """Raise if a server without keys would be open to other machines."""
    if not is_local(address):
        raise errors.AddressError(
            f"'{address}' can be reached from other machines, so it needs keys: pass "
            "keys=rpc.make_keys(directory).server, or use tcp://127.0.0.1 or ipc://"
        )


def unlink(address: str) -> None:
    """Remove what a closed server at this address left in the file system."""
    if not address.startswith("ipc://"):
        return
    path = pathlib.Path(address.removeprefix("ipc://"))
    path.unlink(missing_ok=True)
    if path.parent.name.startswith(_IPC_PREFIX):
        with contextlib.suppress(OSError):  # Not empty, or already gone.
            path.parent.rmdir()


def ensure_parent(address: str) -> None:
    """Make the directory of a socket path."""
    if address.startswith("ipc://"):
        path = pathlib.Path(address.removeprefix("ipc://"))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


def _split(address: str) -> tuple[str, str]:
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    legal = port in (AUTO, "*") or (port.isascii() and port.isdigit())
    if not host or not legal or (port.isdigit() and int(port) > 65535):
        raise errors.AddressError(f"'{address}' is not of the form tcp://host:port")
    return host, port


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _free_path(directory: str | None) -> str:
    name = f"{secrets.token_hex(4)}.sock"
    if directory is not None:
        path = str(pathlib.Path(directory).absolute() / name)
        if len(path.encode()) <= MAX_IPC_BYTES:
            return path
    return str(pathlib.Path(tempfile.mkdtemp(prefix=_IPC_PREFIX)) / name)


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # For a name or `*` ask for a port that is free everywhere.
    interface = host.strip("[]") if _is_number(host) else ""
    while True:
        with socket.socket(family) as probe:
            probe.bind((interface, 0))
            port = probe.getsockname()[1]
        if port not in _given:
            _given.add(port)
            return port
