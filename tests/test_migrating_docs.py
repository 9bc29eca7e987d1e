"""docs/migrating.md: its commands are accepted, its tables are those of the code."""

import pathlib
import re
import shlex

import pytest

from dreamerv3 import cli, main
from dreamerv3.public import keys as public_keys
from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, rules

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "migrating.md"
TEXT = PAGE.read_text()
LINES = "\n".join(re.findall(r"(?s)^```sh\n(.*?)^```", TEXT, re.MULTILINE))
COMMAND = re.compile(
    r"^(?:dreamerv3|# public: python dreamerv3/main\.py) (.*)$", re.MULTILINE
)
COMMANDS = COMMAND.findall(LINES.replace("\\\n", " "))


def test_the_page_has_public_commands_and_ours():
    assert len(COMMANDS) > 10
    assert len(COMMANDS) == 1 + 2 * LINES.count("# public:")


def layer(line, logdir):
    problems = []
    argv = [*shlex.split(line), "--logdir", str(logdir)]
    values = flags.layer(
        settings.read_blocks(), flags.parse(argv, problems), {}, problems
    )
    assert not problems
    return values


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_is_accepted(line, tmp_path):
    values = layer(line, tmp_path)
    values["task"] = "dummy_disc"  # Its packages are here.
    assert not rules.check(values, flags.SCRIPTS)


@pytest.mark.parametrize("index", range(LINES.count("# public:")))
def test_commands_side_by_side_mean_the_same(index, tmp_path):
    public, ours = (layer(line, tmp_path) for line in COMMANDS[2 * index :][:2])
    same = ("script", "jax.platform")  # Defaults that differ.
    assert all(public[key] == ours[key] for key in public if key not in same)


@pytest.mark.process
def test_the_short_command_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (short,) = (line for line in COMMANDS if "--run.steps 200" in line)
    main.main(shlex.split(short))
    assert "run.debug has no effect: " in capsys.readouterr().out
    assert (tmp_path / "logdir" / "first" / "metrics.jsonl").exists()


def test_renamed_keys_are_on_the_page():
    for public, entry in public_keys.TABLE.items():
        if isinstance(entry, public_keys.Rename):
            assert f"`{public}`" in TEXT
            assert f"`{entry.key}`" in TEXT


def test_the_rejection_on_the_page_is_the_real_one():
    problems = []
    typed = flags.parse(["--agent.enc.simple.act", "relu"], problems)
    flags.layer(settings.read_blocks(), typed, {}, problems)
    shown = flags.problems_text(problems).split("\n\n")[1]
    assert shown in TEXT


@pytest.mark.process
def test_a_public_agent_is_converted_and_evaluated(tmp_path, monkeypatch, capsys):
    """The commands of "Bring your trained agents", on the golden checkpoint."""
    golden = pathlib.Path(__file__).parent / "golden" / "public" / "run"
    monkeypatch.chdir(tmp_path)
    section = TEXT.split("## Bring your trained agents")[1].split("```")[1]
    lines = section.replace("~/logdir/old", str(golden)).splitlines()[1:]
    convert, evaluate, *resume = (
        shlex.split(line, comments=True)[1:] for line in lines
    )
    cli.dispatch(convert)
    cli.dispatch(evaluate)
    assert "Score of 100 episodes: mean" in capsys.readouterr().out
    for argv in resume:
        problems: list[settings.Problem] = []
        values, saved = main.resolve(
            settings.read_blocks(), flags.parse(argv, problems), problems
        )
        assert values["task"] == saved["task"] == "dummy_both"
