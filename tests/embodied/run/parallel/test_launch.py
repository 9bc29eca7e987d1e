"""Who runs where: what the launcher makes of its arguments."""

import cloudpickle
import pytest

from embodied import rpc
from embodied.cluster import discovery
from embodied.run.parallel import launch
from embodied.run.settings import RunSettings
from tests.e2e import parallel_run


class FakeSupervisor:
    """Keeps what it was given and runs nothing."""

    def __init__(self, roles, status, issue, others):
        FakeSupervisor.roles = {role.name: role for role in roles}
        FakeSupervisor.others = others

    def run(self, duration):
        return f"{duration} seconds passed"


@pytest.fixture
def combined(tmp_path, monkeypatch):
    """The roles that the launcher starts."""
    monkeypatch.setattr(launch, "Supervisor", FakeSupervisor)

    def run(**changes):
        args = parallel_run.make_args(str(tmp_path), **changes)
        launch.combined(*[abs] * 7, args)
        return FakeSupervisor.roles

    return run


def test_every_role_and_each_environment_has_a_process(combined):
    roles = combined(envs=2, eval_envs=1)
    assert list(roles) == ["logger", "replay", "agent", "env0", "env1", "eval2"]
    assert not any(role.thread for role in roles.values())


def test_the_agent_may_live_in_the_launcher(combined):
    roles = combined(agent_process=False)
    assert [name for name, role in roles.items() if role.thread] == ["agent"]


def test_no_evaluation(combined):
    assert not any(name.startswith("eval") for name in combined(eval_envs=0))


def test_environments_elsewhere(combined):
    assert {"logger", "replay", "agent"} <= set(combined(remote_envs=True))
    assert not any(name.startswith(("env", "eval")) for name in FakeSupervisor.roles)


RAY = {"launcher": "ray", "ray": {"address": "auto", "cpus": 1.0}}


def test_environments_on_a_cluster_reach_the_actor_with_keys(
    combined, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        discovery, "look", lambda address: discovery.Cluster("0.0.0.0", 2)
    )
    roles = combined(**RAY, envs=2)
    assert {"logger", "replay", "agent", "fleet"} == set(roles)
    args = roles["fleet"].args[-1]
    assert args == roles["agent"].args[-1]
    assert args.remote_envs
    assert args.coordinator_addr.startswith("tcp://0.0.0.0:")
    assert args.actor_addr.startswith("tcp://0.0.0.0:")
    assert args.replay_addr.startswith("ipc://")
    assert args.logger_addr.startswith("ipc://")
    assert (tmp_path / "keys" / "env.json").exists()


def test_the_address_of_environments_on_a_cluster_may_be_given(combined):
    address = rpc.resolve("tcp://127.0.0.1:{auto}")
    roles = combined(**RAY, coordinator_addr=address)
    assert roles["fleet"].args[-1].coordinator_addr == address


def test_the_replay_elsewhere(combined):
    roles = combined(remote_replay=True, envs=1, eval_envs=0)
    assert {"logger", "agent", "env0"} <= set(roles)
    assert "replay" not in roles


def test_environments_may_share_a_process(combined):
    roles = combined(envs=5, eval_envs=2, envs_per_process=2)
    groups = [role.args[1] for name, role in roles.items() if name.startswith("e")]
    assert groups == [(0, 1), (2, 3), (4,), (5, 6)]


def test_open_addresses_are_filled_in_and_the_same_for_all(combined):
    roles = combined()
    found = [arg for r in roles.values() for arg in r.args if is_args(arg)]
    assert len(found) == len(roles)
    names = ("actor_addr", "replay_addr", "logger_addr")
    addresses = {tuple(getattr(args, name) for name in names) for args in found}
    assert len(addresses) == 1
    assert len(set(addresses.pop())) == 3
    assert not any("{auto}" in getattr(found[0], name) for name in names)


def test_given_addresses_are_kept(combined):
    roles = combined(actor_addr="ipc:///tmp/test-launch-actor")
    assert roles["agent"].args[1].actor_addr == "ipc:///tmp/test-launch-actor"


def test_factories_are_pickled_for_the_way(combined):
    roles = combined()
    factories = [a for r in roles.values() for a in r.args if isinstance(a, bytes)]
    assert len(factories) == 1 + 3 + 1 + 5  # Logger, replay, agent, environments.
    assert {cloudpickle.loads(factory) for factory in factories} == {abs}


def is_args(value):
    return isinstance(value, RunSettings)


def test_open_addresses_leave_nothing_behind(combined, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    combined(actor_addr="{auto}", replay_addr="{auto}", logger_addr="{auto}")
    assert not list(tmp_path.glob("rpc-*"))
