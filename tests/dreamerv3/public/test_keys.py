"""Flags and blocks of the public implementation, from `keys.json`."""

import json
import pathlib
import re
import shlex

import pytest

from dreamerv3.public import keys as public_keys
from dreamerv3.public.keys import Fixed, Ignored, Rejected, Rename, Renamed
from dreamerv3.settings import config, flags, rules

BLOCKS = config.read_blocks()
PUBLIC = json.loads((pathlib.Path(__file__).parent / "keys.json").read_text())
DEFAULTS = {
    key: tuple(value) if isinstance(value, list) else value
    for key, value in PUBLIC["defaults"].items()
}
GUESS = re.compile(r"did you mean|there is no such key|--help lists")


def parse(line):
    problems = []
    typed = flags.parse(shlex.split(line), problems)
    return flags.layer(BLOCKS, typed, {}, problems), problems


def changed(value):
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case tuple():
            return tuple(changed(each) for each in value)
        case "inf":
            return 2.0
    return f"{value}x"


def flag(key, value):
    return f"--{key} {config.show(value)}"


def test_the_table_has_exactly_the_public_keys_that_are_not_ours():
    assert set(public_keys.TABLE) == set(DEFAULTS) - set(BLOCKS.defaults)


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_public_key_is_accepted_with_its_default(key):
    _, problems = parse(flag(key, DEFAULTS[key]))
    assert not problems


@pytest.mark.parametrize("key", DEFAULTS)
def test_every_public_key_is_accepted_or_rejected_with_what_to_do(key):
    value = changed(DEFAULTS[key])
    values, problems = parse(flag(key, value))
    match public_keys.TABLE.get(key):
        case Fixed(fixed, why, remedy):
            rule = f"is fixed to {config.show(fixed)} here: {why}"
            shown = config.show(value)
            assert problems == [config.Problem(key, shown, rule, remedy)]
        case Rename(own, words) if words:
            assert f"--{own}" in problems[0].remedy
        case Rename(own):
            assert not problems
            assert values[own] == config.convert(value, BLOCKS.defaults[own])
        case _:
            assert not problems
    assert not any(GUESS.search(f"{p.rule} {p.remedy}") for p in problems)


@pytest.mark.parametrize("key", public_keys.TABLE)
def test_what_is_said_about_a_key_names_keys_that_exist(key):
    entry = public_keys.TABLE[key]
    if isinstance(entry, Rename):
        assert entry.key in BLOCKS.defaults
        return
    named = re.findall(r"\b(?:agent|run|jax|env|replay|logger)\.[\w.]+", str(entry))
    for name in named:
        assert name.rstrip(".") in BLOCKS.defaults or any(
            own.startswith(f"{name}.") for own in BLOCKS.defaults
        )


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ("--run.eval_eps 3", "run.eval_episodes", 3),
        ("--replay.prio.exponent 0.5", "replay.priority.exponent", 0.5),
        ("--replay.prio.zero_on_sample", "replay.priority.zero_on_sample", True),
        ("--replay.recexp 2", "replay.recency.exponent", 2.0),
        ("--agent.imag_last 4", "agent.imag_starts", 4),
        ("--env.atari.resize pillow", "env.atari.interpolation", "bilinear"),
        (r"--'replay\.prio\.ex.*' 0.5", "replay.priority.exponent", 0.5),
        (r"--'.*\.rssm.deter' 512", "agent.dyn.rssm.deter", 512),
        (r"--'agent..*\.bins' 5", "agent.value.bins", 5),
        ("--jax.platform cuda", "jax.platform", "cuda"),
        ("--agent.policy.unimix 0.01", "agent.policy.unimix", 0.01),
        ("--configs defaults size1m", "agent.dyn.rssm.deter", 512),
    ],
)
def test_public_flags_change_our_keys(line, key, expected):
    values, problems = parse(line)
    assert not problems
    assert values[key] == expected


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        (r"--'.*\.act' silu", []),
        ("--agent.report", []),
        ("--run.debug", []),
        ("--env.loconav.size 64 64", []),
        ("--jax.debug", ["jax.debug"]),
        ("--env.dmlab.episodic maybe", ["env.dmlab.episodic"]),
        (
            r"--'agent\.(enc|dec)\..*\.norm' layer",
            [f"{n}.norm" for n in public_keys.CONVS],
        ),
        ("--run.eval_eps", ["run.eval_episodes"]),
        ("--env.atari.resize opencv", ["env.atari.resize"]),
    ],
)
def test_public_flags_that_are_fixed_here(line, keys):
    values, problems = parse(line)
    assert [problem.key for problem in problems] == keys
    assert values == BLOCKS.defaults


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("run.debgu", "run.debug"),
        ("agent.enc.simple.atc", "agent.enc.simple.act"),
        ("env.atari.resze", "env.atari.resize"),
        ("errfil", "errfile"),
        ("agent.enc.simple.unitz", "agent.enc.simple.units"),
        ("run.train_ratoi", "run.train_ratio"),
    ],
)
def test_a_misspelt_key_is_answered_with_the_nearest_of_either_kind(name, meant):
    _, (problem,) = parse(f"--{name} 1")
    assert (problem.key, problem.rule) == (name, "there is no such key")
    assert problem.remedy.startswith(f"did you mean {meant}")


def test_settings_without_effect_are_named():
    flags = ["logger.timer", "agent.opt.wd", "batch_size", "run.debug"]
    timer, debug = public_keys.notes(flags)
    assert timer == "logger.timer has no effect: the metrics timer/* are always logged."
    assert debug.startswith("run.debug has no effect: ")


def test_a_setting_of_a_file():
    translate = public_keys.translate
    assert translate("run.eval_eps", 3) == Renamed("run.eval_episodes", 3)
    assert translate("batch_size", 8) == Renamed("batch_size", 8)
    assert isinstance(translate("env.loconav.size", [64, 64]), Ignored)
    assert isinstance(translate("env.loconav.size", [32, 32]), Rejected)


# Where a block here gives another value than the public one, and why.
TOGETHER = "runs are parallel and restart what fails"
MACHINE = "one command for machines with and without a GPU"
OUTPUT = "what most people have installed"
TOY = "the same purpose, quicker on two cores"
DIFFERENCES = {
    "defaults": {
        "logdir": "runs stay in the folder where they are started",
        "method": "the name of the method in plots",
        "task": "a task that can be learned",
        "script": TOGETHER,
        "run.agent_process": TOGETHER,
        "run.actor_addr": "Unix sockets are not open to others",
        "run.replay_addr": "Unix sockets are not open to others",
        "run.logger_addr": "Unix sockets are not open to others",
        "run.eval_episodes": "one episode says little",
        "run.log_every": "the first lines come sooner",
        "run.usage.nvsmi": "needs a package of its own",
        "logger.outputs": OUTPUT,
        "logger.filter": "metrics have other names",
        "jax.platform": MACHINE,
        "jax.compute_dtype": MACHINE,
        "agent.policy.unimix": "the public policy ignores its setting",
        "env.atari.interpolation": "area averages lose no sprite",
        "env.atari100k.interpolation": "area averages lose no sprite",
    },
    "bsuite": {
        "task": "mnist fetches its data from the internet",
        "run.save_every": "a run that was interrupted can be resumed",
    },
    "debug": {
        "batch_size": TOY,
        "report_length": TOY,
        "run.envs": TOY,
        "run.log_every": TOY,
        "run.report_every": TOY,
        "run.save_every": TOY,
        "run.train_ratio": TOY,
        "jax.platform": MACHINE,
        "jax.prealloc": "only accelerators reserve memory",
        "agent..*\\.bins": TOY,
        "agent..*\\.layers": TOY,
        "agent..*\\.units": TOY,
        "agent..*\\.stoch": TOY,
        "agent..*\\.deter": TOY,
        "agent..*\\.hidden": TOY,
    },
}


@pytest.mark.parametrize("name", PUBLIC)
def test_blocks_have_the_public_values_but_for_intended_differences(name):
    preset = {} if name == "defaults" else BLOCKS.presets[name]
    ours = config.layer(BLOCKS.defaults, preset, [])
    different = set()
    for public, raw in PUBLIC[name].items():
        keys = [public]
        if config.is_pattern(public):
            keys = [key for key in ours if re.fullmatch(public, key)]
            assert keys
        for key in keys:
            match public_keys.translate(key, raw):
                case Renamed(own, value):
                    if config.convert(value, ours[own]) != ours[own]:
                        different.add(own if key == public else public)
                case Rejected():
                    assert (name, key) == ("debug", "jax.debug")
    assert different == set(DIFFERENCES.get(name, {}))


@pytest.mark.parametrize("name", PUBLIC)
def test_public_blocks_pass_the_rules(name):
    values, problems = parse(f"--configs {name} --task dummy_disc")
    assert not problems + rules.check(values, flags.SCRIPTS)
