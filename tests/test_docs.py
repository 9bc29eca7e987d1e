"""Python examples in the documents run as they stand."""

import pathlib
import re

import pytest

from dreamerv3 import main
from dreamerv3.commands import export

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# Examples that start processes: tests/e2e and test_benchmark_docs.py have their tests.
FILES = {"custom-environment.md", "benchmark.md"}
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http|#)([^)#]+)")
# Of this repository; a pattern such as `embodied/envs/NAME.py` is not one.
PATH = re.compile(r"`((?:embodied|dreamerv3|tests|docs|packaging)/[a-z0-9_./-]+)`")
HABITS = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/decisions").glob("*.md"))]


def nothing() -> None:
    """Most documents stand on their own."""


QUICK = ["--configs", "debug", "--script", "train", "--run.env_processes", "False"]


def train_cartpole() -> None:
    """What a reader of the README has: an agent of CartPole."""
    flags = ["--task", "gymnasium_CartPole-v1", "--logdir", "logdir/cartpole"]
    main.main([*QUICK, *flags, "--run.steps", "60"])


def train_and_export() -> None:
    """What a reader of docs/deployment.md has: trained and exported agents."""
    train_cartpole()
    export.run(["logdir/cartpole", "-o", "original.zip", "--batch", "4", "--original"])
    argv = ["--configs", "demo", "debug", "--script", "train", "--run.steps", "60"]
    main.main([*argv, "--run.env_processes", "False"])
    export.run(["logdir/demo", "-o", "policy.zip"])


PREPARE = {"deployment.md": train_and_export, "README.md": train_cartpole}


@pytest.mark.parametrize(
    "path", [p for p in DOCUMENTS if p.name not in FILES], ids=lambda path: path.name
)
def test_examples_run(path, tmp_path, monkeypatch):
    examples = EXAMPLE.findall(path.read_text())
    if not examples:
        pytest.skip("no Python examples")
    monkeypatch.chdir(tmp_path)
    PREPARE.get(path.name, nothing)()
    namespace = {"__name__": "__example__"}
    for example in examples:  # Later examples of a document build on earlier ones.
        exec(compile(example, str(path), "exec"), namespace)
    assert namespace


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", HABITS, ids=lambda path: path.name)
def test_named_files_exist(path):
    for name in PATH.findall(path.read_text()):
        assert (ROOT / name).exists(), name
