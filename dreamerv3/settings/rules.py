"""Which settings make sense: checked once, before anything starts."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import tempfile
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from dreamerv3 import offline, outputs, placement
from dreamerv3.public import layout
from dreamerv3.settings.config import Flat, Problem, nearest, show
from embodied.core import extras, machine
from embodied.core.checkpoint import complete
from embodied.envs import options, registry
from embodied.run import restore
from embodied.run.parallel.connections import TRANSPORTS
from embodied.run.parallel.launch import LOCAL, RAY

LENGTHS = (
    "batch_size",
    "batch_length",
    "report_length",
    "consec_train",
    "consec_report",
    "replay_context",
    "replay.size",
)


class Rule(NamedTuple):
    """What the values of all keys that match a pattern must be."""

    pattern: str
    test: Callable[[Any], bool]
    text: str
    remedy: str


def _at_least(limit: float) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value >= limit), f"must be at least {limit}"


def _more_than(limit: float) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value > limit), f"must be more than {limit}"


def _one_of(*choices: str) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: value in choices), f"must be one of {', '.join(choices)}"


def _within(low: float, high: float) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: low <= value <= high), f"must be from {low} to {high}"


def _is_regex(value: str) -> bool:
    try:
        re.compile(value)
    except re.error:
        return False
    return True


def _is_image_size(value: tuple) -> bool:
    return len(value) == 2 and min(value) > 0


def _is_resize(value: tuple) -> bool:
    return value == (0, 0) or _is_image_size(value)


def _is_mults(value: tuple) -> bool:
    return len(value) > 0 and min(value) > 0


def _is_bins(value: int) -> bool:
    return value > 1 and value % 2 == 1


def _is_mesh(value: tuple) -> bool:
    sizes = all(size > 0 or size == -1 for size in value)
    return len(value) == 3 and value.count(-1) <= 1 and sizes


def _is_devices(value: Any) -> bool:
    return value >= 0 if isinstance(value, int) else len(value) > 0 and min(value) >= 0


RULES = [
    Rule(r"batch_size|(batch|report)_length", *_at_least(1), "the default is fine"),
    Rule(r"consec_.*", *_at_least(1), "1 means that sequences stand alone"),
    Rule(r"replay_context", *_at_least(0), "1 starts from the stored latent"),
    Rule(r"seed", *_at_least(0), "any whole number from 0 on"),
    Rule(r"launcher", *_one_of(LOCAL, RAY), "local needs nothing else"),
    Rule(r"run\.transport", *_one_of(*TRANSPORTS), "zmq is the default"),
    Rule(r"ray\.cpus", *_at_least(0), "1 gives each environment process a core"),
    Rule(r"ray\.(gpus|cpus_core|memory)", *_at_least(0), "0 reserves nothing"),
    Rule(r"run\.steps", *_at_least(1), "use run.duration to limit the time instead"),
    Rule(r"run\.duration", *_at_least(0), "0 means no limit"),
    Rule(r"run\.envs", *_at_least(1), "one environment is enough to train"),
    Rule(r"run\.eval_envs", *_at_least(0), "0 evaluates nothing"),
    Rule(r"run\.(eval_episodes|report_batches)", *_at_least(1), "1 is enough"),
    Rule(r"run\.train_ratio", *_at_least(0), "32 is usual, 0 trains nothing"),
    Rule(r"run\..*_(every|timeout)", *_more_than(0), "give seconds"),
    Rule(r"run\.learner_timeout", *_at_least(5), "heartbeats come every second"),
    Rule(
        r"run\.(envs_per_process|actor_threads|learners)",
        *_at_least(1),
        "1 is the default",
    ),
    Rule(r"run\.budget|replica", *_at_least(0), "give a whole number from 0 on"),
    Rule(
        r"run\.from_checkpoint_regex|logger\.filter",
        _is_regex,
        "must be a regular expression",
        "use .* to match everything",
    ),
    Rule(r"env\..*\.length", *_at_least(1), "give steps per episode"),
    Rule(
        r"env\..*\.size",
        _is_image_size,
        "must be height and width",
        "for example 64 64",
    ),
    Rule(
        r"env\..*\.resize",
        _is_resize,
        "must be height and width",
        "for example 64 64, or 0 0 to leave images as they are",
    ),
    Rule(
        r"env\..*\.actions",
        *_one_of("all", "needed"),
        "all is usual, needed for atari100k",
    ),
    Rule(
        r"env\.atari.*\.lives",
        *_one_of("unused", "discount", "reset"),
        "unused is the protocol of the paper",
    ),
    Rule(
        r"env\.(atari.*|procgen)\.interpolation",
        *_one_of("area", "bilinear"),
        "use area to shrink images and bilinear to enlarge them",
    ),
    Rule(r"env\.procgen\.mode", *_one_of("easy", "hard"), "hard is the usual one"),
    Rule(
        r"env\.dmlab\.renderer",
        *_one_of("software", "hardware"),
        "software works everywhere",
    ),
    Rule(r"env\..*\.(noops|threads|levels|start)", *_at_least(0), "0 is allowed"),
    Rule(r"env\..*\.repeat", *_at_least(1), "1 applies each action once"),
    Rule(r"env\..*\.time_limit", *_at_least(0), "0 leaves it to the environment"),
    Rule(
        r"env\..*\.kwargs",
        options.is_kwargs,
        "must be a JSON object",
        """for example '{"name": 1, "other": true}', in single quotes for the shell""",
    ),
    Rule(r"replay\.(size|chunksize)", *_at_least(1), "give a number of steps"),
    Rule(r"replay\.memory", *_at_least(0), "give bytes, 0 leaves it to the system"),
    Rule(r"replay\..*exponent", *_at_least(0), "0 is uniform"),
    Rule(r"replay\.fracs\..*", *_within(0, 1), "fractions add up to 1"),
    Rule(r"logger\.fps", *_at_least(1), "15 is usual"),
    Rule(r"logger\.live", *_one_of("auto", "on", "off"), "auto is usual"),
    Rule(
        r"logger\.wandb\.mode",
        *_one_of("online", "offline", ""),
        "'' leaves it to WANDB_MODE",
    ),
    Rule(
        r"jax\.platform",
        *_one_of("auto", "cpu", "cuda", "tpu"),
        "auto picks the best",
    ),
    Rule(
        r"jax\.compute_dtype",
        *_one_of("auto", "float32", "bfloat16"),
        "auto takes bfloat16 on accelerators and float32 on CPU",
    ),
    Rule(
        r"agent\.eval_mode", *_one_of("sample", "greedy"), "sample is the paper's way"
    ),
    Rule(
        r"agent\..*\.(units|depth|deter|hidden|stoch|classes)",
        *_at_least(1),
        "see the size blocks",
    ),
    Rule(
        r"agent\..*\.((img|obs|dyn)layers|kernel|bspace|unroll|every)",
        *_at_least(1),
        "the default is fine",
    ),
    Rule(r"agent\..*\.layers", *_at_least(0), "0 is a linear map"),
    Rule(r"agent\..*\.bins", _is_bins, "must be odd and above 1", "255 is usual"),
    Rule(r"agent\..*\.(unimix|lam|rate|beta\d)", *_within(0, 1), "the default is fine"),
    Rule(r"agent\..*\.(free_nats|agc|eps|(min|max)std)", *_at_least(0), "0 is allowed"),
    Rule(r"agent\..*\.perc(lo|hi)", *_within(0, 100), "give a percentile"),
    Rule(r"agent\.imag_length", *_at_least(1), "15 is usual"),
    Rule(
        r"agent\..*\.mults", _is_mults, "must hold numbers above 0", "2 3 4 4 is usual"
    ),
    Rule(r"agent\.(opt\.warmup|imag_starts)", *_at_least(0), "0 is allowed"),
    Rule(r"jax\.prefetch", *_at_least(-1), "-1 fits the script"),
    Rule(r"jax\.mesh", _is_mesh, "must be three numbers, at most one -1", "-1 1 1"),
    Rule(r"jax\..*_devices", _is_devices, "must name devices from 0 on", "0 is usual"),
    Rule(r"agent\.horizon", *_more_than(1), "333 is usual"),
    Rule(r"agent\.opt\.lr", *_more_than(0), "4e-5 is usual"),
]


def check(values: Flat, scripts: Collection[str]) -> list[Problem]:
    """All problems of the settings."""
    problems = []
    for key, value in values.items():
        for rule in RULES:
            if re.fullmatch(rule.pattern, key) and not rule.test(value):
                problems.append(Problem(key, show(value), rule.text, rule.remedy))
    problems += _check_names(values, scripts)
    problems += _check_sums(values)
    if not any(problem.key in LENGTHS for problem in problems):
        problems += _check_lengths(values)
    problems += _check_devices(values)
    problems += _check_paths(values)
    problems += _check_parallel(values)
    problems += placement.check(values)
    problems += outputs.check(values)
    problems += offline.check(values)
    return problems


def _check_names(values: Flat, scripts: Collection[str]) -> list[Problem]:
    problems = []
    if values["script"] not in scripts:
        near = nearest(values["script"], scripts)
        remedy = f"did you mean {near[0]}? " if near else ""
        remedy += f"scripts: {', '.join(scripts)}"
        rule = "there is no such script"
        problems.append(Problem("script", values["script"], rule, remedy))
    alone = (values["script"], values["task"]) == (offline.SCRIPT, offline.NO_TASK)
    elsewhere = placement.relies_on_spaces(values)
    if alone or elsewhere or not placement.needs_env(values["script"]):
        return problems
    try:
        registry.resolve(values["task"])
    except registry.TaskError as error:
        problems.append(Problem("task", error.task, error.rule, error.remedy))
    return problems


def _check_sums(values: Flat) -> list[Problem]:
    problems = []
    fracs = {k: v for k, v in values.items() if k.startswith("replay.fracs.")}
    if abs(sum(fracs.values()) - 1) > 1e-6:
        shown = ", ".join(f"{key.rsplit('.')[-1]} {v:g}" for key, v in fracs.items())
        rule = f"must add up to 1, not {sum(fracs.values()):g}"
        problems.append(Problem("replay.fracs", shown, rule, "change one of them"))
    deter, blocks = values["agent.dyn.rssm.deter"], values["agent.dyn.rssm.blocks"]
    if blocks < 1 or deter % blocks:
        rule = f"must be a multiple of agent.dyn.rssm.blocks, {blocks}"
        remedy = f"for example {max(1, deter // max(1, blocks)) * max(1, blocks)}"
        problems.append(Problem("agent.dyn.rssm.deter", deter, rule, remedy))
    return problems


def _check_lengths(values: Flat) -> list[Problem]:
    problems = []
    need = values["replay_context"] + values["consec_train"] * values["batch_length"]
    if values["replay.size"] < values["batch_size"] + need:
        rule = f"must hold a batch of sequences of {need} steps"
        remedy = f"at least {values['batch_size'] + need}"
        problems.append(Problem("replay.size", values["replay.size"], rule, remedy))
    have = values["consec_report"] * values["report_length"]
    if have > values["consec_train"] * values["batch_length"]:
        rule = "consec_report * report_length must not exceed the replayed sequences"
        remedy = f"at most {need - values['replay_context']} in total"
        problems.append(Problem("report_length", values["report_length"], rule, remedy))
    return problems


def _check_devices(values: Flat) -> list[Problem]:
    problems = []
    count, platform = values["jax.mock_devices"], values["jax.platform"]
    here = values["launcher"] != RAY and not values["random_agent"]
    lack = machine.lacks(platform)
    if lack and here and not count and values["script"] not in placement.SCRIPTS:
        problems.append(Problem("jax.platform", platform, *lack))
    if count > 0 and platform not in ("auto", "cpu"):
        rule = f"splits a CPU, but jax.platform is {platform}"
        problems.append(Problem("jax.mock_devices", count, rule, "use 0"))
    for key in ("jax.train_devices", "jax.policy_devices"):
        if count > 0 and max(values[key], default=0) >= count:
            rule = f"jax.mock_devices {count} makes devices 0 to {count - 1}"
            problems.append(Problem(key, values[key], rule, "take some of those"))
    size, devices = values["batch_size"], len(values["jax.train_devices"])
    ways = devices // max(1, values["jax.mesh"][-1]) if values["jax.mesh"] else 1
    if values["run.learners"] == 1 and ways > 1 and size % ways:
        rule = f"must be a multiple of {ways}, as {devices} devices share a batch"
        remedy = f"for example {-(-size // ways) * ways}"
        problems.append(Problem("batch_size", size, rule, remedy))
    return problems


def _check_paths(values: Flat) -> list[Problem]:
    problems = []
    logdir = pathlib.Path(values["logdir"]).expanduser().absolute()
    parent = next(p for p in (logdir, *logdir.parents) if p.exists())
    try:
        tempfile.TemporaryDirectory(dir=parent).cleanup()
    except OSError as error:
        rule = f"cannot write to {parent} ({error.strerror})"
        remedy = "choose another --logdir or change its permissions"
        problems.append(Problem("logdir", values["logdir"], rule, remedy))
    source = values["run.from_checkpoint"]
    evaluates = values["script"] == "eval_only" and not source
    if evaluates and not complete(restore.find_agent(logdir)):
        remedy = "name the log directory of a run, or give --run.from_checkpoint"
        rule = "holds no checkpoint to evaluate"
        problems.append(Problem("logdir", values["logdir"], rule, remedy))
    folder = pathlib.Path(source).expanduser()
    if source and not folder.is_dir():
        rule = "there is no such directory"
        remedy = "give the ckpt directory of a run, for example logdir/demo/ckpt"
        problems.append(Problem("run.from_checkpoint", source, rule, remedy))
    elif source and layout.is_public(folder):
        rule = "is a checkpoint of the public DreamerV3"
        remedy = f"use NEW_LOGDIR after dreamerv3 convert {source} NEW_LOGDIR"
        problems.append(Problem("run.from_checkpoint", source, rule, remedy))
    return problems


def _check_parallel(values: Flat) -> list[Problem]:
    """What only shows once processes run."""
    problems = []
    key = "run.usage.nvsmi"
    if values[key] and importlib.util.find_spec("pynvml") is None:
        rule = "needs the package nvidia-ml-py"
        remedy = extras.install_line("gpu")
        problems.append(Problem(key, values[key], rule, remedy))
    evaluates = values["script"] in ("train_eval", "eval_only")
    if evaluates and values["run.eval_envs"] < 1:
        rule = f"script {values['script']} needs an environment to evaluate in"
        remedy = "give --run.eval_envs 1 or more"
        problems.append(Problem("run.eval_envs", 0, rule, remedy))
    return problems
