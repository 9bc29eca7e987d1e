"""Setting up JAX: what a platform that is not there says, where programs are kept."""

import os
import subprocess
import sys

import jax
import pytest

from embodied.core import base
from embodied.jax import devices
from embodied.testing import damage

PROGRAM = """
import elements
from embodied.jax import devices
from embodied.testing import damage
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
from embodied.testing import damage
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


COMPILED = """
import sys
import jax, jax.numpy as jnp
from embodied.jax import devices
from embodied.testing import damage
devices.setup_cache(sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(jax.jit(lambda x: jnp.tanh(x @ x).sum())(jnp.eye(3)))
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", damage.KINDS)
def test_damaged_programs_are_compiled_again(tmp_path, kind):
    """JAX warns and names what it cannot read; the result is the same."""
    results = []
    for _ in range(2):
        command = [sys.executable, "-c", COMPILED, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        results.append(done.stdout)
        programs = list(tmp_path.glob("*/*-cache"))
        assert programs
        for path in programs:
            damage.damage(path, kind)
    assert results[0] == results[1]
    assert "cache" in done.stderr
