"""Settings of loops and roles as types; `settings.yaml` has meanings and defaults."""

from __future__ import annotations

import dataclasses
import pathlib
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

import ruamel.yaml

from embodied.core.base import SetupError
from embodied.core.usage import UsageSettings

T = TypeVar("T")
FILE = pathlib.Path(__file__).parent / "settings.yaml"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RaySettings:
    """The block `ray`."""

    address: str
    cpus: float
    gpus: float
    cpus_core: float
    memory: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunBlock:
    """The block `run`."""

    steps: int
    duration: float
    envs: int
    eval_envs: int
    eval_episodes: int
    train_ratio: float
    log_every: float
    report_every: float
    save_every: float
    report_batches: int
    env_processes: bool
    from_checkpoint: str
    from_checkpoint_regex: str
    episode_timeout: float
    transport: str
    key_dir: str
    coordinator_addr: str
    actor_addr: str
    replay_addr: str
    logger_addr: str
    learners: int
    learner_addr: str
    actor_batch: int
    actor_timeout: float
    actor_threads: int
    agent_process: bool
    envs_per_process: int
    remote_envs: bool
    remote_replay: bool
    remote_logger: bool
    budget: int
    env_timeout: float
    agent_timeout: float
    learner_timeout: float
    learner_start_timeout: float
    stop_timeout: float
    usage: UsageSettings


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSettings(RunBlock):
    """All that loops and roles read: the block `run` and what stands beside it."""

    logdir: str
    launcher: str
    ray: RaySettings
    batch_size: int
    batch_length: int
    report_length: int
    replay_context: int
    config: Mapping[str, Any]  # Everything that the user set, for the record.

    @classmethod
    def of(cls, given: Given) -> RunSettings:
        """The settings a program gave, with the defaults of those it left out.

        Keys of other programs are ignored. Without `config`, these are the record.
        """
        if isinstance(given, RunSettings):
            return given
        if "logdir" not in given:
            raise SetupError(
                "args.logdir is missing: the directory for checkpoints, metrics and "
                "keys"
            )
        return build(cls, given, {**DEFAULTS, "config": {**DEFAULTS, **given}})


Given = Mapping[str, Any] | RunSettings  # `elements.Config` is such a mapping.


def build(kind: type[T], values: Mapping[str, Any], defaults: Mapping[str, Any]) -> T:
    """A dataclass of settings from a tree of them."""
    hints = typing.get_type_hints(kind)
    fields: dict[str, Any] = {}
    for name, hint in hints.items():
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            fields[name] = build(hint, values.get(name, {}), defaults[name])
        else:
            value = values[name] if name in values else defaults[name]
            # A path as a log directory, or a port as an address.
            fields[name] = str(value) if hint is str else value
    return kind(**fields)


def _defaults() -> dict[str, Any]:
    tree = ruamel.yaml.YAML(typ="safe").load(FILE.read_text())
    return {**tree.pop("run"), **tree}


DEFAULTS = _defaults()
