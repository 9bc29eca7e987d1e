"""What a run is going to do, in plain words, printed before it starts."""

from __future__ import annotations

import glob
import json
import math
import pathlib
import shutil
from collections.abc import Sequence
from typing import Any

import elements
import numpy as np

from dreamerv3.logdir import NO_TASK, has_run
from embodied.core import base
from embodied.run.parallel.launch import RAY

OFFLINE = "train_offline"
RECENT = 20  # Episodes whose mean score is told at the end.
TAIL = 1 << 20  # Bytes of the metrics in which the last line must be.
LARGE = 8192  # Recurrent units of size200m, the size of who chooses none.
# Devices of GPUs (NVIDIA, AMD, Windows) and TPUs.
ACCELERATORS = (
    "/dev/nvidia[0-9]*",
    "/dev/kfd",
    "/dev/dxg",
    "/dev/accel*",
    "/dev/vfio/[0-9]*",
)


def describe(
    config: elements.Config,
    obs_space: base.Spaces,
    act_space: base.Spaces,
    notes: Sequence[str] = (),
) -> str:
    """Lines on task, model, replay, training, end and log directory."""
    spaces = {**obs_space, **act_space, **latent_space(config)}
    rows = {
        "Task": _task(config, obs_space, act_space),
        "Model": _model(config),
        "Replay": _replay(config, spaces),
        "Training": training(config),
        "Ends": _end(config),
        "Logs": _logs(config),
    }
    lines = [f"{name + ':':<10}{text}" for name, text in rows.items()]
    notes = [*notes, *_size_hint(config), *_disk_hint(config, spaces)]
    return "\n".join([*lines, *(f"{'Note:':<10}{note}" for note in notes)])


def _logs(config: elements.Config) -> str:
    if config.script == "eval_only":
        return config.logdir
    if not has_run(config.logdir):
        return f"{config.logdir} (a new run)"
    step = _last_step(config)
    if step >= config.run.steps:
        return (
            f"{config.logdir} (the run there is complete with {step:,} steps: "
            "give a larger --run.steps to go on)"
        )
    return f"{config.logdir} (goes on with the run there)"


def closing(config: elements.Config) -> str:
    """The score of the last episodes, and what can be done next."""
    flag, step = f"dreamerv3 --logdir {config.logdir}", _last_step(config)
    more = f" --run.steps {2 * step}" if step >= config.run.steps else ""
    score, evaluate = _score(config), f"dreamerv3 eval {config.logdir}"
    if config.task == NO_TASK:
        score, evaluate = "none, there was no environment", f"{flag} --task TASK"
    elif not any(pathlib.Path(config.logdir, "ckpt", "agent").glob("0*")):
        evaluate = "no agent was saved yet"
    return f"Score:    {score}\nGo on:    {flag}{more}\nEvaluate: {evaluate}"


def _score(config: elements.Config) -> str:
    """How the run went, from what its logger wrote."""
    elsewhere = config.script == "parallel" and config.run.remote_logger
    if elsewhere or "jsonl" not in config.logger.outputs:
        return "the scores are not kept on this machine"
    name, key, recent = "scores.jsonl", "episode/score", RECENT
    kind, none = "episodes", "no episode has ended yet"
    if config.script == OFFLINE:
        name, key = "metrics.jsonl", "eval/episode/score"
        recent = config.run.eval_episodes
        kind, none = "evaluated episodes", "no evaluation was completed"
    found = _read_scores(pathlib.Path(config.logdir) / name, key)[-recent:]
    scores = [score for score in found if score is not None]  # Not finite.
    if not scores:
        return none
    return f"mean score of the last {len(scores)} {kind} {np.mean(scores):.2f}"


def _last_step(config: elements.Config) -> int:
    """The step of the last complete line of metrics, or 0 if none can be read."""
    path = pathlib.Path(config.logdir) / "metrics.jsonl"
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            rows = file.read().split(b"\n")[:-1]
        return int(json.loads(rows[-1])["step"])
    except (OSError, LookupError, TypeError, ValueError):
        return 0  # Only a remark depends on it.


def _read_scores(path: pathlib.Path, key: str) -> list[float | None]:
    """A metric of all complete lines; a killed logger may leave half of one."""
    if not path.exists():
        return []
    with path.open() as file:
        rows = [row for row in file if row.endswith("\n") and f'"{key}"' in row]
    return [json.loads(row)[key] for row in rows]


def training(config: elements.Config) -> str:
    """The train ratio as gradient updates per environment step."""
    if config.script == "eval_only":
        return "none, the agent is only evaluated"
    if config.random_agent or not config.run.train_ratio:
        return "none, the agent stays as it is"
    frames = config.batch_size * config.batch_length
    updates = config.run.train_ratio / frames
    text = f"{updates:.3g} gradient updates per environment step"
    if updates < 1:
        text += f", one every {1 / updates:.3g} steps"
    ratio = config.run.train_ratio
    return (
        f"{text} (train ratio {ratio:g}: each step is replayed {ratio:g} times, "
        f"in batches of {config.batch_size} x {config.batch_length})"
    )


def latent_space(config: elements.Config) -> base.Spaces:
    """What the agent stores with each step, known without making one."""
    if config.random_agent or not config.replay_context:
        return {}
    rssm = config.agent.dyn.rssm
    return {
        "dyn/deter": elements.Space(np.float32, rssm.deter),
        "dyn/stoch": elements.Space(np.uint8, rssm.stoch),
    }


def step_bytes(spaces: base.Spaces) -> int:
    """Raw bytes of one stored step."""
    kept = {k: v for k, v in spaces.items() if not k.startswith(base.LOG_PREFIX)}
    sizes = [np.dtype(v.dtype).itemsize * _size(v.shape) for v in kept.values()]
    return sum(sizes)


def _task(
    config: elements.Config, obs_space: base.Spaces, act_space: base.Spaces
) -> str:
    special = {base.REWARD, base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL, base.RESET}
    obs = [_space(k, v) for k, v in obs_space.items() if _own(k, special)]
    act = [_space(k, v) for k, v in act_space.items() if _own(k, special)]
    evaluates = config.script in ("eval_only", OFFLINE)
    envs = config.run.eval_envs if evaluates else config.run.envs
    place = f" in {envs} environment{'' if envs == 1 else 's'}"
    if (config.script, config.launcher) == ("parallel", RAY):
        place += " on a Ray cluster"
    if config.script == OFFLINE:
        place = "" if config.task == NO_TASK else f"{place} for evaluation"
        place += f"; learns from {config.replay.source}"
    return f"{config.task}{place}; sees {', '.join(obs)}; does {', '.join(act)}"


def _model(config: elements.Config) -> str:
    if config.random_agent:
        return "random actions, 0 parameters"
    rssm = config.agent.dyn.rssm
    return (
        f"{config.method} with {rssm.deter:,} recurrent units and {rssm.stoch} x "
        f"{rssm.classes} latents; its parameters are listed once it is made"
    )


def _size_hint(config: elements.Config) -> list[str]:
    """A word to whoever starts the default size, or a larger one, on a CPU."""
    if config.random_agent or config.script == "eval_only":
        return []
    units = config.agent.dyn.rssm.deter
    if units < LARGE or not _on_cpu(config.jax.platform):
        return []
    return [
        f"a model with {units:,} recurrent units is very slow on a CPU; "
        "--configs size1m or size12m is quicker, and --configs demo is made for one"
    ]


def _on_cpu(platform: str) -> bool:
    """Whether JAX will run on the CPU, without the seconds that asking it takes."""
    if platform == "auto":
        return not any(glob.glob(pattern) for pattern in ACCELERATORS)
    return platform == "cpu"


def _replay(config: elements.Config, spaces: base.Spaces) -> str:
    if config.script == "eval_only":
        return "none"
    steps = config.replay.size
    total = steps * step_bytes(spaces)
    return (
        f"up to {steps:,} steps, {human_bytes(total)} of disk "
        f"({human_bytes(step_bytes(spaces))} each); mapped, so that memory is used "
        "only as far as it is free"
    )


def _disk_hint(config: elements.Config, spaces: base.Spaces) -> list[str]:
    """A word to whoever begins a run whose replay will not fit on the disk."""
    elsewhere = config.script == "eval_only" or config.run.remote_replay
    if elsewhere or has_run(config.logdir):
        return []
    logdir = pathlib.Path(config.logdir).absolute()
    there = next(path for path in (logdir, *logdir.parents) if path.exists())
    each, free = step_bytes(spaces), shutil.disk_usage(there).free
    need = each * min(config.replay.size, config.run.steps)
    if need <= free:
        return []
    return [
        f"the replay may grow to {human_bytes(need)}, but the disk of {there} has "
        f"{human_bytes(free)} free; --replay.size {free // each // 2} takes half of it"
    ]


def _end(config: elements.Config) -> str:
    if config.script == "eval_only":
        return f"after {config.run.eval_episodes} episodes"
    text = f"after {config.run.steps:,} environment steps"
    if config.script == OFFLINE:
        frames = config.batch_size * config.batch_length
        updates = math.ceil(config.run.steps * config.run.train_ratio / frames)
        text = f"after {updates:,} gradient updates, those of {config.run.steps:,} "
        text += "environment steps"
    if config.run.duration:
        text += f" or {config.run.duration:g} seconds"
    return text


def human_bytes(amount: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} TB"


def _space(key: str, space: base.Space) -> str:
    shape = "x".join(map(str, space.shape))
    if space.dtype == np.uint8 and len(space.shape) == 3:
        return f"{key} ({shape} pixels)"
    if space.discrete:
        classes = int(np.max(space.classes))
        return f"{key} ({shape + ' of ' if shape else ''}{classes} choices)"
    return f"{key} ({shape or 1} numbers)"


def _own(key: str, special: set[str]) -> bool:
    return key not in special and not key.startswith(base.LOG_PREFIX)


def _size(shape: tuple[Any, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
