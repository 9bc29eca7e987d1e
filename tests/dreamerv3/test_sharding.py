"""The same losses on one device and on meshes of four."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec

from embodied.jax import sharding


def run(devices, mesh, policy=0):
    root = pathlib.Path(__file__).parents[2]
    script = pathlib.Path(__file__).parent / "sharded.py"
    command = [sys.executable, str(script), str(devices), json.dumps(mesh), str(policy)]
    env = os.environ | {"PYTHONPATH": str(root), "JAX_PLATFORMS": "cpu"}
    out = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert out.returncode == 0, out.stderr[-3000:]
    return json.loads(out.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def single():
    return run(1, [1, 1, 1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mesh", "policy"), [([2, 2, 1], 3), ([4, 1, 1], 0), ([1, 2, 2], 0)]
)
def test_four_devices_give_the_losses_of_one(single, mesh, policy):
    result = run(4, mesh, policy)
    assert result["sharded"] == (mesh[1] * mesh[2] > 1)
    assert result["policy"] == [policy]
    if mesh[1] * mesh[2] == 1:  # Hosts would wait for each other at every step.
        assert result["inner"] == []
    for one, four in zip(single["losses"], result["losses"], strict=True):
        assert set(one) == set(four)
        for key in one:
            np.testing.assert_allclose(four[key], one[key], 1e-4, 1e-4, err_msg=key)


def test_param_specs():
    assert sharding.param_spec((512, 64), 2, 2) == PartitionSpec("fsdp", "tensor")
    assert sharding.param_spec((8, 256, 64), 4, 1) == PartitionSpec(None, "fsdp", None)
    assert sharding.param_spec((64,), 2, 2) == PartitionSpec()
    assert sharding.param_spec((513, 63), 2, 2) == PartitionSpec(None, None)


def test_bad_meshes_are_refused():
    devices = jax.devices()[:1]
    for shape in ((2, 1, 1), (-1, -1, 1), (1, 1), (0, 1, 1)):
        with pytest.raises(ValueError, match="mesh"):
            sharding.make_mesh(devices, shape)
