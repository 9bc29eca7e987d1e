"""The command line."""

import re
import shlex

import pytest

from dreamerv3.settings import config, flags

BLOCKS = config.read_blocks()


def parse(line):
    problems = []
    typed = flags.parse(shlex.split(line), problems)
    return flags.layer(BLOCKS, typed, {}, problems), problems


@pytest.mark.parametrize(
    ("line", "key", "expected"),
    [
        ("--run.train_ratio 64", "run.train_ratio", 64.0),
        ("--run.train_ratio=64", "run.train_ratio", 64.0),
        ("--agent.dyn.rssm.deter 512", "agent.dyn.rssm.deter", 512),
        (r"--'.*\.units' 7", "agent.value.units", 7),
        ("--logger.outputs jsonl terminal", "logger.outputs", ("jsonl", "terminal")),
        ("--logger.outputs jsonl,terminal", "logger.outputs", ("jsonl", "terminal")),
        ("--random_agent", "random_agent", True),
        ("--random_agent False", "random_agent", False),
        ("--jax.mesh -1 2 1", "jax.mesh", (-1, 2, 1)),
        ("--configs size1m", "agent.dyn.rssm.deter", 512),
        ("--configs size1m size12m", "agent.dyn.rssm.deter", 2048),
        ("--configs size12m,size1m", "agent.dyn.rssm.deter", 512),
        ("--agent.dyn.rssm.deter 64 --configs size1m", "agent.dyn.rssm.deter", 64),
    ],
)
def test_flags(line, key, expected):
    values, problems = parse(line)
    assert not problems
    assert values[key] == expected


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("train", "is not a flag"),
        ("--configs sizem", "there is no such block"),
        ("--configs --seed 1", "needs a value"),
        ("--run.steps", "needs a value, an integer"),
        ("--run.steps 1 2", "must be an integer, got 2 values"),
        ("--nonsense", "there is no such key"),
        ("--dry-run yes", "takes no value"),
        ("--seeds 1 1", "needs whole numbers, each once"),
        ("--seeds", "needs whole numbers, each once"),
        ("--seeds two", "needs whole numbers, each once"),
    ],
)
def test_mistakes(line, rule):
    _, problems = parse(line)
    assert [problem.rule for problem in problems] == [rule]
    assert problems[0].remedy


@pytest.mark.parametrize(
    ("word", "remedy"),
    [
        ("something", "the commands are .*eval, .*export"),
        ("train", "comes first: dreamerv3 train"),
        ("help", "comes first: dreamerv3 help"),
        ("start", "write dreamerv3 --task"),
        ("eval_only", "write --script eval_only"),
        ("eval", "comes first: dreamerv3 eval"),
        ("-task", "write --task"),
    ],
)
def test_a_stray_word_is_answered_with_what_may_be_meant(word, remedy):
    _, problems = parse(word)
    assert re.search(remedy, problems[0].remedy)


def test_saved_settings_lie_between_defaults_and_flags():
    typed = flags.parse(["--run.envs", "3"], [])
    saved = {"run.envs": 5, "run.eval_envs": 6}
    values = flags.layer(BLOCKS, typed, saved, [])
    assert values["run.envs"] == 3
    assert values["run.eval_envs"] == 6


def test_switches():
    typed = flags.parse(["--quiet", "--seed", "1"], [])
    assert (typed.quiet, typed.dry_run) == (True, False)
    assert typed.values == {"seed": ["1"]}


def test_help_of_a_pattern_shows_what_matches():
    typed = flags.parse(["--help", "train_ratio"], [])
    text = flags.matches_text(BLOCKS, flags.SCRIPTS, typed.help)
    assert "--run.train_ratio  (number, 32)" in text
    assert "--run.envs " not in text
    text = flags.matches_text(BLOCKS, flags.SCRIPTS, ["SIZE1M", "parallel_env"])
    assert "size1m" in text
    assert "One environment of a run on another machine" in text


@pytest.mark.parametrize("pattern", ["nothing_like_it", "(", "["])
def test_help_of_a_pattern_without_a_match(pattern):
    with pytest.raises(config.ConfigError) as caught:
        flags.matches_text(BLOCKS, flags.SCRIPTS, [pattern])
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("help", pattern)


def test_help_lists_everything():
    text = flags.help_text(BLOCKS, {"train": "Train."})
    for key in BLOCKS.defaults:
        assert f"--{key}  (" in text
        assert BLOCKS.help[key] in text
    for name in BLOCKS.presets:
        assert name in text
