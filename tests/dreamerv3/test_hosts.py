"""Two hosts with two devices each learn what one device learns."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from embodied import rpc
from embodied.core import base
from embodied.jax import hosts

ROOT = pathlib.Path(__file__).parents[2]
LATE = 40  # Seconds; collectives on CPUs wait 30 s for the connections of all hosts.
SCRIPT = pathlib.Path(__file__).parent / "hosted.py"


def start(*args):
    env = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, args)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process):
    out, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors[-3000:]
    return json.loads(out.splitlines()[-1])


def test_a_follower_does_what_its_leader_does(kit):
    """Orders are enough to be in the same state, whatever one begins with."""
    orders = []

    def post(words, rows=None):
        orders.append((*words, *([rows(0)] if rows else [])))

    leader = hosts.Leader(kit.agent(), post)
    carry = leader.init_train(kit.batch_size)
    source = leader.stream(iter([kit.batch(leader.own, 0), kit.batch(leader.own, 1)]))
    carry, outs, _ = leader.train(carry, next(source))
    assert set(outs["replay"]) == {"stepid", *leader.ext_space}
    leader.report(leader.init_report(kit.batch_size), kit.batch(leader.own, 2))
    leader.load(leader.save())
    leader.train(carry, next(source))
    other = kit.agent()
    other.load({path: value + value for path, value in other.save().items()})
    follower = hosts.Follower(other)
    for order in orders:
        follower.obey(order)
    ours, theirs = leader.save(), other.save()
    assert set(ours) == set(theirs)
    for path, value in ours.items():
        np.testing.assert_array_equal(theirs[path], value, err_msg=path)
    assert not follower._batches
    assert not follower._state


def test_hosts_with_other_versions_are_refused():
    hosts.check_versions(hosts.versions())
    with pytest.raises(base.SetupError, match=r"the training has jax 0\.1, .* install"):
        hosts.check_versions({**hosts.versions(), "jax": "0.1"})


@pytest.fixture(scope="module")
def single():
    return result(start("alone"))


@pytest.mark.slow
@pytest.mark.parametrize(("mesh", "delay"), [("[2, 2, 1]", 0), ("[4, 1, 1]", LATE)])
def test_two_hosts_learn_what_one_device_learns(tmp_path, single, mesh, delay):
    address = rpc.resolve("localhost:{auto}")
    leader = start("leader", mesh, address, tmp_path)
    follower = start("follower", mesh, address, delay)
    hosted = result(leader)
    _, errors = follower.communicate(timeout=60)
    assert follower.returncode == 0, errors[-3000:]
    assert hosted["shapes"] == single["shapes"]  # Latents of the whole batch.
    for one, two in zip(single["results"], hosted["results"], strict=True):
        assert set(one) == set(two)
        for key in one:
            np.testing.assert_allclose(two[key], one[key], 1e-4, 1e-4, err_msg=key)
    for key, value in single["sums"].items():
        np.testing.assert_allclose(hosted["sums"][key], value, 1e-4, 1e-3)
    _, before, after = hosted["results"]
    for key, value in before.items():  # All hosts went back to the same state.
        np.testing.assert_allclose(after[key], value, 1e-6, 1e-6, err_msg=key)
