"""Conversion of settings of the public implementation."""

import pytest

from dreamerv3.public import settings
from dreamerv3.settings import flags

NOTHING = flags.Flags([], {})


def translate(**changes):
    public = {
        "task": "bounce_32",
        **{k.replace("__", "."): v for k, v in changes.items()},
    }
    return settings.translate(public)


def test_equal_names_are_copied_and_others_renamed():
    found = translate(
        batch_size=3,
        agent__opt__lr=0.01,
        run__eval_eps=7,
        replay__prio__exponent=0.5,
        agent__imag_last=4,
    )
    assert not found.problems
    assert found.values == {
        "task": "bounce_32",
        "batch_size": 3,
        "agent.opt.lr": 0.01,
        "run.eval_episodes": 7,
        "replay.priority.exponent": 0.5,
        "agent.imag_starts": 4,
    }


def test_the_images_are_made_as_in_training():
    found = translate(task="atari_pong", env__atari__resize="pillow")
    assert found.values["env.atari.interpolation"] == "bilinear"


def test_what_is_constant_here_is_dropped_or_an_error():
    same = translate(agent__enc__simple__act="silu", agent__opt__wd=0.0)
    assert (same.values, same.problems) == ({"task": "bounce_32"}, [])
    other = translate(agent__enc__simple__act="gelu", agent__opt__wd=0.1)
    assert [p.key for p in other.problems] == ["agent.enc.simple.act", "agent.opt.wd"]
    assert other.problems[0].value == "gelu"
    assert "is fixed to silu here" in other.problems[0].rule


def test_disabled_normalisers_have_no_rate():
    off = translate(agent__valnorm__impl="none", agent__valnorm__rate=0.5)
    assert not off.problems
    assert translate(agent__valnorm__impl="perc").problems


def test_the_machine_and_the_unused_mixture_are_left():
    found = translate(jax__platform="cuda", agent__policy__unimix=0.01)
    assert found.values == {"task": "bounce_32"}
    assert set(found.left) == {"jax.*", "agent.policy.unimix"}


def test_only_options_of_the_own_suite_matter():
    options = {"env.procgen.resize": "pillow", "env.crafter.size": (32, 32)}
    found = settings.translate({"task": "crafter_reward", **options})
    assert found.values["env.crafter.size"] == (32, 32)
    assert not found.problems
    found = settings.translate({"task": "procgen_coinrun", **options})
    assert found.values == {
        "task": "procgen_coinrun",
        "env.procgen.interpolation": "bilinear",
    }
    found = settings.translate({"task": "crafter_reward", "env.crafter.area": 3})
    assert "--task path/to/file.py:Name" in found.problems[0].remedy


def test_unknown_keys_of_the_agent_are_errors():
    found = translate(agent__enc__simple__unitz=3, other__thing=1)
    assert [p.key for p in found.problems] == ["agent.enc.simple.unitz"]
    assert found.left == {"other.thing": "there is no such key here"}


def test_loops_keep_our_defaults_where_theirs_are_not_allowed():
    """The public bsuite block has run.save_every -1."""
    found = settings.complete(translate(run__save_every=-1), NOTHING)
    assert not found.problems
    assert found.values["run.save_every"] == 900
    assert "run.save_every" in found.left
    typed = NOTHING._replace(values={"run.save_every": ["-1"]})
    assert settings.complete(translate(), typed).problems


@pytest.mark.parametrize(
    "key", ["batch_length", "agent.horizon", "agent.dec.simple.bspace"]
)
def test_others_do_not(key):
    found = settings.complete(
        settings.translate({"task": "bounce_32", key: 0}), NOTHING
    )
    assert key in [problem.key for problem in found.problems]
