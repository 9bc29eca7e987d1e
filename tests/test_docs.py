"""Python examples in the documents run as they stand."""

import pathlib
import re

import pytest

from dreamerv3 import main
from dreamerv3.commands import export

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FILES = {"custom-environment.md"}  # Examples to save and run: tests/e2e has their test.
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http|#)([^)#]+)")


def nothing() -> None:
    """Most documents stand on their own."""


def train_and_export() -> None:
    """What a reader of docs/deployment.md has: a trained and an exported agent."""
    argv = ["--configs", "demo", "debug", "--script", "train", "--run.steps", "60"]
    main.main([*argv, "--run.env_processes", "False"])
    export.main(["logdir/demo", "-o", "policy.zip"])


PREPARE = {"deployment.md": train_and_export}


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
