"""The coordinator: what each key may ask, what members learn, and the end."""

import itertools
import pathlib
import tempfile

import elements
import numpy as np
import pytest

from embodied import rpc
from embodied.core import spacefile
from embodied.run.parallel import connections, run_keys
from embodied.run.parallel import coordinator as module
from embodied.run.parallel.coordinator import Coordinator, MismatchError
from embodied.run.parallel.membership import Members
from embodied.run.parallel.roles import ENV, LEARNER
from embodied.run.settings import RunSettings

ADDRESSES = {
    "coordinator_addr": "tcp://10.0.0.5:7000",
    "actor_addr": "tcp://10.0.0.5:7001",
    "replay_addr": "tcp://10.0.0.6:7002",
    "logger_addr": "tcp://10.0.0.5:7003",
    "learner_addr": "tcp://10.0.0.5:7004",
}
CONFIG = {"seed": 3, "task": "dummy_disc", "secret": "of the core"}


def make_spaces(shape=(3,), **more):
    obs = {"vector": elements.Space(np.float32, shape), **more}
    return obs, {"action": elements.Space(np.int32, (), 0, 5)}


def encode(*args, **options):
    return spacefile.encode(*make_spaces(*args, **options))


@pytest.fixture
def make(tmp_path):
    def make(**changes):
        args = {"logdir": str(tmp_path), "config": CONFIG, "envs": 6, "eval_envs": 2}
        args |= {"remote_replay": True, "remote_logger": True, "learners": 2}
        args = RunSettings.of({**args, **ADDRESSES, **changes})
        issued = itertools.count(1)
        leases = {ENV: 300.0, LEARNER: args.learner_timeout}
        path = tmp_path / "members.json"
        members = Members(path, 8, lambda: next(issued), leases)
        return Coordinator(args, members, make_spaces())

    return make


@pytest.fixture
def coordinator(make):
    return make()


def test_an_environment_learns_what_it_needs_and_no_more(coordinator):
    facts = coordinator.describe(run_keys.ENV, ENV, encode())
    assert facts == {"seed": 3, "task": "dummy_disc", "rows": 4}
    found = coordinator.join(run_keys.ENV, ENV, "one", 2, encode())
    assert found == {
        "numbers": [8, 9],
        "incarnation": 1,
        "lease": 300.0,
        "actor_addr": ADDRESSES["actor_addr"],
        "transport": connections.ZMQ,
    }


@pytest.mark.parametrize(
    ("role", "key", "names"),
    [
        ("replay", run_keys.CORE, {"replay_addr", "logger_addr"}),
        ("logger", run_keys.CORE, {"logger_addr"}),
        (LEARNER, run_keys.LEARNER, {"learner_addr"}),
    ],
)
def test_other_roles_learn_settings_spaces_and_addresses(coordinator, role, key, names):
    facts = coordinator.describe(key, role)
    assert facts.pop("config") == CONFIG
    assert facts.pop("spaces") == encode()
    assert facts == {name: ADDRESSES[name] for name in names}


ALLOWED = {
    (run_keys.ENV, ENV),
    (run_keys.LEARNER, LEARNER),
    (run_keys.CORE, "replay"),
    (run_keys.CORE, "logger"),
}
PAIRS = list(itertools.product(run_keys.CLIENTS, (ENV, LEARNER, "replay", "logger")))


@pytest.mark.parametrize(("key", "role"), PAIRS)
def test_a_key_is_for_its_roles_only(coordinator, key, role):
    calls = {
        "describe": (),
        "join": ("name", 1 if role == ENV else 0),
        "lease": ("name",),
        "leave": ("name",),
    }
    for method, args in calls.items():
        call = getattr(coordinator, method)
        if role not in (ENV, LEARNER) and method != "describe":
            continue  # Replay and logger are called by the launcher.
        if (key, role) in ALLOWED:
            call(key, role, *args)
        else:
            with pytest.raises(
                PermissionError, match=f"{key}.json does not permit {role}"
            ):
                call(key, role, *args)


def test_numbers_of_the_launcher_are_not_given_away(make):
    given = (run_keys.ENV, ENV, "one", 2, encode(), [0, 1])
    with pytest.raises(module.UnexpectedError, match=r"\[0, 1\].*remote_envs True"):
        make().join(*given)
    assert make(remote_envs=True).join(*given)["numbers"] == [0, 1]


def test_only_the_core_knows_the_learners(coordinator):
    coordinator.join(run_keys.LEARNER, LEARNER, "one")
    assert coordinator.learners(run_keys.CORE, 7, 1) == [{"one": 1}, 1]
    for key in (run_keys.ENV, run_keys.LEARNER):
        with pytest.raises(PermissionError):
            coordinator.learners(key, 7, 1)


def test_without_keys_everything_is_allowed(coordinator):
    for role in (ENV, LEARNER, "replay", "logger"):
        coordinator.describe("", role)


def test_the_same_spaces_fit(coordinator):
    logged = encode(**{"log/x": elements.Space(np.float32)})
    for spaces in (encode(), logged, None):
        coordinator.join(run_keys.ENV, ENV, "one", 1, spaces)


def test_a_difference_is_named(coordinator):
    other = encode(shape=(4,))
    for call, args in (("describe", ()), ("join", ("one", 1))):
        with pytest.raises(MismatchError, match=r"'vector': float32\[4\]"):
            getattr(coordinator, call)(run_keys.ENV, ENV, *args, other)
    assert not coordinator.members.joined(ENV)


@pytest.mark.parametrize(
    ("role", "changes", "remedy"),
    [
        ("replay", {"remote_replay": False}, "--run.remote_replay True"),
        ("logger", {"remote_logger": False}, "--run.remote_logger True"),
        (LEARNER, {"learners": 1}, "--run.learners 2"),
    ],
)
def test_a_role_that_the_run_has_itself_is_rejected(make, role, changes, remedy):
    with pytest.raises(module.UnexpectedError, match=remedy):
        make(**changes).describe("", role)


def test_the_end_of_the_run(coordinator, start):
    coordinator.join(run_keys.ENV, ENV, "one", 1)
    coordinator.join(run_keys.LEARNER, LEARNER, "two")
    result = []
    thread = start(lambda: result.append(coordinator.end(ENV)))
    told = 0
    while not told:
        try:
            coordinator.lease(run_keys.ENV, ENV, "one")
        except connections.RunOverError:
            told += 1
    thread.join(20)
    assert result == [True]
    with pytest.raises(connections.RunOverError):
        coordinator.describe(run_keys.ENV, ENV, encode())
    assert coordinator.lease(run_keys.LEARNER, LEARNER, "two")


def test_a_user_in_a_hurry_waits_for_no_member(coordinator):
    coordinator.join(run_keys.ENV, ENV, "one", 1)
    assert not coordinator.end(ENV, hurry=lambda: True)


def test_members_that_do_not_acknowledge_are_not_waited_for(coordinator, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.01)
    coordinator.join(run_keys.ENV, ENV, "one", 1)
    assert not coordinator.end(ENV)


def test_a_run_without_an_address_has_a_socket_in_its_directory(tmp_path):
    with tempfile.TemporaryDirectory() as folder:  # Whose path is short.
        short = RunSettings.of({"logdir": folder})
        assert module.own_socket(short) == f"ipc://{folder}/coordinator.sock"
        assert not list(pathlib.Path(folder).iterdir())
    long = RunSettings.of({"logdir": str(tmp_path / (120 * "x"))})
    assert module.own_socket(long) == rpc.AUTO
    given = RunSettings.of({"logdir": "/tmp/x", "coordinator_addr": "localhost:7000"})
    assert module.own_socket(given) == "localhost:7000"


def test_keys_decide_over_a_network_too(tmp_path):
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    address = rpc.resolve("localhost:{auto}")
    args = {"logdir": str(tmp_path), "coordinator_addr": address, "learners": 2}
    args = RunSettings.of(args)
    with module.serve(args, lambda: 1):
        for key, role in PAIRS:
            keys = rpc.load_client(tmp_path / "keys", key)
            client = rpc.Client(address, keys=keys, connect_timeout=30)
            error = client.lease(role, "name").exception()
            client.close()
            allowed = (key, role) in ALLOWED
            assert (error is None) == allowed
            assert allowed or error.kind == "PermissionError"
