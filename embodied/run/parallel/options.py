"""What a program that calls roles by itself may leave out of their settings."""

from __future__ import annotations

from typing import Any

import elements

from embodied import rpc

# Values of the block `run` in dreamerv3/configs.yaml, which the command always gives.
DEFAULTS: dict[str, Any] = {
    "steps": 10_000_000_000,
    "duration": 0.0,
    "envs": 16,
    "eval_envs": 4,
    "train_ratio": 32.0,
    "log_every": 60.0,
    "report_every": 300.0,
    "save_every": 900.0,
    "report_batches": 1,
    "from_checkpoint": "",
    "from_checkpoint_regex": ".*",
    "episode_timeout": 180.0,
    "key_dir": "",
    "actor_addr": rpc.AUTO,
    "replay_addr": rpc.AUTO,
    "logger_addr": rpc.AUTO,
    "learners": 1,
    "learner_addr": rpc.AUTO,
    "actor_batch": -1,
    "actor_timeout": 0.01,
    "actor_threads": 1,
    "agent_process": True,
    "envs_per_process": 1,
    "remote_envs": False,
    "remote_replay": False,
    "remote_logger": False,
    "budget": 5,
    "env_timeout": 60.0,
    "agent_timeout": 600.0,
    "stop_timeout": 60.0,
}
# Those that are not in that block.
OTHERS: dict[str, Any] = {
    "launcher": "local",
    "batch_size": 16,
    "batch_length": 64,
    "report_length": 32,
    "replay_context": 1,
}


def complete(args: elements.Config) -> elements.Config:
    """The settings with the defaults of those that are not there."""
    missing = {k: v for k, v in (DEFAULTS | OTHERS).items() if k not in args}
    return elements.Config({**missing, **args}) if missing else args
