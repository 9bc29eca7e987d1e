"""`dreamerv3 env`: what it needs, and what it says when it is given too little."""

import subprocess
import sys

import elements
import pytest

from dreamerv3 import main
from dreamerv3.commands import env
from dreamerv3.commands.base import CommandError
from embodied.envs import registry
from embodied.envs.dummy import Dummy

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


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["env", "--help"], "--per-process"),
        (["envs"], "bounce     installed"),
        (["check-env", "bounce_32", "--steps", "40"], "All is well."),
    ],
    ids=["env", "envs", "check-env"],
)
def test_commands_of_an_env_machine_need_few_packages(flags, text):
    command = [sys.executable, "-c", CODE, *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert text in done.stdout


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--connect", "10.0.0.5:7001"], "is another machine, which needs --key"),
        (["--connect", "nowhere"], "not of the form tcp://host:port"),
        (["--connect", "{auto}:7001", "--key", "x"], "cannot read keys from x"),
        (["--connect", "127.0.0.1:7001", "--count", "0"], "need at least 1"),
    ],
)
def test_mistakes_are_named(flags, text):
    with pytest.raises(CommandError, match=text):
        env.main(["--task", "bounce_32", *flags])


def test_more_a_process_than_the_training_takes():
    with pytest.raises(CommandError, match="give at most 2"):
        env.check_rows(3, 2)


def test_a_training_without_the_suite_reads_the_spaces(tmp_path, monkeypatch, capsys):
    """The packages are elsewhere: that machine writes the spaces, this one reads."""
    env.main(["--task", "dummy_disc", "--spaces", str(tmp_path)])
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
