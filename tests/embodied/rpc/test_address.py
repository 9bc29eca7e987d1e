"""Addresses are complete, short enough and not open to strangers."""

import os
import socket

import pytest

from embodied import rpc
from embodied.rpc import address


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("localhost:4000", "tcp://127.0.0.1:4000"),
        ("4000", "tcp://127.0.0.1:4000"),
        ("tcp://localhost:4000", "tcp://127.0.0.1:4000"),
        ("tcp://10.1.2.3:4000", "tcp://10.1.2.3:4000"),
        ("ipc:///tmp/x", "ipc:///tmp/x"),
    ],
)
def test_resolve(given, expected):
    assert rpc.resolve(given) == expected


def test_auto_ports_are_free_and_distinct():
    found = [rpc.resolve("localhost:{auto}") for _ in range(50)]
    assert len(set(found)) == 50
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", int(found[0].rpartition(":")[2])))


def test_auto_path(tmp_path):
    path = rpc.resolve("{auto}").removeprefix("ipc://")
    assert os.stat(os.path.dirname(path)).st_mode & 0o777 == 0o700
    assert rpc.resolve("{auto}", str(tmp_path)).startswith(f"ipc://{tmp_path}")
    long = rpc.resolve("{auto}", str(tmp_path / ("x" * 100)))
    assert len(long) < address.MAX_IPC_BYTES
    assert rpc.resolve(f"ipc://{tmp_path}/a{{auto}}") != rpc.resolve(
        f"ipc://{tmp_path}/a{{auto}}"
    )


@pytest.mark.parametrize(
    "wrong",
    ["nonsense", "tcp://host", "http://x:80", "ipc://", "h:99999", "99999", ":1"],
)
def test_malformed_addresses(wrong):
    with pytest.raises(rpc.AddressError):
        rpc.resolve(wrong)


def name_stands_for(monkeypatch, number):
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (number, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: found)


def test_a_server_can_be_opened_by_the_name_of_the_machine(monkeypatch):
    name_stands_for(monkeypatch, "10.0.0.5")
    assert address.to_open("tcp://my-machine:4000") == "tcp://10.0.0.5:4000"


def test_a_name_that_others_cannot_reach_is_refused(monkeypatch):
    """Debian calls a machine 127.0.1.1 by its own name."""
    name_stands_for(monkeypatch, "127.0.1.1")
    with pytest.raises(rpc.AddressError, match="which other machines cannot reach"):
        address.to_open("tcp://my-machine:4000")


def test_an_unknown_name_is_told(monkeypatch):
    def nobody(*args, **kwargs):
        raise socket.gaierror("Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody)
    with pytest.raises(rpc.AddressError, match="my-machine"):
        address.to_open("tcp://my-machine:4000")


@pytest.mark.parametrize("same", ["tcp://10.1.2.3:1", "tcp://*:1", "tcp://lo:1"])
def test_numbers_and_interfaces_are_opened_as_they_are(same):
    assert address.to_open(same) == same


def test_long_path_is_named():
    with pytest.raises(rpc.AddressError, match="107"):
        rpc.Server(f"ipc:///tmp/{'x' * 120}")


@pytest.mark.parametrize(
    "open_address", ["tcp://0.0.0.0:{auto}", "tcp://*:4000", "10.0.0.1:1", "[::]:1"]
)
def test_other_interfaces_need_keys(open_address):
    with pytest.raises(rpc.AddressError, match="needs keys"):
        rpc.Server(open_address)
    rpc.Server(open_address, keys=rpc.make_keys().server)


def test_address_in_use(serve):
    server = serve(address="localhost:{auto}")
    with pytest.raises(rpc.AddressError, match="in use"):
        rpc.Server(server.address).start(block=False)
