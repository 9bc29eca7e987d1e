"""Settings of loops and roles: their types, and what a program may leave out."""

import ast
import dataclasses
import pathlib
import typing

import elements
import pytest

import embodied
from embodied.run.settings import DEFAULTS, RunSettings

PACKAGE = pathlib.Path(embodied.__file__).parent
GIVEN = ("logdir", "config")  # Settings without a default.


def test_every_setting_has_a_type_and_every_type_a_default():
    def check(kind, values):
        hints = typing.get_type_hints(kind)
        assert {name for name in hints if name not in GIVEN} == set(values)
        for name, value in values.items():
            if dataclasses.is_dataclass(hints[name]):
                check(hints[name], value)
            else:
                assert type(value) is hints[name], name
        fields = dataclasses.fields(kind)
        assert all(each.default is dataclasses.MISSING for each in fields)

    check(RunSettings, DEFAULTS)


def test_what_is_given_stays_and_the_rest_has_defaults():
    args = elements.Config(logdir="here", envs=3, usage={"nvsmi": True}, other=1)
    found = RunSettings.of(args)
    assert (found.logdir, found.envs, found.budget) == ("here", 3, DEFAULTS["budget"])
    assert dataclasses.asdict(found.usage) == {**DEFAULTS["usage"], "nvsmi": True}
    assert RunSettings.of(found) is found
    assert RunSettings.of({"logdir": "here"}).ray.address == "auto"


def test_a_path_and_a_port_become_text():
    found = RunSettings.of({"logdir": pathlib.Path("here"), "logger_addr": 7001})
    assert (found.logdir, found.logger_addr) == ("here", "7001")


def test_the_record_is_what_the_user_set_or_else_the_settings():
    found = RunSettings.of({"logdir": "here", "envs": 3})
    assert found.config == {**DEFAULTS, "logdir": "here", "envs": 3}
    assert RunSettings.of({"logdir": "here", "config": {"a": 1}}).config == {"a": 1}


def arguments(path):
    """The annotation of each parameter `args`, by function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef):
            for each in (*node.args.args, *node.args.kwonlyargs):
                if each.arg == "args" and each.annotation:
                    yield node, ast.unparse(each.annotation)


@pytest.mark.parametrize("folder", ["run", "cluster", "testing"])
def test_settings_are_typed_where_they_are_read(folder):
    """So that a misspelt read fails `make check`: only the public border converts."""
    kinds = set()
    for path in (PACKAGE / folder).rglob("*.py"):
        for function, kind in arguments(path):
            kinds.add(kind)
            converts = "RunSettings.of(args)" in ast.unparse(function)
            assert kind == ("Given" if converts else "RunSettings"), function.name
    assert kinds
