"""`dreamerv3 join`: what it needs, and what it says when it is given too little."""

import contextlib
import itertools
import subprocess
import sys

import elements
import pytest

from dreamerv3 import cli, main
from dreamerv3.commands import check_env, join
from dreamerv3.commands.base import CommandError
from dreamerv3.settings.config import ConfigError
from embodied import rpc
from embodied.core import spacefile
from embodied.envs import registry
from embodied.envs.dummy import Dummy
from embodied.run.parallel import coordinator, placed, run_keys
from embodied.run.parallel.roles import ENV, LEARNER
from embodied.run.settings import RunSettings

ABSENT = (
    *("jax", "jaxlib", "equinox", "optax", "orbax", "jaxtyping", "cloudpickle"),
    *("rich", "av", "matplotlib", "PIL", "tensorboardX", "gymnasium"),
)
CODE = f"""
import sys
sys.modules.update(dict.fromkeys({ABSENT}))  # Importing them now fails.
from dreamerv3 import cli
sys.argv = ["dreamerv3", *sys.argv[1:]]
cli.cli()
"""
CONFIG = {"seed": 3, "task": "dummy_disc", "run": {"replay_addr": "{auto}"}}


@pytest.mark.process
@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["join", "--help"], "--per-process"),
        (["envs"], "bounce     installed"),
        (["check-env", "bounce_32", "--steps", "40"], "All is well."),
    ],
    ids=["join", "envs", "check-env"],
)
def test_commands_of_an_env_machine_need_few_packages(flags, text):
    command = [sys.executable, "-c", CODE, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["10.0.0.5:7000", "env"], "is another machine, which needs --key"),
        (["nowhere", "env"], "not of the form tcp://host:port"),
        (["{auto}:7000", "env", "--key", "x"], "cannot read keys from x"),
        (["127.0.0.1:7000", "env", "--count", "0"], "needs at least 1"),
        (["127.0.0.1:7000", "env", "--per-process", "1025"], "1 to 1024"),
    ],
)
def test_mistakes_are_named(words, text):
    with pytest.raises(CommandError, match=text):
        join.run([*words, "--task", "bounce_32"])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["env"], "env needs --task"),
        (["replay", "--logdir", "x", "--task", "y"], "leave out --task"),
        (["learner", "--batch_size", "4"], "leave out --batch_size 4"),
        (["replay"], "replay needs --logdir"),
        (["logger"], "logger needs --logdir"),
    ],
)
def test_flags_must_be_those_of_the_role(words, text):
    with pytest.raises(CommandError, match=text):
        join.run(["127.0.0.1:7000", *words])


def test_more_a_process_than_the_training_takes():
    with pytest.raises(CommandError, match="give at most 2"):
        join.check_rows(3, 2)


@pytest.fixture
def serve(tmp_path):
    """Serves a coordinator; its invitation is that of the log directory."""
    made = Dummy("disc")
    spacefile.write(tmp_path, made.obs_space, made.act_space)

    @contextlib.contextmanager
    def serve(**changes):
        args = {"logdir": str(tmp_path), "config": CONFIG, "envs": 4}
        args |= {f"{n}_addr": rpc.resolve("{auto}") for n in ("coordinator", "logger")}
        args |= {"replay_addr": "tcp://10.0.0.6:7002", **changes}
        issue = itertools.count(1).__next__
        with coordinator.serve(RunSettings.of(args), issue) as served:
            yield served, args["coordinator_addr"]

    return serve


@pytest.fixture
def roles(monkeypatch):
    """Roles that would have been started."""
    found = []
    monkeypatch.setattr(placed, "supervise", found.extend)
    return found


def test_environments_are_members_with_names_of_their_own(serve, roles, capsys):
    words = ["--task", "dummy_disc", "--count", "5", "--per-process", "2"]
    with serve() as (_, address):
        join.run([address, "env", *words])
    entries = [role.args[2] for role in roles]
    assert [entry.envs for entry in entries] == [2, 2, 1]
    assert len({entry.name for entry in entries}) == 3
    assert {role.args[1].address for role in roles} == {address}
    assert "5, 2 per process, seed 3" in capsys.readouterr().out


def test_another_task_is_rejected_before_anything_starts(serve, roles):
    with serve() as (_, address), pytest.raises(ConfigError) as error:
        join.run([address, "env", "--task", "bounce_32"])
    (problem,) = error.value.problems
    assert (problem.key, problem.value) == ("task", "bounce_32")
    assert "observation 'count': no such key instead of" in problem.rule
    assert not roles


def test_a_run_that_has_ended_needs_no_one(serve, roles, capsys):
    with serve() as (served, address):
        served.members.end(ENV)
        join.run([address, "env", "--task", "dummy_disc"])
    assert "Ended: the run has ended." in capsys.readouterr().out
    assert not roles


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["replay", "--logdir", "x"], "--run.remote_replay True"),
        (["logger", "--logdir", "x"], "--run.remote_logger True"),
        (["learner"], "--run.learners 2"),
    ],
)
def test_a_role_that_the_run_has_itself_is_rejected(serve, roles, words, remedy):
    with serve() as (_, address), pytest.raises(CommandError, match=remedy):
        join.run([address, *words])
    assert not roles


def test_the_replay_gets_settings_and_addresses(serve, monkeypatch, tmp_path):
    placed_with = []
    monkeypatch.setattr(main, "place", placed_with.append)
    with serve(remote_replay=True) as (_, address):
        join.run([address, "replay", "--logdir", str(tmp_path / "disks")])
    (config,) = placed_with
    assert config.script == "parallel_replay"
    assert config.logdir == str(tmp_path / "disks")
    assert config.run.replay_addr == "tcp://10.0.0.6:7002"
    assert config.run.logger_addr.startswith("ipc://")
    assert config.task == "dummy_disc"


def test_the_replay_needs_the_keys_of_a_server(tmp_path):
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    words = ["127.0.0.1:7000", "replay", "--logdir", "x", "--key"]
    parse = join.make_parser().parse_args
    file = str(tmp_path / "keys" / "core.json")
    assert join.find_keys(parse([*words, file])) == str(tmp_path / "keys")
    (tmp_path / "keys" / "server.json").unlink()
    with pytest.raises(CommandError, match=r"needs server\.json"):
        join.find_keys(parse([*words, file]))


def test_a_learner_joins_with_the_address_alone(serve, roles):
    config = {**CONFIG, "run.agent_timeout": 700.0}
    with serve(learners=2, config=config) as (_, address):
        join.run([address, "learner"])
    (role,) = roles
    assert role.name == LEARNER
    assert (role.start, role.hang) == (700.0, 700.0)  # As the leader has.
    assert role.args[2].address == address


def test_another_server_is_named(roles):
    server = rpc.Server("ipc://{auto}", "actor")
    server.bind("act", len)
    server.start(block=False)
    with pytest.raises(CommandError, match=r"not a coordinator: give run\.coordinator"):
        join.run([server.address, "env", "--task", "dummy_disc"])
    server.close()


def test_a_log_directory_of_this_machine_is_an_address(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    found = join.read_invitation("run", None, run_keys.ENV)
    assert found == (f"ipc://{tmp_path}/run/coordinator.sock", None)
    keys = rpc.make_keys("run/keys", run_keys.CLIENTS)
    assert (
        join.read_invitation("run", None, run_keys.ENV).keys
        == keys.clients[run_keys.ENV]
    )


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "env --connect 10.0.0.5:7001 --key k --task a --count 8",
            "dreamerv3 join HOST:PORT --key env.json env --task a --count 8",
        ),
        ("env --task a --spaces ~/x", "dreamerv3 check-env a --spaces ~/x"),
        (
            "learner --connect=10.0.0.5:7004",
            "dreamerv3 join HOST:PORT --key learner.json learner",
        ),
        ("env", "dreamerv3 join HOST:PORT --key env.json env"),
    ],
)
def test_commands_of_before_are_translated(words, text):
    with pytest.raises(CommandError) as error:
        cli.dispatch(words.split())
    assert text in str(error.value)


def test_a_training_without_the_suite_reads_the_spaces(tmp_path, monkeypatch, capsys):
    """The packages are on another machine, which writes the spaces."""
    check_env.run(["dummy_disc", "--spaces", str(tmp_path)])
    assert str(tmp_path / "spaces.json") in capsys.readouterr().out
    missing = registry.SUITES["dummy"]._replace(needs=("nowhere_installed",))
    monkeypatch.setitem(registry.SUITES, "dummy", missing)
    config = elements.Config(
        script="parallel",
        task="dummy_disc",
        logdir=str(tmp_path),
        run={"remote_envs": True},
    )
    obs_space, act_space = main.known_spaces(config)
    made = Dummy("disc")
    assert obs_space.keys() == made.obs_space.keys()
    assert act_space == made.act_space
    assert main.known_spaces(config.update({"run.remote_envs": False})) is None
    assert main.known_spaces(config.update(logdir=str(tmp_path / "new"))) is None
    assert main.known_spaces(config.update(task="bounce_32")) is None
