"""The types of settings are those of their defaults, and every read has one."""

import ast
import pathlib
import typing

import ruamel.yaml

import dreamerv3
import embodied
from dreamerv3.settings import config, schema
from embodied.run import settings as run_settings

SCALARS = (bool, int, float, str)
TYPED = {"Settings", "AgentSettings", "ModelSettings"}


def check(kind, values, prefix=""):
    hints = typing.get_type_hints(kind)
    assert set(hints) == set(values), prefix
    for name, value in values.items():
        key, hint = f"{prefix}{name}", hints[name]
        origin = typing.get_origin(hint)
        if hint in SCALARS:
            assert type(value) is hint, key
        elif isinstance(value, tuple):
            (element,) = typing.get_args(hint)
            assert {type(each) for each in value} == {element}, key
        elif origin:
            assert isinstance(value, origin), key
        else:
            check(hint, value, f"{key}.")


def test_every_key_has_the_type_of_its_default():
    check(schema.Settings, config.nest(config.read_blocks().defaults))


def test_no_default_is_written_twice():
    yaml = ruamel.yaml.YAML(typ="safe")
    own = config.flatten(yaml.load(config.FILE)[config.DEFAULTS])
    shared = config.flatten(yaml.load(run_settings.FILE))
    assert not set(own) & set(shared)
    assert {**own, **shared} == config.read_blocks().defaults


def test_settings_are_typed_where_they_are_read():
    """So that a misspelt read fails `make check`."""
    kinds = set()
    for package in (dreamerv3, embodied):
        for path in pathlib.Path(package.__file__).parent.rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.arg) and node.arg == "config":
                    kinds.add(node.annotation and ast.unparse(node.annotation))
    assert kinds > TYPED
    assert not kinds & {None, "Any", "elements.Config"}
