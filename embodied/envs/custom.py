"""Environments of your own: a class or factory named by a file or module.

It makes an `embodied.Env`, a `gymnasium.Env` or a `dm_env.Environment`. It is called
without arguments, or with those of `seed` and `index` that it asks for by name.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import os
import pathlib
import sys
import types
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from embodied.core import base
from embodied.envs import options
from embodied.envs.registry import TaskError, install_line, suites
from embodied.envs.tracebacks import user_traceback

HELD = "python:"  # Tasks of factories that only the running program knows.
KINDS = "an embodied.Env, a gymnasium.Env or a dm_env.Environment"

_held: dict[str, Callable[..., Any]] = {}


def make(
    name: str,
    seed: int = 0,
    index: int = 0,
    kwargs: str | Mapping[str, Any] = "{}",
    render: bool = False,
    vector: bool = True,
    repeat: int = 1,
    time_limit: int = 0,
    resize: Sequence[int] = (64, 64),
    gray: bool = False,
    shown: bool = False,
) -> base.Env:
    """The environment that a task names, with the options of `env.custom`.

    What is `shown` renders for people; with `render` the agent sees it as well.
    """
    factory = load(name)
    arguments = {**_offered(factory, seed, index), **options.parse_kwargs(kwargs)}
    if (render or shown) and "render_mode" in _parameters(factory):
        arguments.setdefault("render_mode", "rgb_array")
    made = _call(name, factory, arguments)
    env = adapt(name, made, seed, render, vector)
    return options.present(env, repeat, time_limit, resize, gray, "env.custom")


def adapt(task: str, env: Any, seed: int, render: bool, vector: bool) -> base.Env:
    """What a factory made, as an environment of ours."""
    if _is_instance(env, "gymnasium", "Env"):
        from embodied.envs import gymnasium

        return gymnasium.adapt(task, env, seed, render, vector, "env.custom")
    if isinstance(env, base.Env):
        _refuse_options(task, render, vector)
        return env
    if _is_instance(env, "dm_env", "Environment"):
        from embodied.envs import dm_env

        _refuse_options(task, render, vector)
        return dm_env.adapt(task, env)
    rule = f"made {_describe(env)}, which is not {KINDS}"
    raise TaskError(task, rule, "let it return one of these")


def load(task: str) -> Callable[..., Any]:
    """The class or factory that a task names."""
    if task in _held:
        return _held[task]
    if task.startswith(HELD):
        rule = "was given to dreamerv3.train as an object that has no importable name"
        raise TaskError(task, rule, "run the program again that did so")
    source, _, name = task.rpartition(":")
    module = _load_module(task, source)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise TaskError(task, *_missing(source, found, part))
        found = getattr(found, part)
    if not callable(found):
        rule = f"'{name}' is {_describe(found)}"
        raise TaskError(task, rule, "name a class, or a function that makes one")
    return found


def absolute(task: str) -> str:
    """A task that names a file as it is named in every working directory."""
    source, _, name = task.rpartition(":")
    if not source.endswith(".py"):
        return task
    return f"{os.path.abspath(os.path.expanduser(source))}:{name}"


def label(task: str) -> str:
    """A task for people: a file without its folder."""
    source, _, name = task.rpartition(":")
    return f"{os.path.basename(source)}:{name}" if source.endswith(".py") else task


def hold(task: str, factory: Callable[..., Any]) -> None:
    """Let a task of this process stand for a factory without importable name."""
    assert task.startswith(HELD), task
    _held[task] = factory


@functools.cache
def load_file(path: str) -> types.ModuleType:
    """The module of a file, under a name that is the same in every process.

    If the running program has imported the file already, it is that module, so that
    what the program changed in it counts.
    """
    stem = pathlib.Path(path).stem
    imported = sys.modules.get(stem)
    if imported is not None and getattr(imported, "__file__", None) == path:
        return imported
    name = f"task_{stem}_{zlib.crc32(os.fsencode(path)):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None, path
    assert spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    folder = os.path.dirname(path)
    if folder not in sys.path:
        sys.path.append(folder)  # For modules that lie beside it.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _load_module(task: str, source: str) -> types.ModuleType:
    if not source.endswith(".py"):
        _check_module(task, source)
    elif not os.path.isfile(os.path.expanduser(source)):
        raise TaskError(task, *_missing_file(source))
    try:
        if source.endswith(".py"):
            return load_file(os.path.abspath(os.path.expanduser(source)))
        return importlib.import_module(source)
    except Exception as error:
        rule = f"importing {source} raised:\n{user_traceback(error)}"
        raise TaskError(task, rule, "fix the error in the traceback") from None


def _check_module(task: str, source: str) -> None:
    """Whether the module can be found, apart from whether it can be imported."""
    if os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())  # As `python -m` does.
    try:
        found = importlib.util.find_spec(source)
    except ModuleNotFoundError:
        found = None
    except Exception as error:
        rule = f"importing {source} raised:\n{user_traceback(error)}"
        raise TaskError(task, rule, "fix the error in the traceback") from None
    if found is None:
        rule = f"there is no module '{source}'"
        remedy = "install it, run in the folder it is in, or name the file: "
        raise TaskError(task, rule, f"{remedy}path/to/file.py:Name")


def _missing_file(source: str) -> tuple[str, str]:
    path = pathlib.Path(os.path.expanduser(source))
    rule = f"there is no file {source}"
    if not path.is_absolute():
        rule += f" in {os.getcwd()}"
    there = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
    near = difflib.get_close_matches(path.name, there, 3)
    remedy = f"did you mean {' or '.join(str(path.parent / n) for n in near)}?"
    return rule, remedy if near else "give the path of the file, then : and the name"


def _missing(source: str, owner: Any, name: str) -> tuple[str, str]:
    public = [key for key in vars(owner) if not key.startswith("_")]
    own = [key for key in public if callable(getattr(owner, key))]
    near = difflib.get_close_matches(name, own, 3)
    remedy = f"it has {', '.join(own) or 'nothing'}"
    if near:
        remedy = f"did you mean {' or '.join(near)}?"
    return f"{source} has no '{name}'", remedy


def _offered(factory: Callable[..., Any], seed: int, index: int) -> dict[str, int]:
    parameters = _parameters(factory)
    return {k: v for k, v in (("seed", seed), ("index", index)) if k in parameters}


def _parameters(factory: Callable[..., Any]) -> Sequence[str]:
    try:
        return list(inspect.signature(factory).parameters)
    except ValueError:  # Some things written in C tell nothing.
        return ()


def _call(task: str, factory: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    try:
        return factory(**arguments)
    except TaskError:
        raise
    except ImportError as error:
        rule = f"making it raised:\n{user_traceback(error)}"
        known = [s for s in suites().values() if error.name in s.needs]
        remedy = install_line(known[0]) if known else f"install {error.name}"
        raise TaskError(task, rule, remedy) from None
    except Exception as error:
        shown = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
        rule = f"calling it with ({shown}) raised:\n{user_traceback(error)}"
        remedy = "fix the error in the traceback"
        if inspect.isabstract(factory):
            remedy = "define these methods and properties in the class"
        elif isinstance(error, TypeError):
            remedy += ", or give arguments with --env.custom.kwargs '{\"name\": 1}'"
        raise TaskError(task, rule, remedy) from None


def _refuse_options(task: str, render: bool, vector: bool) -> None:
    """Raise if an option is set that works for environments of Gymnasium only."""
    if not render and vector:
        return
    key, value = ("render", False) if render else ("vector", True)
    rule = f"env.custom.{key} {not value} needs an environment of Gymnasium"
    remedy = f"leave it {value}; choose in your class what is observed"
    raise TaskError(task, rule, remedy)


def _is_instance(value: Any, module: str, name: str) -> bool:
    """Whether it is an object of a package, which then is imported already."""
    kind = getattr(sys.modules.get(module), name, None)
    return kind is not None and isinstance(value, kind)


def _describe(value: Any) -> str:
    return f"an object of {type(value).__module__}.{type(value).__qualname__}"
