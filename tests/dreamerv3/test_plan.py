"""What a run tells before it starts."""

import pytest

from dreamerv3 import config, plan

BLOCKS = config.read_blocks()
HINT = "--configs size1m or size12m"


def describe(**changes):
    values = {**BLOCKS.defaults, "jax.platform": "cpu"}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return plan.describe(config.to_config(values), {}, {})


def test_the_default_size_on_a_cpu_is_pointed_out():
    assert HINT in describe()


@pytest.mark.parametrize(
    "changes",
    [
        {"jax__platform": "cuda"},
        {"agent__dyn__rssm__deter": 512},
        {"random_agent": True},
        {"script": "eval_only"},
    ],
)
def test_no_hint_without_need(changes):
    assert HINT not in describe(**changes)


def test_without_an_accelerator_jax_takes_the_cpu(monkeypatch):
    monkeypatch.setattr(plan, "ACCELERATORS", ())
    assert HINT in describe(jax__platform="auto")
    monkeypatch.setattr(plan, "ACCELERATORS", ("/dev/null",))
    assert HINT not in describe(jax__platform="auto")
