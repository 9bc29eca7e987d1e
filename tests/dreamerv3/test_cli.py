"""How the command ends when it does not end well."""

import re

import pytest

from dreamerv3 import cli
from dreamerv3.config import ConfigError


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
        ("environments", "did you mean dreamerv3 env or envs?"),
        ("repor", "did you mean dreamerv3 report?"),
        ("eval_only", "write --script eval_only"),
        ("train", "write dreamerv3 --task TASK"),
    ],
)
def test_what_may_be_meant(word, remedy):
    with pytest.raises(ConfigError) as info:
        cli.dispatch([word])
    assert remedy in info.value.problems[0].remedy


def test_the_version(capsys):
    cli.dispatch(["--version"])
    assert re.fullmatch(r"dreamerv3 \d+\.\d+\.\d+\n", capsys.readouterr().out)
