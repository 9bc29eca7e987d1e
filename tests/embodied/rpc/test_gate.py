"""Connections that lead nowhere leave descriptors to files and to those at work."""

import os
import resource
import socket
import subprocess
import sys

import pytest

from embodied import rpc
from embodied.core import machine
from embodied.rpc import channel, gate

LIMIT = 600  # Descriptors of this process; connections get less than half of them.
# Opens connections without a word, half of them with the beginning of one.
IDLE = """
import socket, sys, time
host, port, amount = sys.stdin.readline().split()
held = [socket.socket() for _ in range(int(amount))]
for index, each in enumerate(held):
    each.setblocking(False)
    each.connect_ex((host, int(port)))
    if index % 2:
        try:
            each.send(b"\\xff\\0\\0")
        except OSError:
            pass
    if index % 20 == 0:
        time.sleep(0.005)  # So that they are accepted and not put off.
print("held", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def hold():
    """Starts another process that holds idle connections to an address."""
    started = []

    def start(address, amount):
        place = address.removeprefix("tcp://").replace(":", " ")
        process = started[0]
        process.stdin.write(f"{place} {amount}\n")
        process.stdin.flush()
        assert process.stdout.readline() == "held\n"
        return process

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started.append(subprocess.Popen([sys.executable, "-c", IDLE], **pipes))
    yield start
    with started[0] as process:
        process.kill()


@pytest.fixture
def few_descriptors(hold, monkeypatch):
    """A low limit for this process, but not for the one that holds connections."""
    monkeypatch.setattr(machine, "MAX_FILES", LIMIT)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def length(value):
    return len(value)


@pytest.mark.process
@pytest.mark.usefixtures("few_descriptors")
def test_idle_connections_leave_descriptors(serve, connect, hold, until, monkeypatch):
    monkeypatch.setattr(channel, "HANDSHAKE_TIMEOUT", 2000)
    keys = rpc.make_keys()
    address = "localhost:{auto}"
    server = serve(("length", length), address=address, keys=keys.server)
    client = connect(server, keys=keys.client)
    idle = hold(server.address, 2 * LIMIT)
    until(lambda: server.stats()["accept_paused"] > 0)
    while server.stats()["handshakes_failed"] < LIMIT // 3:  # Those dropped in time.
        files = [open(os.devnull) for _ in range(50)]  # noqa: SIM115
        assert max(file.fileno() for file in files) < LIMIT
        for file in files:
            file.close()
        assert client.length([1, 2]).result() == 2
    idle.kill()
    late = connect(server, keys=keys.client, connect_timeout=60)
    assert late.length([1]).result() == 1
    until(lambda: server.stats()["connections"] == 2)


def test_a_gate_opens_when_there_is_room(monkeypatch):
    guarded = gate.Gate()
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
        guarded.guard(listener.fileno())
        guarded.admit(gate.last_number() - 1)
        assert not guarded.closed
        guarded.admit(gate.last_number())
        assert (guarded.closed, guarded.closings) == (True, 1)
        client.settimeout(0.2)
        with pytest.raises(TimeoutError):
            client.connect(listener.getsockname())
        monkeypatch.setattr(gate, "has_room", lambda descriptor: False)
        assert guarded.look() > 0
        monkeypatch.undo()
        guarded._next_look = 0
        assert guarded.look() is None
        socket.create_connection(listener.getsockname()).close()
        guarded.close()


def test_sockets_in_the_file_system_have_no_gate(serve):
    server = serve(("length", length))
    guarded = server._monitor.gate
    guarded.admit(1 << 30)
    assert not guarded.closed
