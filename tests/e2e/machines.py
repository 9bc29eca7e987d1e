"""Machines of this machine: network namespaces joined by a cable, and a small disk."""

import contextlib
import errno
import os
import pathlib
import subprocess
from typing import NamedTuple


class Machine(NamedTuple):
    """Where a command runs."""

    prefix: tuple[str, ...]  # Of the command.
    address: str


class Cable:
    """What joins two machines; it can be unplugged."""

    def __init__(self, namespace: str, link: str):
        self._link = f"ip -n {namespace} link set {link}"

    def unplug(self) -> None:
        shell(f"{self._link} down")

    def plug_in(self) -> None:
        shell(f"{self._link} up")


class Network(NamedTuple):
    """Two machines and what joins them."""

    machines: list[Machine]
    cable: Cable


def shell(command):
    subprocess.run(command.split(), check=True, capture_output=True)


@contextlib.contextmanager
def namespaces():
    """Two machines joined by a cable; raises if this is not allowed here."""
    pid = os.getpid()
    names = [f"dreamer{pid}{side}" for side in "ab"]
    links = [f"dr{pid % 10**6}{side}" for side in "ab"]
    hosts = ["10.213.77.1", "10.213.77.2"]
    with contextlib.ExitStack() as stack:
        for name in names:
            shell(f"ip netns add {name}")
            stack.callback(shell, f"ip netns del {name}")
        shell(f"ip link add {links[0]} type veth peer name {links[1]}")
        for name, link, host in zip(names, links, hosts, strict=True):
            shell(f"ip link set {link} netns {name}")
            shell(f"ip -n {name} addr add {host}/30 dev {link}")
            shell(f"ip -n {name} link set {link} up")
            shell(f"ip -n {name} link set lo up")
        prefixes = [("ip", "netns", "exec", name) for name in names]
        machines = [Machine(p, host) for p, host in zip(prefixes, hosts, strict=True)]
        yield Network(machines, Cable(names[0], links[0]))


class Disk:
    """A file system in memory that a large file can fill."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._filler = path / "filler"

    def fill(self) -> None:
        """Leave no room for a single byte."""
        block = bytes(1 << 16)
        with self._filler.open("wb", buffering=0) as file:
            try:
                while file.write(block):
                    pass
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise

    def free(self) -> None:
        self._filler.unlink()


@contextlib.contextmanager
def small_disk(path: pathlib.Path, megabytes: int):
    """A disk of its own at a path; raises if this is not allowed here."""
    path.mkdir(parents=True)
    shell(f"mount -t tmpfs -o size={megabytes}m tmpfs {path}")
    try:
        yield Disk(path)
    finally:
        shell(f"umount --lazy {path}")
