"""Strangers at the ports of a run that is under way: it goes on and counts them."""

import json
import random
import socket
import struct
import sys

import numpy as np
import psutil
import pytest
import zmq

from embodied import rpc
from embodied.rpc import protocol
from embodied.run.parallel import routing, run_keys
from tests.e2e.command import Command, ports, rows, wait_for

pytestmark = pytest.mark.slow

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
ECHO = (protocol.REQUEST, 1, b"no_such_method", b"\x92\x90\x80")


def split(address):
    host, port = address.removeprefix("tcp://").split(":")
    return host, int(port)


def scan(address, rng):
    """A port scan, health probes, other protocols, random and oversized bytes."""
    probes = [b"", b"GET /healthz HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(200)]
    probes += [GREETING, GREETING + b"\x02" + struct.pack(">Q", 1 << 62)]
    probes += [rng.randbytes(rng.randint(1, 2000)) for _ in range(50)]
    for data in probes:
        with socket.create_connection(split(address)) as probe:
            probe.sendall(data)


def send_nonsense(address, rng):
    """Messages of ZeroMQ that are none of ours, and calls of what is not there."""
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        for _ in range(200):
            parts = [rng.randbytes(rng.randint(0, 60)) for _ in range(3)]
            dealer.send_multipart(parts)
        dealer.send_multipart(protocol.pack(*ECHO))
        assert dealer.poll(20_000), "nobody answers"


def call_wrongly(addresses):
    """Clients of ours with arguments of the wrong type."""
    wrong = {"act": 5, "add_batch": {"reward": "much"}, "add": [1], "tran": {"x": 1}}
    places = {"act": "actor", "add_batch": "replay", "add": "logger", "tran": "logger"}
    for method, argument in wrong.items():
        client = rpc.Client(addresses[places[method]])
        error = client.call(method, (argument,)).exception()
        assert isinstance(error, rpc.RemoteError), method
        client.close()
    client = rpc.Client(addresses["actor"])
    obs = {routing.ENVID: np.zeros(1, np.int32), "image": np.zeros(3)}
    assert "missing keys" in str(client.act(obs).exception())
    client.close()


def hold(address, amount):
    """Connections that say nothing, or a little."""
    held = [socket.create_connection(split(address)) for _ in range(amount)]
    for each in held[::2]:
        each.sendall(b"\xff\0\0")
    return held


def memory(pids):
    return {name: psutil.Process(pid).memory_info().rss for name, pid in pids.items()}


@pytest.fixture
def run(tmp_path):
    flags = ["--configs", "debug", "--random_agent", "--task", "dummy_disc"]
    addresses = ports()
    command = Command(
        tmp_path / "out", *flags, *addresses, "--logdir", tmp_path / "run"
    )
    names = ("actor", "replay", "logger")
    yield command, dict(zip(names, addresses[1::2], strict=True)), tmp_path / "run"
    command.kill()


def test_strangers_disturb_nobody(run):
    command, addresses, logdir = run
    scores, rng = logdir / "scores.jsonl", random.Random(0)

    def wait_more(amount=8):
        target = len(rows(scores)) + amount
        wait_for(lambda: len(rows(scores)) >= target, "episodes", [command])

    def attack():
        for address in addresses.values():
            scan(address, rng)
            send_nonsense(address, rng)
        call_wrongly(addresses)
        return [each for address in addresses.values() for each in hold(address, 333)]

    wait_more()
    roles = json.loads((logdir / "roles.json").read_text())
    pids = {name: role["pid"] for name, role in roles.items()}
    held = attack()
    wait_more()
    before = memory(pids)
    held += attack()
    wait_more()
    for each in held:
        each.close()
    grown = {k: v - before[k] for k, v in memory(pids).items()}
    assert max(grown.values()) < 64 << 20, grown
    # A row that was written after the last attack has all counts.
    count = len(rows(logdir / "metrics.jsonl"))
    wait_for(lambda: len(rows(logdir / "metrics.jsonl")) > count + 3, "rows", [command])
    newest = {}
    for row in rows(logdir / "metrics.jsonl"):
        newest |= row
    for name in addresses:
        assert newest[f"server/{name}/malformed"] >= 400, name
        assert newest[f"server/{name}/unknown"] >= 2, name
        assert newest[f"server/{name}/handshakes_failed"] > 0, name
    assert json.loads((logdir / "roles.json").read_text()) == roles, "restarts"
    assert command.stop() == 0, command.text()
    assert "Traceback" not in command.text()


HOLD = """
import sys, time
from tests.e2e.test_strangers import hold
held = [each for address in sys.argv[1:] for each in hold(address, 1300)]
print("held", flush=True)
time.sleep(600)
"""
# Runs a command that may open 1,024 files and no more.
FEW_FILES = ("sh", "-c", 'ulimit -n 1024 && exec "$@"', "sh")


def test_idle_connections_do_not_exhaust_descriptors(tmp_path):
    """More than the descriptors of launcher and agent, at both of their ports."""
    flags = ["--configs", "debug", "--random_agent", "--task", "dummy_disc"]
    flags += ["--logdir", tmp_path / "run", "--run.key_dir", tmp_path / "keys"]
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    names = ("actor", "coordinator")
    places = [rpc.resolve("tcp://127.0.0.1:{auto}") for _ in names]
    for name, place in zip(names, places, strict=True):
        flags += [f"--run.{name}_addr", place]
    flags += ["--run.save_every", 1]
    command = Command(tmp_path / "out", *flags, prefix=FEW_FILES)
    scores = tmp_path / "run" / "scores.jsonl"
    wait_for(lambda: len(rows(scores)) >= 4, "episodes", [command])
    roles = (tmp_path / "run" / "roles.json").read_text()
    program = (sys.executable, "-c", HOLD)
    idle = Command(tmp_path / "idle", *places, program=program)

    def counted(name):
        found = rows(tmp_path / "run" / "metrics.jsonl")
        return max(row.get(f"server/actor/{name}", 0) for row in found)

    try:
        both = [command, idle]
        wait_for(lambda: counted("accept_paused") > 0, "pause", both)
        wait_for(lambda: counted("handshakes_failed") >= 1300, "drops", both, 300)
        target = len(rows(scores)) + 8
        wait_for(lambda: len(rows(scores)) >= target, "episodes", both)
        assert (tmp_path / "run" / "roles.json").read_text() == roles, "restarts"
        assert command.stop() == 0, command.text()
        assert "Traceback" not in command.text()
    finally:
        idle.kill()
        command.kill()
