"""Run by `test_hosts.py`: one process learns, alone or as one of two hosts.

python hosted.py alone
python hosted.py leader MESH ADDRESS DIRECTORY
python hosted.py follower MESH ADDRESS DELAY
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from functools import partial as bind

import numpy as np

from embodied import rpc
from embodied.core import spacefile
from embodied.process.context import Context
from embodied.run.parallel import coordinator, ensemble, follower, member
from embodied.run.settings import RunSettings
from tests.dreamerv3.conftest import Kit

OPTIONS = {
    "jax.mock_devices": 2,
    "jax.train_devices": [0, 1],
    "agent.opt": {"lr": 1e-4, "warmup": 0},
    "agent.dyn.rssm": {"deter": 256, "hidden": 32, "classes": 4, "stoch": 4},
}


def make_kit():
    kit = Kit()
    # Without images it compiles in half of the time.
    kit.obs_space = {k: v for k, v in kit.obs_space.items() if len(v.shape) < 3}
    return kit


def learn(agent, kit, context):
    """A report, two updates, and the first one again from where it began: as JSON.

    Only what begins with the same parameters can be compared: else rounding may turn
    one random draw into another.
    """
    begin, results = agent.save(), []
    batches = [kit.batch(context, seed) for seed in range(2)]
    _, report = agent.report(agent.init_report(kit.batch_size), batches[0])
    results.append({k: v.sum().item() for k, v in report.items() if k[:4] == "loss"})
    carry, outs, metrics = agent.train(agent.init_train(kit.batch_size), batches[0])
    results.append({k: np.asarray(v).sum().item() for k, v in metrics.items()})
    latents = {k: np.asarray(v) for k, v in outs["replay"].items()}
    agent.train(carry, batches[1])
    agent.load(begin)
    _, _, metrics = agent.train(agent.init_train(kit.batch_size), batches[0])
    results.append({k: np.asarray(v).sum().item() for k, v in metrics.items()})
    agent.policy(agent.init_policy(2), kit.obs(2, obs_space=kit.obs_space))
    shapes = {key: value.shape for key, value in latents.items()}
    sums = {key: float(value.sum()) for key, value in latents.items()}
    return {"results": results, "shapes": shapes, "sums": sums}


def lead(kit, mesh, address, directory):
    from embodied.jax import hosts

    spacefile.write(directory, kit.obs_space, kit.act_space)
    args = {"learners": 2, "coordinator_addr": address, "logdir": directory}
    args |= {"learner_addr": rpc.resolve("tcp://127.0.0.1:{auto}"), "config": {"a": 1}}
    args = RunSettings.of(args)
    issue = itertools.count(1).__next__
    with (
        coordinator.serve(args, issue),
        ensemble.lead(args, Context(incarnation=7)) as company,
    ):
        own = kit.agent(**OPTIONS, **{"jax.mesh": json.loads(mesh)})
        meet = bind(hosts.meet, args.learner_start_timeout)
        return learn(hosts.Leader(own, company.post, meet), kit, own)


def follow(kit, mesh, address, delay):
    def make_agent(values, spaces):
        assert (values, spaces[0].keys()) == ({"a": 1}, kit.obs_space.keys())
        agent = kit.agent(*spaces, **OPTIONS, **{"jax.mesh": json.loads(mesh)})
        agent.model.report = late(agent.model.report, float(delay))
        return agent

    invitation = member.Invitation(address, None)
    follower.parallel_follower(make_agent, "test", invitation)


def late(fn, delay):
    """A function that takes a while longer to trace and compile."""

    def call(*args):
        time.sleep(delay)
        return fn(*args)

    return call


def main(part, *args):
    kit = make_kit()
    if part == "follower":
        follow(kit, *args)
        return
    if part == "leader":
        result = lead(kit, *args)
    else:
        agent = kit.agent(**{**OPTIONS, "jax.train_devices": [0]})
        result = learn(agent, kit, agent)
    print(json.dumps(result))


if __name__ == "__main__":
    main(*sys.argv[1:])
