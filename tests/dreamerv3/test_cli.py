"""How the command ends when it does not end well."""

import pytest

from dreamerv3 import cli


def test_an_interruption_is_a_word_and_not_a_traceback(monkeypatch, capsys):
    def interrupt(argv):
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "dispatch", interrupt)
    with pytest.raises(SystemExit) as info:
        cli.cli()
    assert info.value.code == 130
    assert capsys.readouterr().err == "dreamerv3: interrupted\n"
