"""What a run is going to do, in plain words, printed before it starts."""

from __future__ import annotations

import math
import pathlib
import shlex
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np

from dreamerv3.model import latents
from dreamerv3.settings.logdir import NO_TASK, has_run
from dreamerv3.settings.schema import Settings
from embodied.core import base, machine, runfiles
from embodied.core.checkpoint import complete
from embodied.metrics.jsonl import SCORE, read_rows
from embodied.run.parallel.launch import RAY

OFFLINE = "train_offline"
RECENT = 20  # Episodes whose mean score is told at the end.
TAIL = 1 << 20  # Bytes of the metrics in which the last line must be.
LARGE = 8192  # Recurrent units of size200m, the size of who chooses none.


def describe(
    config: Settings,
    obs_space: base.Spaces,
    act_space: base.Spaces,
    notes: Sequence[str] = (),
) -> str:
    """Lines on task, device, model, replay, training, end and log directory."""
    spaces = {**obs_space, **act_space, **latent_space(config)}
    rows = {
        "Task": _task(config, obs_space, act_space),
        "Device": _device(config),
        "Model": _model(config),
        "Replay": _replay(config, spaces),
        "Training": training(config),
        "Ends": _end(config),
        "Logs": _logs(config),
    }
    lines = [f"{name + ':':<10}{text}" for name, text in rows.items()]
    notes = [
        *notes,
        *_device_hint(config),
        *_size_hint(config),
        *_disk_hint(config, spaces),
    ]
    return "\n".join([*lines, *(f"{'Note:':<10}{note}" for note in notes)])


def _logs(config: Settings) -> str:
    if config.script == "eval_only":
        return config.logdir
    if not has_run(config.logdir):
        return f"{config.logdir} (a new run)"
    step = _last_step(config)
    if step >= config.run.steps:
        return (
            f"{config.logdir} (the run there is complete with {step:,} steps: "
            "give a larger --run.steps to continue)"
        )
    return f"{config.logdir} (resuming the existing run)"


def closing(config: Settings) -> str:
    """The score of the last episodes, and what can be done next."""
    logdir = shlex.quote(config.logdir)
    flag, step = f"dreamerv3 --logdir {logdir}", _last_step(config)
    more = f" --run.steps {2 * step}" if step >= config.run.steps else ""
    score, evaluate = _score(config), f"dreamerv3 eval {logdir}"
    if config.task == NO_TASK:
        score, evaluate = "none, there was no environment", f"{flag} --task TASK"
    elif not complete(runfiles.checkpoints(config.logdir)):
        evaluate = "no agent was saved yet"
    return f"Score:    {score}\nResume:   {flag}{more}\nEvaluate: {evaluate}"


def _score(config: Settings) -> str:
    """How the run went, from what its logger wrote."""
    elsewhere = config.script == "parallel" and config.run.remote_logger
    if elsewhere or "jsonl" not in config.logger.outputs:
        return "the scores are not kept on this machine"
    name, key, recent = runfiles.SCORES, SCORE, RECENT
    kind, none = "episodes", "no episode has ended yet"
    if config.script == OFFLINE:
        name, key = runfiles.METRICS, f"eval/{SCORE}"
        recent = config.run.eval_episodes
        kind, none = "evaluated episodes", "no evaluation was completed"
    found = _read_scores(pathlib.Path(config.logdir) / name, key)[-recent:]
    scores = [score for score in found if score is not None]  # Not finite.
    if not scores:
        return none
    return f"mean score of the last {len(scores)} {kind} {np.mean(scores):.2f}"


def _last_step(config: Settings) -> int:
    """The step of the last complete line of metrics, or 0 if none can be read."""
    rows = read_rows(pathlib.Path(config.logdir) / runfiles.METRICS, last=TAIL)
    return int(rows[-1]["step"]) if rows else 0  # Only a remark depends on it.


def _read_scores(path: pathlib.Path, key: str) -> list[float | None]:
    """A metric of all rows that have it."""
    return [row[key] for row in read_rows(path) if key in row]


def training(config: Settings) -> str:
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


def latent_space(config: Settings) -> base.Spaces:
    """What the agent stores with each step, known without making one."""
    if config.random_agent or not config.replay_context:
        return {}
    return latents.spaces(config.agent.dyn.rssm)


def step_bytes(spaces: base.Spaces) -> int:
    """Raw bytes of one stored step."""
    kept = {k: v for k, v in spaces.items() if base.is_stored(k)}
    sizes = [np.dtype(v.dtype).itemsize * _size(v.shape) for v in kept.values()]
    return sum(sizes)


def _task(config: Settings, obs_space: base.Spaces, act_space: base.Spaces) -> str:
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
    return f"{config.task}{place}; sees {', '.join(obs)}; acts with {', '.join(act)}"


def _model(config: Settings) -> str:
    if config.random_agent:
        return "random actions, 0 parameters"
    rssm = config.agent.dyn.rssm
    return (
        f"{config.method} with {rssm.deter:,} recurrent units and {rssm.stoch} x "
        f"{rssm.classes} latents; parameters are listed once it is built"
    )


def _size_hint(config: Settings) -> list[str]:
    """A hint if the default size, or a larger one, starts on a CPU."""
    if config.random_agent or config.script == "eval_only":
        return []
    units = config.agent.dyn.rssm.deter
    if units < LARGE or machine.find_platform(config.jax.platform) != "cpu":
        return []
    return [
        f"a model with {units:,} recurrent units is very slow on a CPU; "
        "--configs size1m or size12m is quicker, and --configs demo is meant for CPUs"
    ]


def _device(config: Settings) -> str:
    """What the agent computes on."""
    if config.random_agent:
        return "none, actions are random"
    if (config.script, config.launcher) == ("parallel", RAY):
        return "that of the node that Ray gives to the agent"
    if config.jax.mock_devices:
        return f"{machine.describe('cpu')}, split into {config.jax.mock_devices}"
    return machine.describe(config.jax.platform)


def _device_hint(config: Settings) -> list[str]:
    """A remark on a GPU or TPU that is there but not used."""
    local = config.launcher != RAY and not config.random_agent
    return machine.unused() if local and config.jax.platform == "auto" else []


def _replay(config: Settings, spaces: base.Spaces) -> str:
    if config.script == "eval_only":
        return "none"
    steps = config.replay.size
    total = steps * step_bytes(spaces)
    return (
        f"up to {steps:,} steps, {human_bytes(total)} of disk "
        f"({human_bytes(step_bytes(spaces))} each); memory-mapped, "
        "in memory that is free otherwise"
    )


def _disk_hint(config: Settings, spaces: base.Spaces) -> list[str]:
    """A hint if a new run has a replay that will not fit on the disk."""
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


def _end(config: Settings) -> str:
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
    return key not in special and base.is_stored(key)


def _size(shape: tuple[Any, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
