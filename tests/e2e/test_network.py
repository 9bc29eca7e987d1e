"""A run over an interface that is not loopback: two machines, keys, and a stranger.

The machines are network namespaces joined by a virtual cable. Where those cannot be
made, both are this machine at its own address. Nothing leaves it either way.
"""

import contextlib
import ipaddress
import os
import shutil
import socket
import subprocess
import sys

import psutil
import pytest

from embodied import rpc
from embodied.run.parallel import run_keys
from tests.e2e.command import ROOT, Command, logged_step, ports, rows, wait_for
from tests.e2e.machines import Machine, namespaces

pytestmark = pytest.mark.slow

FLAGS = ["--configs", "debug", "--random_agent", "--task", "dummy_disc"]


def own_address():
    """An IPv4 address of this machine that is not loopback, if it has one."""
    for entries in psutil.net_if_addrs().values():
        for entry in entries:
            is_ip = entry.family == socket.AF_INET
            if is_ip and not ipaddress.ip_address(entry.address).is_loopback:
                return entry.address
    return None


@pytest.fixture
def machines():
    if os.geteuid() == 0 and shutil.which("ip"):
        with contextlib.ExitStack() as stack:
            try:
                made = stack.enter_context(namespaces()).machines
            except (OSError, subprocess.CalledProcessError):
                made = None  # A container without the right to: one machine has to do.
            if made:
                yield made
                return
    address = own_address()
    if address is None:
        pytest.skip("no network namespaces, and no address that is not loopback")
    yield [Machine((), address)] * 2


@pytest.fixture
def start(tmp_path):
    made = []

    def begin(machine, name, *flags):
        command = Command(tmp_path / f"{name}.txt", *flags, prefix=machine.prefix)
        made.append(command)
        return command

    yield begin
    for command in made:
        command.kill()


PROBE = """
import sys
from embodied import rpc
from embodied.run.parallel import connections
client = rpc.ClientKeys(*sys.argv[2:5]) if sys.argv[2:] else None
try:
    rpc.Client(sys.argv[1], keys=client, connect_timeout=30 if client else 5)
except (rpc.HandshakeError, TimeoutError) as error:
    print(type(error).__name__)
"""

# Greets as ZeroMQ does, but without encryption, and prints what comes back.
STRANGER = """
import contextlib, socket, sys
host, port = sys.argv[1].removeprefix('tcp://').split(':')
stranger = socket.create_connection((host, int(port)), timeout=20)
stranger.sendall(b'\\xff' + bytes(8) + b'\\x7f\\x03\\x00NULL' + bytes(48))
stranger.sendall(b'\\x04\\x26\\x05READY' + bytes(32))
received = b''
with contextlib.suppress(ConnectionError):
    while data := stranger.recv(4096):
        received += data
print(received.hex())
"""


def run_python(machine, code, *args):
    command = [*machine.prefix, sys.executable, "-c", code, *args]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_environments_on_another_machine(machines, tmp_path, start):
    here, there = machines
    keys = rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    (tmp_path / "copied").mkdir(mode=0o700)
    shutil.copy(tmp_path / "keys" / "env.json", tmp_path / "copied")
    shared = [*FLAGS, *ports_of(here)]
    actor = shared[shared.index("--run.actor_addr") + 1]
    mine = ["--logdir", tmp_path / "run", "--run.key_dir", tmp_path / "keys"]
    run = start(here, "run", *shared, *mine, "--run.remote_envs", "True")
    theirs = ["--logdir", tmp_path / "else", "--run.key_dir", tmp_path / "copied"]
    envs = start(there, "envs", *shared, *theirs, "--script", "parallel_envs")
    scores = tmp_path / "run" / "scores.jsonl"
    wait_for(lambda: len(rows(scores)) >= 4, "episodes", [run, envs])
    wrong = rpc.make_keys().client._replace(server=keys.server.public)
    assert run_python(there, PROBE, actor, *wrong) == "HandshakeError"
    assert run_python(there, PROBE, actor) in ("HandshakeError", "TimeoutError")
    heard = bytes.fromhex(run_python(there, STRANGER, actor))
    assert len(heard) <= 64  # The greeting of any ZeroMQ server, and no more.
    metrics = tmp_path / "run" / "metrics.jsonl"

    def counted(name):
        return any(row.get(f"server/actor/{name}", 0) > 0 for row in rows(metrics))

    wait_for(lambda: counted("denied"), "denied client in the metrics", [run, envs])
    wait_for(lambda: counted("handshakes_failed"), "failed handshakes", [run, envs])
    assert run.stop() == 0, run.text()
    assert envs.wait() == 0, envs.text()
    assert "Ended 4 processes: the run has ended." in envs.text()
    assert logged_step(tmp_path / "run") > 0
    assert not (tmp_path / "else" / "scores.jsonl").exists()


def test_two_machines_are_two_commands(machines, tmp_path, start):
    """The first makes the keys, of which the second gets one, and all addresses."""
    here, there = machines
    address = rpc.resolve("127.0.0.1:{auto}").replace("127.0.0.1", here.address)
    logdir = tmp_path / "run"
    flags = [*FLAGS, "--logdir", logdir, "--run.remote_envs", "True"]
    run = start(here, "run", *flags, "--run.coordinator_addr", address)
    key = logdir / "keys" / "env.json"
    wait_for(key.exists, "keys", [run])
    place = address.removeprefix("tcp://")
    words = ["join", place, "--key", key, "env", "--task", "dummy_disc", "--count", 2]
    envs = start(there, "envs", *words)
    scores = logdir / "scores.jsonl"
    wait_for(lambda: len(rows(scores)) >= 4, "episodes", [run, envs])
    assert run.stop() == 0, run.text()
    assert envs.wait() == 0, envs.text()
    assert "Ended 2 processes: the run has ended." in envs.text()
    assert "did not acknowledge" not in run.text()


def ports_of(machine):
    """Addresses at which a machine serves; numbers that are free here mostly are."""
    free = ports()
    return [value.replace("127.0.0.1", machine.address) for value in free]


@pytest.mark.parametrize(
    ("script", "file"),
    [("parallel_envs", "env.json"), ("parallel_replay", "server.json")],
)
def test_without_keys_it_is_refused_at_start(machines, tmp_path, start, script, file):
    here, there = machines
    flags = [*FLAGS, *ports_of(here), "--logdir", tmp_path / "x", "--script", script]
    command = start(there, "refused", *flags)
    assert command.wait() == 2
    assert f"there is no {file}" in command.text()
    assert "dreamerv3 keys DIRECTORY" in command.text()
    assert not (tmp_path / "x").exists()
