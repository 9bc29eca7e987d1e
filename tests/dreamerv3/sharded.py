"""Run by `test_sharding.py` in a process with four devices: losses as JSON."""

from __future__ import annotations

import json
import re
import sys

import jax
import numpy as np

from tests.dreamerv3.conftest import Kit

COLLECTIVE = re.compile(r" (all-reduce|all-gather|all-to-all|reduce-scatter)\(")


def inner_collectives(text):
    """Talks between devices in loops and other parts of a compiled program."""
    found, part = [], ""
    for line in text.splitlines():
        if line and not line[0].isspace():
            part = line.split()[0]
        elif part != "ENTRY" and COLLECTIVE.search(line):
            found.append(line.strip()[:100])
    return found


def expect_small_numbers(agent):
    """Give reward and value heads what they learn first: that huge numbers are rare.

    They start with all bins alike. As those go up to 5e8, one unit of rounding in a
    probability is then 0.1 in a prediction, and no two programs agree on advantages.
    """
    bias = -0.2 * np.abs(np.arange(-127, 128, dtype=np.float32))
    state = agent.save()
    outs = [k for k, v in state.items() if v.shape == bias.shape and "bias" in k]
    assert len(outs) == 3  # Reward, value and slow value.
    agent.load(state | dict.fromkeys(outs, bias))


def main(devices: int, mesh: list[int], policy: int) -> None:
    kit = Kit()
    options = {
        "jax.mock_devices": 4,
        "jax.train_devices": list(range(devices)),
        "jax.policy_devices": [policy],
        "jax.mesh": mesh,
        "agent.opt": {"lr": 1e-4, "warmup": 0},
        "agent.dyn.rssm": {"deter": 256, "hidden": 32, "classes": 4, "stoch": 4},
    }
    agent = kit.agent(**options)
    expect_small_numbers(agent)
    carry, losses = agent.init_train(kit.batch_size), []
    for seed in range(3):
        carry, _, metrics = agent.train(carry, kit.batch(agent, seed))
        losses.append({k: float(np.asarray(v)) for k, v in metrics.items()})
    agent.policy(agent.init_policy(2), kit.obs(2))
    held = agent.runner.newest(wait=True)
    agent.train(carry, kit.batch(agent, 0))
    assert all(np.isfinite(x).all() for x in held)  # Not taken over by the update.
    shards = {
        len(leaf.sharding.shard_shape(leaf.shape)) and leaf.sharding.is_fully_replicated
        for leaf in jax.tree.leaves(agent.state.params)
    }
    (program,) = (v for k, v in agent.compiled.items() if k[0] == "train")
    used = {d.id for x in agent.runner.params for d in x.sharding.device_set}
    result = {"losses": losses, "sharded": False in shards, "policy": sorted(used)}
    result["inner"] = inner_collectives(program.as_text())
    print(json.dumps(result))


if __name__ == "__main__":
    main(int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]))
