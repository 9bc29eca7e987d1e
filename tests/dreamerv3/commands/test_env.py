"""`dreamerv3 env`: what it needs, and what it says when it is given too little."""

import subprocess
import sys

import pytest

from dreamerv3.commands import env
from dreamerv3.commands.base import CommandError

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
