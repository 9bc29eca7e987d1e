"""What the registry, the settings and the suites say of each other agrees."""

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest

from dreamerv3.settings import config as settings
from embodied.envs import registry

ROOT = Path(__file__).parents[3]
SUITES = registry.suites()
STANDINS = ("dmlab", "minecraft", "procgen")  # Packages that no extra can install.
KEYS = [key for key in settings.read_blocks().defaults if key.startswith("env.")]


@pytest.mark.parametrize("suite", sorted(set(SUITES) - set(STANDINS)))
def test_options_are_arguments_of_the_suite(suite):
    if registry.missing_packages(SUITES[suite]):
        pytest.skip(f"needs {registry.install_line(SUITES[suite])}")
    module = importlib.import_module(SUITES[suite].module)
    constructor = getattr(module, SUITES[suite].constructor)
    if suite == "atari100k":
        constructor = module.Atari
    if suite == "envpool":
        constructor = module.Pool
    taken = set(inspect.signature(constructor).parameters)
    options = {key.split(".")[2] for key in KEYS if key.startswith(f"env.{suite}.")}
    assert options <= taken


def test_options_belong_to_suites():
    assert {key.split(".")[1] for key in KEYS} <= set(SUITES)


def test_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"])
    assert {suite.extra for suite in SUITES.values()} - {""} <= extras


def test_presets_name_tasks_of_suites():
    presets = settings.read_blocks().presets
    tasks = [block["task"] for block in presets.values() if "task" in block]
    assert {registry.suite_of(task) for task in tasks} <= set(SUITES)
    named = {registry.suite_of(block.get("task", "")) for block in presets.values()}
    assert set(SUITES) - named <= {"custom", "dummy", "gymnasium", "pinpad"}


def test_the_page_lists_every_suite():
    page = (ROOT / "docs" / "environments.md").read_text()
    for name in set(SUITES) - {"custom"}:
        assert re.search(rf"`{name}(_|`)", page), name
    for key in KEYS:
        suite, option = key.split(".")[1:3]
        if suite != "custom":
            assert f"`{option}`" in page, key
