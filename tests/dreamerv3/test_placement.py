"""Addresses and keys of roles placed by hand, checked before anything starts."""

import socket

import pytest

from dreamerv3 import placement
from dreamerv3.main import SCRIPTS, place
from dreamerv3.settings import config
from embodied import rpc
from embodied.cluster import discovery
from embodied.run.parallel import run_keys
from embodied.run.settings import RunSettings

DEFAULTS = config.read_blocks().defaults
ADDRESSES = {
    "run.actor_addr": "tcp://10.0.0.5:7001",
    "run.replay_addr": "tcp://10.0.0.6:7002",
    "run.logger_addr": "tcp://10.0.0.5:7003",
}


def check(**changes):
    return placement.check({**DEFAULTS, **changes})


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"script": "parallel_env"}, ["actor"]),
        ({"script": "parallel_envs"}, ["actor"]),
        ({"script": "parallel_replay"}, ["replay", "logger"]),
        ({"script": "parallel_logger"}, ["logger"]),
        ({"run.remote_replay": True}, ["logger", "replay"]),
        ({"run.remote_logger": True}, ["logger"]),
    ],
    ids=str,
)
def test_open_addresses_are_refused(changes, keys):
    problems = check(**changes)
    assert [problem.key for problem in problems] == [f"run.{k}_addr" for k in keys]
    for problem in problems:
        assert problem.remedy.startswith("give the address that the other machine can")


def test_what_joins_needs_no_address_of_the_logger():
    flags = {"run.remote_replay": True, "run.replay_addr": "tcp://10.0.0.6:7002"}
    assert [each.key for each in check(**flags)] == ["run.logger_addr"]
    assert check(**flags, **{"run.coordinator_addr": "tcp://10.0.0.5:7000"}) == []
    flags["run.replay_addr"] = "{auto}"
    joins = {"run.coordinator_addr": "tcp://10.0.0.5:7000"}
    assert [each.key for each in check(**flags, **joins)] == ["run.replay_addr"]


def test_environments_that_join_need_no_address():
    assert check(**{"run.remote_envs": True}) == []


@pytest.mark.parametrize("address", ["tcp://0.0.0.0:7001", "tcp://*:7001", "*:7001"])
def test_what_nobody_can_connect_to_is_refused(address):
    (problem,) = check(script="parallel_envs", **{"run.actor_addr": address})
    assert "cannot be connected to" in problem.rule
    assert check(**{"run.remote_envs": True, "run.actor_addr": address}) == []


@pytest.mark.parametrize("address", ["tcp://x", "udp://a:1", "tcp://a:99999", ""])
def test_what_is_no_address_is_refused(address):
    (problem,) = check(**{"run.actor_addr": address})
    assert problem.key == "run.actor_addr"


def test_the_run_and_its_roles_on_one_machine_need_no_keys():
    local = {
        key: value.replace("10.0.0.", "127.0.0.") for key, value in ADDRESSES.items()
    }
    assert check() == []
    for script in placement.SCRIPTS:
        assert check(script=script, **local) == []
    remote = {f"run.remote_{name}": True for name in ("envs", "replay", "logger")}
    assert check(**remote, **local) == []


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        (
            {},
            [
                "run.coordinator_addr",
                "run.actor_addr",
                "run.replay_addr",
                "run.logger_addr",
            ],
        ),
        (
            {"run.learners": 2, "run.remote_replay": True, "run.remote_logger": True},
            ["run.coordinator_addr", "run.actor_addr", "run.learner_addr"],
        ),
        (
            {"run.remote_replay": True},
            ["run.coordinator_addr", "run.actor_addr", "run.logger_addr"],
        ),
        (
            {"run.remote_logger": True},
            ["run.coordinator_addr", "run.actor_addr", "run.replay_addr"],
        ),
        ({"script": "parallel_replay"}, ["run.replay_addr"]),
        ({"script": "parallel_envs"}, []),
        ({"script": "train"}, []),
    ],
    ids=str,
)
def test_a_port_that_is_taken_is_told_before_the_start(changes, keys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        names = ("run.coordinator_addr", *ADDRESSES, "run.learner_addr")
        taken = dict.fromkeys(names, f"localhost:{port}")
        problems = placement.check_open({**DEFAULTS, **taken, **changes})
        assert [problem.key for problem in problems] == keys
        assert all("in use" in problem.rule for problem in problems)
    assert placement.check_open({**DEFAULTS, **taken, **changes}) == []


def test_an_address_of_another_machine_is_told_before_the_start():
    changes = {"run.actor_addr": "tcp://192.0.2.1:7001"}  # For documentation only.
    (problem,) = placement.check_open({**DEFAULTS, **changes})
    assert problem[:2] == ("run.actor_addr", "tcp://192.0.2.1:7001")
    assert problem.remedy.startswith("give a free port of this machine")


@pytest.mark.parametrize("script", placement.SCRIPTS)
def test_keys_must_be_there(script, tmp_path):
    keys = {"run.key_dir": str(tmp_path / "keys")}
    (problem,) = check(script=script, **ADDRESSES, **keys)
    assert (problem.key, problem.value) == ("run.key_dir", str(tmp_path / "keys"))
    assert "dreamerv3 keys" in problem.remedy
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    assert check(script=script, **ADDRESSES, **keys) == []
    (tmp_path / "keys" / "server.json").unlink()  # As where only clients run.
    serves = bool(placement.SCRIPTS[script].serves)
    assert bool(check(script=script, **ADDRESSES, **keys)) == serves


def test_keys_that_were_named_must_be_there_on_one_machine_too(tmp_path):
    flags = {"run.actor_addr": "localhost:7001", "run.key_dir": str(tmp_path / "x")}
    assert check(script="parallel_envs", **flags)


@pytest.mark.parametrize("script", [*placement.SCRIPTS, "parallel"])
def test_bad_keys_are_found_before_anything_starts(script, tmp_path):
    keys = tmp_path / "keys"
    flags = {"script": script, "run.key_dir": str(keys), **ADDRESSES}
    rpc.make_keys(keys, run_keys.CLIENTS)
    assert check(**flags) == []
    for name in placement.LOADERS:
        (keys / name).write_text("torn")
    (problem,) = check(**flags)
    assert (problem.key, problem.value) == ("run.key_dir", str(keys))
    assert "cannot read keys from" in problem.rule


@pytest.mark.parametrize("name", placement.LOADERS)
def test_a_run_needs_all_files_once_there_is_a_directory(tmp_path, name):
    flags = {"logdir": str(tmp_path), **ADDRESSES}
    assert check(**flags) == []  # It will make them.
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    assert check(**flags) == []
    (tmp_path / "keys" / name).unlink()
    (problem,) = check(**flags)
    assert f"there is no {name}" in problem.rule


def test_only_environments_of_the_run(tmp_path):
    flags = {"script": "parallel_env", "run.actor_addr": "localhost:7001"}
    flags |= {"run.envs": 2, "run.eval_envs": 1}
    assert check(**flags, replica=2) == []
    (problem,) = check(**flags, replica=3)
    assert "environments 0 to 2" in problem.rule


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, None),
        ({"run.learner_addr": "{auto}"}, None),  # Followers learn it.
        ({"run.coordinator_addr": "tcp://0.0.0.0:7000"}, "run.coordinator_addr"),
        ({"run.learner_addr": "tcp://0.0.0.0:7004"}, "run.learner_addr"),
        ({"run.learner_addr": "ipc:///tmp/learner.sock"}, "run.learner_addr"),
        ({"batch_size": 15}, "batch_size"),
        ({"batch_size": 12, "jax.train_devices": (0, 1, 2, 3)}, "batch_size"),
        ({"jax.train_devices": (0, 1, 2, 3), "jax.mesh": (-1, 2, 2)}, None),
        ({"random_agent": True}, "run.learners"),
        ({"run.agent_process": False}, "run.learners"),
        ({"script": "train"}, "run.learners"),
        ({"run.learner_start_timeout": 601.0}, "run.learner_start_timeout"),
        ({"run.learner_start_timeout": 601.0, "run.agent_timeout": 700.0}, None),
        ({"script": "eval_only"}, None),  # Of a run that had several hosts.
    ],
    ids=str,
)
def test_what_does_not_fit_several_hosts(changes, key):
    flags = {"run.learners": 2, "run.learner_addr": "tcp://127.0.0.1:7004", **changes}
    problems = check(**flags)
    assert [problem.key for problem in problems] == ([key] if key else [])


@pytest.fixture
def ray_is_there(monkeypatch):
    """Whether or not it is installed here, and a cluster with it."""
    monkeypatch.setattr("importlib.util.find_spec", str)
    nodes = {"10.0.0.5": {"CPU": 8.0}, "10.0.0.6": {"CPU": 4.0, "GPU": 1.0}}
    cluster = discovery.Cluster("10.0.0.5", 2, nodes)
    monkeypatch.setattr(discovery, "look", lambda address: cluster)


@pytest.mark.usefixtures("ray_is_there")
@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({}, None),
        ({"run.actor_addr": "tcp://10.0.0.5:7001"}, None),
        ({"run.actor_addr": "tcp://10.0.0.5:{auto}"}, None),
        ({"run.actor_addr": "tcp://127.0.0.1:7001"}, "run.actor_addr"),
        ({"run.actor_addr": "tcp://0.0.0.0:7001"}, "run.actor_addr"),
        ({"run.coordinator_addr": "tcp://10.0.0.5:7000"}, None),
        ({"run.coordinator_addr": "tcp://127.0.0.1:7000"}, "run.coordinator_addr"),
        ({"run.actor_addr": "ipc:///tmp/run.sock"}, "run.actor_addr"),
        ({"run.remote_envs": True, **ADDRESSES}, "run.remote_envs"),
        ({"script": "train"}, "launcher"),
        ({"script": "eval_only"}, None),  # Of a run that had a cluster.
        ({"ray.gpus": 1.0, "ray.cpus_core": 4.0}, None),
        ({"ray.gpus": 2.0}, "ray.gpus"),
        ({"ray.cpus_core": 8.0}, None),
        ({"ray.cpus_core": 8.0, "ray.gpus": 1.0}, "ray.gpus"),  # None has both.
        ({"ray.memory": 10**9}, "ray.memory"),
        ({"ray.gpus": 1.0, "run.actor_addr": "tcp://10.0.0.5:7001"}, "run.actor_addr"),
        ({"ray.gpus": 1.0, "run.logger_addr": "tcp://10.0.0.5:7"}, "run.logger_addr"),
    ],
    ids=str,
)
def test_what_does_not_fit_a_cluster(changes, key):
    problems = check(launcher="ray", **changes)
    assert [problem.key for problem in problems] == ([key] if key else [])


@pytest.mark.usefixtures("ray_is_there")
def test_what_a_cluster_has_is_reported():
    (problem,) = check(launcher="ray", **{"ray.gpus": 2.0, "ray.cpus_core": 1.0})
    assert "no node has ray.gpus 2, ray.cpus_core 1" in problem.rule
    assert "10.0.0.5: 0 GPU, 8 CPU, 0.0 GB; 10.0.0.6: 1 GPU, 4 CPU" in problem.rule


@pytest.mark.usefixtures("ray_is_there")
def test_a_cluster_must_be_there(monkeypatch):
    def look(address):
        raise discovery.AbsentError("nobody answers")

    monkeypatch.setattr(discovery, "look", look)
    (problem,) = check(launcher="ray")
    assert problem[:2] == ("ray.address", "auto")
    assert "nobody answers" in problem.rule
    assert "ray start" in problem.remedy


def test_a_cluster_needs_its_package(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", {}.get)
    (problem,) = check(launcher="ray")
    assert problem.remedy == "pip install 'dreamerv3-distributed[ray]'"


def test_only_scripts_with_environments_need_their_packages():
    needs = {script for script in SCRIPTS if placement.needs_env(script)}
    assert set(SCRIPTS) - needs == {"parallel_replay", "parallel_logger"}


@pytest.mark.parametrize("script", placement.SCRIPTS)
def test_each_script_is_placed_and_says_what_it_does(script, monkeypatch):
    values = {**DEFAULTS, **ADDRESSES, "script": script, "replica": 17}
    made = config.to_config(values)
    text = placement.describe(made)
    used = (*placement.SCRIPTS[script].serves, *placement.SCRIPTS[script].calls)
    for key, address in ADDRESSES.items():
        assert (address in text) == (key in used)
    roles = []

    def supervise(self, duration=0):
        roles.extend(worker.role for worker in self._workers)
        return "asked to stop"

    monkeypatch.setattr("embodied.process.supervisor.Supervisor.run", supervise)
    place(made)
    names = {role.name for role in roles}
    if script == "parallel_envs":
        assert len(names) == values["run.envs"] + values["run.eval_envs"]
    else:
        assert names == {{"parallel_env": "env17"}.get(script, script[9:])}
    if script == "parallel_env":
        *_, args, is_eval = roles[0].args
        assert is_eval  # Numbers from run.envs on are those of evaluation.
        assert isinstance(args, RunSettings)
