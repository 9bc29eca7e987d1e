"""How the command ends when it does not end well."""

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
    ("word", "commands"),
    [("evaluate", ["eval"]), ("environments", ["env"]), ("repor", ["report"])],
)
def test_a_command_that_may_be_meant(word, commands):
    assert cli.nearest_commands(word) == commands
    with pytest.raises(ConfigError) as info:
        cli.dispatch([word])
    assert f"did you mean dreamerv3 {commands[0]}?" in info.value.problems[0].remedy
