"""Files around the code agree with it: pre-commit hooks and changelog."""

import pathlib
import re
import tomllib

from ruamel.yaml import YAML

ROOT = pathlib.Path(__file__).parents[1]
GROUPS = {"Added", "Changed", "Deprecated", "Fixed", "Removed", "Security"}
RELEASE = re.compile(r"\[Unreleased\]|\[(\d+\.\d+\.\d+)\] - \d{4}-\d\d-\d\d")


def test_hooks_are_the_checks_of_make():
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.M)
    commands = re.findall(r"^\t@\$\(BIN\)/(.*)$", recipe[1], re.M)
    config = YAML(typ="safe").load(ROOT / ".pre-commit-config.yaml")
    (local,) = config["repos"]
    assert local["repo"] == "local"
    assert all(not hook["pass_filenames"] for hook in local["hooks"])
    entries = [hook["entry"] for hook in local["hooks"]]
    assert commands
    assert entries == [f".venv/bin/{command}" for command in commands]


def test_changelog_lists_releases_in_groups():
    _, *sections = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    releases = [RELEASE.fullmatch(text.partition("\n")[0]) for text in sections]
    assert all(releases)
    assert releases[0][0] == "[Unreleased]"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert releases[1][1] == project["version"]
    for text in sections:
        intro, *groups = re.split(r"^### ", text, flags=re.M)
        names = [group.partition("\n")[0] for group in groups]
        assert not intro.partition("\n")[2].strip(), "entries belong to a group"
        assert set(names) <= GROUPS
        assert len(names) == len(set(names)), "each group comes once"


def test_the_workflow_runs_what_a_merge_needs():
    workflow = YAML(typ="safe").load(ROOT / ".github/workflows/ci.yml")
    commands = [step.get("run", "") for step in workflow["jobs"]["run"]["steps"]]
    assert sum(".ci/run" in command for command in commands) == 1
    assert (ROOT / ".ci/run").exists()


def test_the_citation_names_this_release():
    citation = YAML(typ="safe").load(ROOT / "CITATION.cff")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert citation["version"] == project["version"]
    dated = f"## [{citation['version']}] - {citation['date-released']}"
    assert dated in (ROOT / "CHANGELOG.md").read_text()
