"""docs/seeds.md: every row names code that exists and a test that runs it."""

import ast
import functools
import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "seeds.md").read_text()
SEEDS = ("000", "001", "002", "003", "004")
SECTION = re.compile(r"^## (\d{3}) .*?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
SECTIONS = dict(SECTION.findall(PAGE))
HEADER = ["statement", "where it lives", "test", "deviation and why"]
REFERENCE = re.compile(r"`([\w./]+)(?:::([\w.:]+))?`")


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows(seed):
    """Statement, code, tests and deviation of each row."""
    lines = [line for line in SECTIONS[seed].splitlines() if line.startswith("|")]
    assert cells(lines[0]) == HEADER
    return [cells(line) for line in lines[2:]]


ROWS = [pytest.param(*row, id=f"{s}-{row[0]}") for s in SEEDS for row in rows(s)]


@functools.cache
def definitions(path):
    """Names of the tests of a file, those of a class after its name."""
    found = set()
    for node in ast.parse((ROOT / path).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [n for n in node.body if isinstance(n, ast.FunctionDef)]
            found |= {f"{node.name}::{method.name}" for method in methods}
    return found


def resolve(path, name):
    """What a file of ours calls by a dotted name; raises if there is no such thing."""
    value = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        value = getattr(value, part)
    return value


def test_every_seed_has_rows():
    assert tuple(SECTIONS) == SEEDS
    assert all(len(rows(seed)) > 20 for seed in SEEDS)


@pytest.mark.parametrize(("statement", "code", "tests", "_deviation"), ROWS)
def test_a_row_names_code_and_tests(statement, code, tests, _deviation):
    assert statement
    places = REFERENCE.findall(code)
    assert places
    for path, name in places:
        assert (ROOT / path).is_file(), path
        assert not name or resolve(path, name) is not None
    named = REFERENCE.findall(tests)
    assert named
    for path, name in named:
        assert name.rpartition("::")[2].startswith("test_")
        assert name in definitions(path), f"{path}::{name}"
