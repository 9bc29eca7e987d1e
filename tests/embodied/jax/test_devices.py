"""Setting up JAX: what a platform that is not there says."""

import subprocess
import sys

PROGRAM = """
import elements
from embodied.jax import devices
options = dict(platform="tpu", mock_devices=0, prealloc=True)
devices.setup(elements.Config(**options, debug_nans=False, cache="off"))
"""


def test_a_platform_that_is_not_there():
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 1
    assert "jax.platform=tpu, but JAX finds no such device here" in result.stderr
    assert "use auto or cpu" in result.stderr
