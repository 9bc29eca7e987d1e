"""Python examples in the documents run as they stand."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!http|#)([^)#]+)")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_run(path, tmp_path, monkeypatch):
    examples = EXAMPLE.findall(path.read_text())
    if not examples:
        pytest.skip("no Python examples")
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__example__"}
    for example in examples:  # Later examples of a document build on earlier ones.
        exec(compile(example, str(path), "exec"), namespace)
    assert namespace


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), target
