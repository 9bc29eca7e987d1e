"""Nobody gets in, and nobody who tries disturbs those who are."""

import json
import os
import random
import socket
import struct
import threading

import numpy as np
import pytest
import zmq

from embodied import rpc
from embodied.rpc import protocol


def echo(value):
    return value


def port(server):
    host, number = server.address.removeprefix("tcp://").split(":")
    return host, int(number)


@pytest.fixture
def raw(serve):
    """A dealer without our client, connected to a server."""
    server = serve(("echo", echo), max_bytes=1 << 20)
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.connect(server.address)
    yield server, dealer
    context.destroy(0)


def test_right_keys(serve, connect, tmp_path):
    keys = rpc.make_keys(tmp_path)
    server = serve(("echo", echo), address="localhost:{auto}", keys=keys.server)
    client = connect(server, keys=rpc.load_client(tmp_path))
    array = np.arange(1_000_000)
    np.testing.assert_array_equal(client.echo(array).result(), array)
    assert server.stats()["denied"] == 0


def whoami(client, value):
    return client, value


def test_a_function_may_ask_which_key_its_caller_has(connect):
    keys = rpc.make_keys(clients=("core", "env"))
    for given in (keys.server, None):
        server = rpc.Server("localhost:{auto}", keys=given)
        server.bind("whoami", whoami, identify=True)
        server.start(block=False)
        for name, own in keys.clients.items():
            client = connect(server, keys=own if given else None)
            found = client.call("whoami", (3,)).result()
            assert list(found) == [name if given else "", 3]
        server.close()


@pytest.mark.parametrize("kind", ["client", "server", "none"])
def test_wrong_keys(serve, connect, kind, until):
    keys, other = rpc.make_keys(), rpc.make_keys()
    server = serve(("echo", echo), address="localhost:{auto}", keys=keys.server)
    wrong = {
        "client": other.client._replace(server=keys.server.public),
        "server": keys.client._replace(server=other.server.public),
        "none": None,
    }[kind]
    # Only one whose own key is wrong is told so; the others have to give up.
    patience = 30 if kind == "client" else 1
    with pytest.raises((rpc.HandshakeError, TimeoutError)):
        rpc.Client(server.address, keys=wrong, connect_timeout=patience)
    until(lambda: server.stats()["handshakes_failed"] > 0)
    assert (server.stats()["denied"] > 0) == (kind == "client")
    until(lambda: server.stats()["connections"] == 0)
    client = connect(server, keys=keys.client)
    assert client.echo(1).result() == 1


def test_wrong_client_key_is_told_quickly(serve):
    keys, other = rpc.make_keys(), rpc.make_keys()
    server = serve(("echo", echo), address="localhost:{auto}", keys=keys.server)
    wrong = other.client._replace(server=keys.server.public)
    with pytest.raises(rpc.HandshakeError, match="keys do not match"):
        rpc.Client(server.address, keys=wrong, connect_timeout=60)


def test_keys_of_another_run_are_told_from_an_absent_server(serve, until):
    """Nobody says that they are wrong, but somebody ends the connections."""
    server = serve(
        ("echo", echo), address="localhost:{auto}", keys=rpc.make_keys().server
    )
    keys = rpc.make_keys().client
    absent = rpc.Client(
        rpc.resolve("localhost:{auto}"), keys=keys, connect_timeout=None
    )
    client = rpc.Client(server.address, keys=keys, connect_timeout=None)
    until(lambda: client.reach(0.05) or client.turned_away())
    assert client.turned_away()
    assert not absent.reach(0.5)
    assert not absent.turned_away()
    client.close()
    absent.close()


def test_keys_for_a_server_without(serve):
    server = serve(("echo", echo), address="localhost:{auto}")
    with pytest.raises((rpc.HandshakeError, TimeoutError)):
        rpc.Client(server.address, keys=rpc.make_keys().client, connect_timeout=1)


def test_key_files(tmp_path):
    keys = rpc.make_keys(tmp_path / "keys")
    assert rpc.make_keys(tmp_path / "keys") == keys  # A run that resumes keeps them.
    assert rpc.load_server(tmp_path / "keys") == keys.server
    for path in (tmp_path / "keys").iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
    assert keys.client.secret not in repr(keys)
    assert keys.server.secret not in repr(keys)
    assert "secret" in json.loads((tmp_path / "keys" / "client.json").read_text())
    os.chmod(tmp_path / "keys" / "client.json", 0o644)
    with pytest.raises(rpc.KeyFileError, match="chmod 600"):
        rpc.load_client(tmp_path / "keys")
    with pytest.raises(rpc.KeyFileError, match="cannot read"):
        rpc.load_server(tmp_path)


def test_a_server_admits_the_clients_that_it_names(serve, connect, tmp_path):
    keys = rpc.make_keys(tmp_path, ["core", "env"])
    assert rpc.load_server(tmp_path) == keys.server
    admitted = rpc.load_server(tmp_path, "core")
    server = serve(("echo", echo), address="localhost:{auto}", keys=admitted)
    assert connect(server, keys=rpc.load_client(tmp_path, "core")).echo(1).result() == 1
    with pytest.raises(rpc.HandshakeError, match="keys do not match"):
        rpc.Client(server.address, keys=keys.clients["env"], connect_timeout=60)
    with pytest.raises(rpc.KeyFileError, match="keys of core, env but not of learner"):
        rpc.load_server(tmp_path, "learner")


def test_keys_of_the_first_release_are_rejected(tmp_path):
    pair = {"public": "p", "secret": "s"}
    path = tmp_path / "server.json"
    path.write_text(json.dumps({**pair, "clients": ["c"], "client_secret": "t"}))
    path.chmod(0o600)
    with pytest.raises(rpc.KeyFileError, match=r"of release 0\.1.*dreamerv3 keys"):
        rpc.make_keys(tmp_path)


def test_garbage_messages(raw, connect, until):
    server, dealer = raw
    rng = random.Random(0)
    for _ in range(1000):
        parts = [rng.randbytes(rng.randint(0, 60)) for _ in range(rng.randint(1, 5))]
        dealer.send_multipart(parts)
    until(lambda: server.stats()["malformed"] >= 1000)
    assert connect(server).echo(1).result() == 1


def test_messages_that_are_almost_right(raw, connect, until):
    server, dealer = raw
    good = protocol.pack(protocol.REQUEST, 1, b"echo", b"\x92\x91\x01\x80")[0]
    bad = [
        [good, b"a frame too many"],
        [good[:1] + b"x" + good[2:]],
        [good[:18]],
        [protocol.pack(protocol.REPLY, 5)[0]],
        [protocol.pack(protocol.ERROR, 5, payload=b"\x91\xa1x")[0]],
        [good] + [b""] * 6000,
    ]
    for parts in bad:
        dealer.send_multipart(parts)
    until(lambda: server.stats()["malformed"] >= len(bad))
    # Those with a good header are answered with an error.
    for number, payload in enumerate((b"\xc1", b"\x90", b"\x92\x01\x02"), 1):
        args = (protocol.REQUEST, number, b"echo", payload)
        dealer.send_multipart(protocol.pack(*args))
        assert dealer.poll(20_000)
        assert protocol.parse(dealer.recv()).kind == protocol.ERROR
    dealer.send_multipart(protocol.pack(protocol.REQUEST, 9, b"\xff\0", b""))
    assert dealer.poll(20_000)
    assert protocol.parse(dealer.recv()).kind == protocol.ERROR
    assert server.stats()["unknown"] == 1
    assert connect(server).echo(1).result() == 1


def test_oversized_frames(raw, connect, until):
    server, dealer = raw
    header = protocol.pack(protocol.REQUEST, 1, b"echo")[0]
    dealer.send_multipart([header, bytes(2 << 20)])
    until(lambda: server.stats()["connections"] == 0 or server.stats()["malformed"])
    dealer.send_multipart([header] + [bytes(1 << 18)] * 6)  # Too large as a whole.
    until(lambda: server.stats()["malformed"])
    assert connect(server).echo(1).result() == 1


def test_raw_bytes_probes_and_scans(serve, connect, until):
    server = serve(("echo", echo), address="localhost:{auto}")
    client = connect(server)
    rng = random.Random(1)
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
    huge = greeting + b"\x02" + struct.pack(">Q", 1 << 62)
    probes = [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01" + bytes(200),
        greeting,
        huge,
    ]
    for data in probes + [rng.randbytes(rng.randint(1, 500)) for _ in range(200)]:
        with socket.create_connection(port(server)) as probe:
            probe.sendall(data)
        assert client.echo(1).result() == 1
    until(lambda: server.stats()["connections"] == 1)
    stats = server.stats()
    assert stats["handshakes_failed"] + stats["malformed"] > 0


def test_half_open_connections(serve, connect, until):
    server = serve(("echo", echo), address="localhost:{auto}")
    silent = [socket.create_connection(port(server)) for _ in range(50)]
    for each in silent[::2]:
        each.sendall(b"\xff\0\0")
    client = connect(server)
    for i in range(20):
        assert client.echo(i).result() == i
    for each in silent:
        each.close()
    until(lambda: server.stats()["connections"] == 1)


def test_a_thousand_connections(serve, connect, until):
    server = serve(("echo", echo), address="localhost:{auto}")
    client = connect(server)
    client.echo(0).result()
    before = len(os.listdir("/proc/self/fd"))
    context = zmq.Context()
    context.set(zmq.MAX_SOCKETS, 1100)
    many = [context.socket(zmq.DEALER) for _ in range(1000)]
    request = protocol.pack(protocol.REQUEST, 1, b"echo", b"\x92\x91\x01\x80")
    for each in many:
        each.connect(server.address)
        each.send_multipart(request)
    for each in many:
        assert each.poll(60_000)
        assert protocol.parse(each.recv()).kind == protocol.REPLY
    assert server.stats()["connections"] == 1001
    assert client.echo(1).result() == 1
    context.destroy(0)
    until(lambda: server.stats()["connections"] == 1)
    until(lambda: len(os.listdir("/proc/self/fd")) <= before)
    assert client.echo(2).result() == 2


def test_idle_server_sleeps(serve, connect, until):
    server = serve(("echo", echo))
    client = connect(server)
    client.echo(1).result()
    start = os.times()
    threading.Event().wait(1.0)  # The time over which it is measured.
    end = os.times()
    used = end.user + end.system - start.user - start.system
    assert used < 0.02
