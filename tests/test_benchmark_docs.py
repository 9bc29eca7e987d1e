"""Examples in docs/benchmark.md: Python runs, commands are accepted."""

import pathlib
import re
import shlex

import pytest

from dreamerv3.benchmarking import jobs
from dreamerv3.commands import benchmark, plot, report, view

PAGE = pathlib.Path(__file__).parents[1] / "docs" / "benchmark.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = BLOCK.findall(PAGE.read_text())
COMMANDS = [
    shlex.split(line)
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.splitlines()
]


@pytest.mark.parametrize(
    "words", [w for w in COMMANDS if w[1] == "benchmark"], ids=" ".join
)
def test_a_benchmark_is_accepted(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args, more = benchmark.parser().parse_known_args(words[2:])
    if "atari" in args.suite:
        pytest.importorskip("ale_py")
    if "dmc" in args.suite:
        pytest.importorskip("dm_control")
    request = benchmark.to_request(args, more)
    request = request._replace(logdir=str(tmp_path), seeds=1)
    assert jobs.make(request)


def test_other_commands_are_accepted():
    parsers = {"plot": plot, "view": view, "report": report}
    others = [words for words in COMMANDS if words[1] in parsers]
    assert len(others) == 3
    for _, command, *words in others:
        assert parsers[command].parser().parse_args(words).published


def test_flags_are_those_of_the_command():
    named = set(re.findall(r"^\| `(--[a-z-]+)", PAGE.read_text(), re.MULTILINE))
    known = {s for a in benchmark.parser()._actions for s in a.option_strings}
    assert named == known - {"-h", "--help"}


@pytest.mark.process
def test_the_python_example_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (example,) = [text for kind, text in BLOCKS if kind == "python"]
    exec(compile(example, str(PAGE), "exec"), {"__name__": "__example__"})
    assert (tmp_path / "logdir/benchmark/benchmark.html").exists()
