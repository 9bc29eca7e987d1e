"""Setting up JAX: what a platform that is not there says, where programs are kept."""

import os
import subprocess
import sys

import jax
import pytest

from embodied.core import base
from embodied.jax import devices

PROGRAM = """
import elements
from embodied.jax import devices
options = dict(platform="tpu", mock_devices=0, prealloc=True)
devices.setup(elements.Config(**options, debug_nans=False, cache="off"))
"""


@pytest.mark.process
def test_a_platform_that_is_not_there():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 1
    assert "jax.platform=tpu, but JAX finds no such device here" in result.stderr
    assert "use auto or cpu" in result.stderr


CACHED = """
import os, sys
import jax
from embodied.jax import devices
os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[: int(sys.argv[2])]))
devices.setup_cache(sys.argv[1])
print(jax.config.jax_compilation_cache_dir)
"""


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Needs Linux.")
def test_programs_are_kept_by_the_cores_they_are_for(tmp_path):
    """XLA makes programs for the cores that it may use, but JAX's key lacks them."""
    for count in {1, len(os.sched_getaffinity(0))}:
        command = [sys.executable, "-c", CACHED, str(tmp_path), str(count)]
        result = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=True, timeout=120
        )
        assert result.stdout.strip() == str(tmp_path / f"cores{count}")
        assert (tmp_path / f"cores{count}").is_dir()


def test_a_device_that_is_not_there():
    count = len(jax.local_devices())
    with pytest.raises(
        base.SetupError, match=rf"jax\.train_devices=\[0, {count}\], but"
    ):
        devices.pick([0, count], "train_devices")
