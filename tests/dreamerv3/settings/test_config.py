"""Blocks, layers, conversions, and what is said about mistakes."""

import re

import pytest

from dreamerv3.settings import config
from dreamerv3.settings.config import Problem

BLOCKS = config.read_blocks()


def layer(changes):
    problems = []
    values = config.layer(BLOCKS.defaults, changes, problems)
    return values, problems


def test_every_key_has_a_meaning_and_a_simple_type():
    for key, value in BLOCKS.defaults.items():
        assert BLOCKS.help[key].endswith((".", ")")), key
        assert config.type_name(value), key


@pytest.mark.parametrize("name", BLOCKS.presets)
def test_every_block_fits_the_defaults(name):
    values, problems = layer(BLOCKS.presets[name])
    assert not problems
    assert values != BLOCKS.defaults or name == "size200m"


SIZES = {
    "size1m": (512, 64, 4, 4, 64),
    "size12m": (2048, 256, 16, 16, 256),
    "size25m": (3072, 384, 24, 24, 384),
    "size50m": (4096, 512, 32, 32, 512),
    "size100m": (6144, 768, 48, 48, 768),
    "size200m": (8192, 1024, 64, 64, 1024),
    "size400m": (12288, 1536, 96, 96, 1536),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_are_those_of_the_paper(name):
    values, _ = layer(BLOCKS.presets[name])
    rssm = "agent.dyn.rssm"
    deter, hidden, classes, depth, units = SIZES[name]
    assert values[f"{rssm}.deter"] == deter
    assert values[f"{rssm}.hidden"] == hidden
    assert values[f"{rssm}.classes"] == classes
    assert values[f"{rssm}.stoch"] == 32
    assert values[f"{rssm}.blocks"] == 8
    assert {v for k, v in values.items() if k.endswith(".depth")} == {depth}
    assert {v for k, v in values.items() if k.endswith(".units")} == {units}


def test_defaults_are_those_of_the_paper():
    expected = {
        "batch_size": 16,
        "batch_length": 64,
        "report_length": 32,
        "replay_context": 1,
        "replay.size": 5_000_000,
        "replay.online": True,
        "run.train_ratio": 32.0,
        "agent.imag_length": 15,
        "agent.horizon": 333,
    }
    assert {key: BLOCKS.defaults[key] for key in expected} == expected


def test_patterns_match_whole_keys_everywhere():
    values, problems = layer({r".*\.units": "77"})
    changed = {key for key in values if values[key] != BLOCKS.defaults[key]}
    assert not problems
    assert changed == {key for key in values if re.fullmatch(r".*\.units", key)}
    assert len(changed) > 4
    _, problems = layer({r"un.ts?": "77"})
    assert "matches no key" in problems[0].rule


@pytest.mark.parametrize(
    ("raw", "like", "expected"),
    [
        ("1e6", 1, 1_000_000),
        ("12345678901234567890", 1, 12345678901234567890),
        ("1e-3", 1.0, 0.001),
        ("3", 1.0, 3.0),
        ("inf", 1.0, float("inf")),
        ("True", False, True),
        ("no", True, False),
        (["a", "b"], ("x",), ("a", "b")),
        ("1,2", (5,), (1, 2)),
        ("3", (5,), (3,)),
        (["text"], "x", "text"),
        ("", "x", ""),
    ],
)
def test_conversion(raw, like, expected):
    value = config.convert(raw, like)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("raw", "like"),
    [
        ("x", 1),
        ("1.5", 1),
        ("nan", 1),
        (True, 1),
        ("x", 1.0),
        ("maybe", True),
        (["1", "2"], 1),
        (["1", "x"], (1,)),
    ],
)
def test_refused_conversion(raw, like):
    with pytest.raises(config.ConversionError):
        config.convert(raw, like)


def test_mistakes_are_collected_with_key_value_rule_and_remedy():
    _, problems = layer(
        {
            "train_ratio": "64",
            "run.train_ratoi": "3",
            "run.envs": "many",
            "agent.dyn": "3",
            "[": "1",
        }
    )
    assert problems == [
        Problem(
            "train_ratio", "64", "there is no such key", "did you mean run.train_ratio?"
        ),
        Problem(
            "run.train_ratoi",
            "3",
            "there is no such key",
            "did you mean run.train_ratio?",
        ),
        Problem("run.envs", "many", "must be an integer", "for example --run.envs 16"),
        problems[3],
        problems[4],
    ]
    assert problems[3].rule == "is a group of keys, not a key"
    assert "agent.dyn.rssm.deter" in problems[3].remedy
    assert "not a valid regular expression" in problems[4].rule


def test_nested_and_flat_are_inverse():
    assert config.flatten(config.nest(BLOCKS.defaults)) == BLOCKS.defaults
    assert config.to_config(BLOCKS.defaults).flat == BLOCKS.defaults
