"""How the command ends when it does not end well."""

import re
import sys

import pytest

from dreamerv3 import cli, main
from dreamerv3.settings.config import ConfigError
from embodied.core.wrappers import SpaceError
from embodied.process.supervisor import RoleError
from embodied.run import parallel


def test_an_interruption_is_a_word_and_not_a_traceback(monkeypatch, capsys):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "dispatch", interrupt)
    with pytest.raises(SystemExit) as info:
        cli.cli()
    assert info.value.code == 130
    assert capsys.readouterr().err == "dreamerv3: interrupted\n"


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("evaluate", "did you mean dreamerv3 eval?"),
        ("environments", "did you mean dreamerv3 envs?"),
        ("repor", "did you mean dreamerv3 report?"),
        ("eval_only", "write --script eval_only"),
        ("start", "write dreamerv3 --task TASK"),
    ],
)
def test_what_may_be_meant(word, remedy):
    with pytest.raises(ConfigError) as info:
        cli.dispatch([word])
    assert remedy in info.value.problems[0].remedy


def test_the_version(capsys):
    cli.dispatch(["--version"])
    out = capsys.readouterr().out
    assert re.fullmatch(r"dreamerv3-distributed (\d+\.\d+\.\d+|from source)\n", out)


@pytest.mark.parametrize(("name", "told"), [("env3", True), ("agent", False)])
def test_a_run_that_failed(monkeypatch, capsys, tmp_path, name, told):
    def fail(*_):
        raise RoleError(name, 6, "Traceback\nValueError: the motor is stuck")

    words = ["--configs", "debug", "--task", "bounce_16", "--logdir", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["dreamerv3", *words])
    monkeypatch.setattr(parallel, "combined", fail)
    with pytest.raises(SystemExit) as info:
        cli.cli()
    assert info.value.code == 1
    text = capsys.readouterr().err
    assert f"the run failed, role '{name}' failed 6 times" in text
    assert ("dreamerv3 check-env bounce_16" in text) == told


def test_an_environment_that_breaks_its_rules(monkeypatch, capsys):
    """Its faults and the command that finds more, without a traceback."""

    def fail(*_):
        with main.naming_task("my envs/mine.py:Mine"):
            raise SpaceError("observation 'obs' is not finite: nan, at step 3")

    monkeypatch.setattr(main, "main", fail)
    monkeypatch.setattr(sys, "argv", ["dreamerv3", "--task", "my envs/mine.py:Mine"])
    with pytest.raises(SystemExit) as info:
        cli.cli()
    assert info.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        "dreamerv3: the environment breaks its rules",
        "observation 'obs' is not finite: nan, at step 3",
        "To try it out alone: dreamerv3 check-env 'my envs/mine.py:Mine'",
    ]
