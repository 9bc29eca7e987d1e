"""Keys of the public DreamerV3 implementation and what they correspond to here.

`TABLE` has every public key that is not a key of `configs.yaml`: renamed, fixed to
one value, or without effect. `translate` applies it to one setting.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from dreamerv3.settings.config import (
    ConversionError,
    Problem,
    convert,
    is_pattern,
    nearest,
    show,
)


class Renamed(NamedTuple):
    """The setting as it is written here."""

    key: str
    value: Any


class Ignored(NamedTuple):
    """A setting that changes nothing here."""

    reason: str


class Rejected(NamedTuple):
    """A setting that is not supported."""

    rule: str
    remedy: str


class Rename(NamedTuple):
    """A public key that has another name here, and perhaps other values."""

    key: str
    values: Mapping[str, str] = MappingProxyType({})  # Public to ours, if they differ.


class Fixed(NamedTuple):
    """A public key whose value cannot be changed here."""

    value: Any
    why: str
    remedy: str


Entry = Rename | Fixed | Ignored

LEAVE_OUT = "leave it out"
NETS = (
    *("agent.dyn.rssm", "agent.enc.simple", "agent.dec.simple"),
    *("agent.rewhead", "agent.conhead", "agent.policy", "agent.value"),
)
CONVS = ("agent.enc.simple", "agent.dec.simple")
GAMES = ("env.atari", "env.atari100k")
FILTERS = {"pillow": "bilinear", "area": "area", "bilinear": "bilinear"}
PAPER = "the networks are those of the paper"
FRAMES = "the image is the maximum of the last two frames"


def _entries() -> dict[str, Entry]:
    """Entries of keys that occur in several groups."""
    table: dict[str, Entry] = {}
    for net in NETS:
        table[f"{net}.act"] = Fixed("silu", PAPER, LEAVE_OUT)
        table[f"{net}.norm"] = Fixed("rms", PAPER, LEAVE_OUT)
        table[f"{net}.winit"] = Fixed("trunc_normal_in", PAPER, LEAVE_OUT)
    for conv in CONVS:
        why = "images are convolved with stride 1 and pooled or upsampled"
        table[f"{conv}.strided"] = Fixed(False, why, LEAVE_OUT)
        table[f"{conv}.outer"] = Fixed(False, PAPER, LEAVE_OUT)
    for game in GAMES:
        key = f"{game}.interpolation"
        table[f"{game}.resize"] = Rename(key, FILTERS)
        remedy = "wrap the game as an environment of your own, --task FILE.py:NAME"
        why = "the agent learns to start games"
        table[f"{game}.autostart"] = Fixed(False, why, remedy)
        why = "rewards are learned on the symexp scale and need no clipping"
        table[f"{game}.clip_reward"] = Fixed(False, why, remedy)
    for name in ("valnorm", "advnorm"):
        why = "only returns are normalised, by agent.retnorm"
        table[f"agent.{name}.impl"] = Fixed("none", why, "set agent.retnorm instead")
        table[f"agent.{name}.rate"] = table[f"agent.{name}.limit"] = Ignored(why)
    for name in ("imag_loss", "repl_loss"):
        why = "returns are bootstrapped from the online critic"
        remedy = f"agent.{name}.slowreg pulls it towards the slow one"
        table[f"agent.{name}.slowtar"] = Fixed(False, why, remedy)
    for name in ("exponent", "initial", "zero_on_sample"):
        table[f"replay.prio.{name}"] = Rename(f"replay.priority.{name}")
    for name in ("crafter", "minecraft"):
        table[f"env.{name}.logs"] = Ignored("achievements are always logged")
    for name in ("clock_addr", "clock_port"):
        why = "the hosts of a learner need no common clock"
        remedy = "see run.learners and run.learner_addr"
        table[name] = Fixed("", why, remedy)
    for name in ("gputil", "malloc", "gc"):
        remedy = "use run.usage.psutil, run.usage.nvsmi or run.usage.jax"
        table[f"run.usage.{name}"] = Fixed(False, "it is not measured", remedy)
    return table


HOSTS = "use --run.learners N and dreamerv3 join HOST:PORT learner on the others"
PRIORITIES = "programs set priorities with Replay.update"

TABLE: dict[str, Entry] = {
    **_entries(),
    # Processes and machines.
    "replicas": Fixed(1, "a run is one agent", HOSTS),
    "ipv6": Fixed(
        False, "the address decides", "use addresses such as tcp://[::1]:7001"
    ),
    "errfile": Fixed(
        False, "errors go to the terminal", "append 2>FILE to the command"
    ),
    "logger.timer": Ignored("the metrics timer/* are always logged"),
    "logger.user": Rename("logger.expa.user"),
    "run.eval_eps": Rename("run.eval_episodes"),
    "run.debug": Ignored("run.env_processes says where environments run"),
    "jax.debug": Fixed(
        False,
        "this mode does not exist",
        "use --jax.debug_nans True to stop at NaNs or --jax.jit False to step through",
    ),
    "jax.expect_devices": Fixed(
        0,
        "a run fails if a device of jax.train_devices or jax.policy_devices is missing",
        "list the devices in jax.train_devices",
    ),
    "jax.enable_policy": Fixed(True, "an agent can always act", LEAVE_OUT),
    "jax.coordinator_address": Fixed("", "the launcher chooses it", HOSTS),
    # Environments.
    "env.atari.pooling": Fixed(2, FRAMES, LEAVE_OUT),
    "env.atari.aggregate": Fixed("max", FRAMES, LEAVE_OUT),
    "env.procgen.resize": Rename("env.procgen.interpolation", FILTERS),
    "env.dmlab.episodic": Fixed(True, "the end of a level is terminal", LEAVE_OUT),
    "env.dmlab.use_seed": Fixed(True, "levels depend on the key seed", LEAVE_OUT),
    "env.loconav.size": Fixed((64, 64), "the walker's camera has this size", LEAVE_OUT),
    "env.loconav.camera": Fixed(
        -1, "the image is what the walker sees", "use --env.dmc.camera with dmc tasks"
    ),
    # Replay.
    "replay.recexp": Rename("replay.recency.exponent"),
    "replay.prio.maxfrac": Fixed(
        0.5, "the priority of a sequence is the mean over its steps", PRIORITIES
    ),
    "replay.priosignal": Fixed("model", "the agent supplies no priorities", PRIORITIES),
    # The optimiser.
    "agent.opt.momentum": Fixed(True, "the optimiser is LaProp", LEAVE_OUT),
    "agent.opt.wd": Fixed(0.0, "weights do not decay", LEAVE_OUT),
    "agent.opt.schedule": Fixed(
        "const", "the rate is constant after its warm-up", "set agent.opt.lr"
    ),
    "agent.opt.anneal": Fixed(
        0, "the rate is constant after its warm-up", "set agent.opt.lr"
    ),
    # The model.
    "agent.ac_grads": Fixed(
        False, "actor and critic do not train the model in imagination", LEAVE_OUT
    ),
    "agent.dyn.typ": Fixed("rssm", PAPER, LEAVE_OUT),
    "agent.enc.typ": Fixed("simple", PAPER, LEAVE_OUT),
    "agent.dec.typ": Fixed("simple", PAPER, LEAVE_OUT),
    "agent.dyn.rssm.outscale": Fixed(1.0, PAPER, LEAVE_OUT),
    "agent.dec.simple.outscale": Fixed(1.0, PAPER, LEAVE_OUT),
    "agent.dyn.rssm.absolute": Fixed(False, PAPER, LEAVE_OUT),
    "agent.rewhead.output": Fixed("symexp_twohot", PAPER, LEAVE_OUT),
    "agent.conhead.output": Fixed("binary", PAPER, LEAVE_OUT),
    "agent.value.output": Fixed("symexp_twohot", PAPER, LEAVE_OUT),
    "agent.policy_dist_disc": Fixed("categorical", PAPER, LEAVE_OUT),
    "agent.policy_dist_cont": Fixed("bounded_normal", PAPER, LEAVE_OUT),
    # What it learns from.
    "agent.imag_last": Rename("agent.imag_starts"),
    "agent.contdisc": Fixed(
        True, "the continue head predicts the discount", "set agent.horizon"
    ),
    "agent.retnorm.impl": Fixed(
        "perc",
        "returns are scaled by their percentiles",
        "set agent.retnorm.perclo, perchi and limit",
    ),
    "agent.retnorm.debias": Fixed(
        False, "its averages start at 0 without a correction", "set agent.retnorm.rate"
    ),
    "agent.reward_grad": Fixed(
        True, "the reward head trains the model", "set agent.loss_scales.rew"
    ),
    "agent.repval_loss": Fixed(
        True, "the critic also learns from replay", "use --agent.loss_scales.repval 0"
    ),
    "agent.repval_grad": Fixed(
        True,
        "this loss also trains the model",
        "use --agent.loss_scales.repval 0 to disable it",
    ),
    "agent.report": Fixed(
        True, "reports are periodic", "use a large --run.report_every"
    ),
}


def translate(key: str, value: Any) -> Renamed | Ignored | Rejected:
    """Our setting for a public one; `value` is from the command line or from YAML.

    A key that is not in the table has the same name and meaning here, or is unknown.
    """
    match TABLE.get(key):
        case Ignored() as ignored:
            return ignored
        case Rename(name, values) if values:
            word = show(value)
            if word in values:
                return Renamed(name, values[word])
            known = ", ".join(dict.fromkeys(values.values()))
            remedy = f"use --{name} with one of {known}"
            return Rejected(f"{word} has no counterpart here", remedy)
        case Rename(name):
            return Renamed(name, value)
        case Fixed(fixed, why, remedy):
            if _equal(value, fixed):
                return Ignored(why)
            return Rejected(f"is fixed to {show(fixed)} here: {why}", remedy)
    return Renamed(key, value)


def adopt(
    changes: Mapping[str, Any], known: Collection[str], problems: list[Problem]
) -> dict[str, Any]:
    """Flags with public keys replaced by ours; `known` are our keys, which win.

    A pattern applies to public keys only if it matches no key of this project.
    """
    result: dict[str, Any] = {}
    for name, value in changes.items():
        if meant := _misspelt(name, known):
            rule, remedy = "there is no such key", f"did you mean {meant}?"
            problems.append(Problem(name, show(value), rule, remedy))
            continue
        for key in _public_keys(name, known) or [name]:
            translated = Renamed(key, value) if key in known else translate(key, value)
            match translated:
                case Renamed(own, changed):
                    result[own] = changed
                case Rejected(rule, remedy):
                    problems.append(Problem(key, show(value), rule, remedy))
    return result


def notes(changes: Iterable[str]) -> list[str]:
    """A line for each flag that is accepted and changes nothing."""
    found = {key: entry for key in changes if (entry := TABLE.get(key))}
    ignored = {k: entry for k, entry in found.items() if isinstance(entry, Ignored)}
    return [f"{k} has no effect: {entry.reason}." for k, entry in ignored.items()]


def _misspelt(name: str, known: Collection[str]) -> str:
    """The public key that an unknown name is most like, unless it is more like ours."""
    if name in known or name in TABLE or is_pattern(name):
        return ""
    first, *_ = [*nearest(name, [*known, *TABLE], 1), ""]
    return first if first in TABLE else ""


def _public_keys(name: str, known: Collection[str]) -> list[str]:
    """Keys of the table that a pattern matches."""
    if name in known or not is_pattern(name):
        return []
    try:
        pattern = re.compile(name)
    except re.error:
        return []  # `config.layer` reports it.
    if any(pattern.fullmatch(key) for key in known):
        return []
    return [key for key in TABLE if pattern.fullmatch(key)]


def _equal(value: Any, fixed: Any) -> bool:
    """Whether a value equals the fixed one; a flag without a value means True."""
    if value in ([], ()) and isinstance(fixed, bool):
        return fixed
    try:
        return convert(value, fixed) == fixed
    except ConversionError:
        return False
