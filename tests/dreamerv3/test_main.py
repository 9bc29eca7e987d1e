"""The factories that take the config."""

import pytest

from dreamerv3 import config, main
from embodied.run import restore

DEFAULTS = config.read_blocks().defaults


@pytest.mark.parametrize(
    ("script", "given", "ahead"),
    [("parallel", -1, 2), ("train", -1, 0), ("parallel", 0, 0), ("train", 3, 3)],
)
def test_batches_are_ahead_in_parallel_runs(script, given, ahead):
    values = {**DEFAULTS, "script": script, "jax.prefetch": given}
    made = main.make_agent_config(config.to_config(values))
    assert made.jax.prefetch == ahead
    assert made.jax.platform == "auto"


def test_checkpoints_carry_all_settings():
    args = main.make_args(config.to_config(DEFAULTS))
    assert args.usage.psutil
    found = config.flatten(restore.meta(args)["config"])
    assert set(found) == set(DEFAULTS)
    assert found["agent.opt.lr"] == DEFAULTS["agent.opt.lr"]
    assert found["replay.priority.initial"] == "inf"
