"""Two hosts with two devices each learn what one device learns."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from embodied import rpc

ROOT = pathlib.Path(__file__).parents[2]
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


@pytest.mark.slow
def test_two_hosts_learn_what_one_device_learns(tmp_path):
    single = result(start("alone"))
    address = rpc.resolve("localhost:{auto}")
    leader, follower = start("leader", address, tmp_path), start("follower", address)
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
