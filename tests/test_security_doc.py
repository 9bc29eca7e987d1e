"""What SECURITY.md says, as far as code can check it."""

import pathlib
import re
import shutil

import pytest

from dreamerv3.viewing import local as viewer
from embodied import rpc
from embodied.core import machine
from embodied.rpc import channel, dispatcher, encoding
from embodied.run.parallel import (
    coordinator,
    ensemble,
    launch,
    membership,
    run_keys,
)
from embodied.run.settings import RunSettings

ROOT = pathlib.Path(__file__).parents[1]
TEXT = (ROOT / "SECURITY.md").read_text()
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text()
    for package in ("embodied", "dreamerv3")
    for path in (ROOT / package).rglob("*.py")
}
# Pipes of `multiprocessing` unpickle what they receive.
UNPICKLES = re.compile(
    r"\b(?:pickle|cloudpickle|pickling|dill|joblib|shelve|marshal)"
    r"\.(?:loads?|open|Unpickler)\b|\.recv\("
)


def test_the_list_of_modules_that_unpickle_is_complete():
    listed = re.findall(r"^\| `(\S+\.py)` \|", TEXT, re.MULTILINE)
    found = [name for name, text in SOURCES.items() if UNPICKLES.search(text)]
    assert sorted(listed) == sorted(found)


def test_arrays_and_yaml_are_loaded_safely():
    for name, text in SOURCES.items():
        loads = re.findall(r"np\.load\((.*?)\)", text)
        assert all("allow_pickle=False" in load for load in loads), name
        # The default is to keep comments, and constructs no objects either.
        kinds = re.findall(r"YAML\((.*?)\)", text)
        assert all(kind in ('typ="safe"', "") for kind in kinds), name
        assert not re.search(r"(?<![\w.])(?:eval|exec)\(", text), name


def test_the_limits_are_those_of_the_code():
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)
    limits = {name: [int(x) for x in re.findall(r"\d+", v)] for name, v in rows}
    assert limits["bytes of a message; between hosts of a learner"] == [
        channel.MAX_BYTES >> 20,
        ensemble.LARGEST >> 30,
    ]
    assert limits["bytes of its header"] == [encoding.MAX_HEADER >> 20]
    assert limits["arrays in it"] == [encoding.MAX_FRAMES]
    assert limits["nesting; dimensions of an array"] == [
        encoding.MAX_DEPTH,
        encoding.MAX_DIMS,
    ]
    assert limits["unread messages of a client"] == [channel.QUEUE]
    assert limits["calls that wait at a method"] == [dispatcher.MAX_QUEUED]
    assert limits["seconds of a handshake"] == [channel.HANDSHAKE_TIMEOUT // 1000]
    assert limits["members; environments of one"] == [
        membership.MAX_MEMBERS,
        membership.MAX_COUNT,
    ]
    assert limits["open files of a server"] == [machine.MAX_FILES]


def test_every_key_has_its_row():
    rows = re.findall(r"^\| `(\w+)\.json` \|", TEXT, re.MULTILINE)
    assert sorted(rows) == sorted([*run_keys.CLIENTS, "server"])
    assert coordinator.ROLES.keys() == set(run_keys.CLIENTS)


def test_the_viewer_is_on_this_machine_only():
    assert f"listen on {viewer.LOOPBACK}" in TEXT


def test_a_revoked_key_opens_nothing(tmp_path):
    """The steps of the document: stop, move the keys away, start again."""
    settings = {"logdir": str(tmp_path), "coordinator_addr": "tcp://10.0.0.5:7000"}
    args = RunSettings.of(settings)
    launch.provide_keys(args)
    old = run_keys.client_keys(args, run_keys.ENV)
    address = call(args, old)
    shutil.move(tmp_path / "keys", tmp_path / "revoked")
    launch.provide_keys(args)
    new = run_keys.client_keys(args, run_keys.ENV)
    call(args, new, address)
    with pytest.raises((rpc.HandshakeError, TimeoutError)):
        call(args, old, address)


def call(args, keys, address="tcp://127.0.0.1:{auto}"):
    """Call a server that reads the keys of the run now; returns its address."""
    server = rpc.Server(address, keys=run_keys.server_keys(args, run_keys.ENV))
    server.bind("ping", len)
    server.start(block=False)
    try:
        client = rpc.Client(server.address, keys=keys, connect_timeout=5)
        try:
            assert client.ping([1, 2]).result() == 2
        finally:
            client.close()
    finally:
        server.close()
    return server.address
