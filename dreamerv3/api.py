"""Training from Python: what the command does, with an environment as an object."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import pathlib
import re
import runpy
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from dreamerv3 import main
from dreamerv3.settings import config, flags
from embodied.envs import custom

_starting: list[str] = []  # Programs whose call of `train` is under way.


class GuardError(RuntimeError):
    """A program that trains when it is imported, which its processes have to do."""


def train(
    env: str | Callable[..., Any],
    configs: str | Sequence[str] = (),
    **overrides: Any,
) -> pathlib.Path:
    """Train on an environment until the run ends; returns the log directory.

    `env` is a task such as "gymnasium_CartPole-v1", or a class or factory that makes
    an `embodied.Env`, a `gymnasium.Env` or a `dm_env.Environment`. `configs` names
    blocks of settings. Other settings go by their key, `logdir="logdir/first"`, by
    their group, `run={"steps": 1000}`, or by both, `**{"run.steps": 1000}`.

    Mistakes raise before anything is started: `dreamerv3.ConfigError` for
    settings, `embodied.envs.registry.TaskError` for a task that cannot be made or
    reset, or whose first observation breaks its spaces, and
    `embodied.core.wrappers.SpaceError` for one whose spaces no agent can take.

    The run has several processes, each of which imports the program that called this.
    So a program has to call it under `if __name__ == "__main__":`.
    """
    with _guarded():
        blocks = config.read_blocks()
        task, factory = name_task(env)
        if factory:
            custom.hold(task, factory)
        names = [configs] if isinstance(configs, str) else list(configs)
        values = {"task": [task], **flag_values(overrides, blocks.defaults)}
        typed = flags.Flags(names, values)
        return main.start(blocks, typed, [], factory)


def name_task(
    env: str | Callable[..., Any],
) -> tuple[str, Callable[..., Any] | None]:
    """The task that stands for an environment, and its factory if no name does.

    A class or function of an installed package is named by its module. One of the
    running program, or of a file beside it, is named by the file, so that commands
    work in any folder; what `python -m` runs, by its module.
    """
    if isinstance(env, str):
        return env, None
    if not callable(env):
        kind = type(env).__qualname__
        rule = "must be a task, a class or a factory, since every process makes its own"
        problem = config.Problem("env", kind, rule, "give the class, not an object")
        raise config.ConfigError([problem])
    module, name = getattr(env, "__module__", ""), getattr(env, "__qualname__", "")
    source = _source(module)
    if source and name and "<" not in name:
        return f"{source}:{name}", None
    name = name or getattr(type(env), "__qualname__", "env")
    return custom.HELD + re.sub(r"\W+", "_", name).strip("_"), env


def _source(module: str) -> str:
    """What a task says to import a module, or nothing if it cannot be imported."""
    if module == "__main__":
        if _main_module():
            return _main_module()
        file = _main_file()
        return str(file) if file and file.suffix == ".py" else ""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return ""
    if spec is None:
        return ""
    origin = str(spec.origin)
    package = "." in module or spec.submodule_search_locations is not None
    if package or not origin.endswith(".py") or _installed(origin):
        return module
    return origin


def _installed(file: str) -> bool:
    """Whether a file is part of Python or of something that was installed."""
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    return any(pathlib.Path(file).is_relative_to(folder) for folder in folders)


def _main_file() -> pathlib.Path | None:
    """The running program, unless it is typed in or in a notebook."""
    file = getattr(sys.modules["__main__"], "__file__", None)
    return (
        pathlib.Path(file).absolute() if file and pathlib.Path(file).exists() else None
    )


def _main_module() -> str:
    """The module that `python -m` runs; nothing if the program is a file."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return "" if spec is None or spec.name == "__main__" else spec.name


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """Refuse to start if importing the program would start it once more."""
    file = str(_main_file() or "")
    if _starting:
        raise GuardError(
            f"{_starting[0]} calls dreamerv3.train when it is imported, which every "
            "process of the run has to do. Put the call under "
            'if __name__ == "__main__":'
        )
    _starting.append(file)
    try:
        if file:
            _import_program(file)
        yield
    finally:
        _starting.clear()


def _import_program(file: str) -> None:
    """Import the program as each process of the run will do."""
    try:
        if _main_module():  # Its imports may be relative.
            runpy.run_module(_main_module(), run_name="__mp_main__", alter_sys=True)
        else:
            runpy.run_path(file, run_name="__mp_main__")
    except GuardError as error:
        raise GuardError(str(error)) from None  # Its own frames say nothing more.


def flag_values(
    overrides: Mapping[str, Any], defaults: config.Flat
) -> dict[str, list[Any]]:
    """Overrides as flags: dotted keys, each with a list of values."""
    values: dict[str, list[Any]] = {}
    for key, value in overrides.items():
        if isinstance(value, Mapping) and key in defaults:
            values[key] = [json.dumps(value)]
        elif isinstance(value, Mapping):
            children = {f"{key}.{name}": child for name, child in value.items()}
            values.update(flag_values(children, defaults))
        elif isinstance(value, list | tuple):
            values[key] = list(value)
        else:
            values[key] = [str(value) if isinstance(value, pathlib.Path) else value]
    return values
