"""Procgen on the real package, which needs an interpreter with NumPy below 2."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]
PACKAGES = (
    *("procgen-mirror", "pillow", "elements", "msgpack", "pyzmq", "psutil"),
    "cloudpickle",
)
CODE = """
import numpy
from embodied import envs
from embodied.testing import check_env
assert numpy.__version__ < "2", numpy.__version__
for name in ("coinrun", "bigfish", "bossfight"):
    print(name, check_env(lambda: envs.make(f"procgen_{name}"), steps=400))
def start(seed):
    return envs.make("procgen_maze", seed=seed).step({"action": 0, "reset": True})
assert (start(1)["image"] == start(1)["image"]).all()
assert (start(1)["image"] != start(2)["image"]).any()
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    """A virtual environment with what the suite needs."""
    folder = tmp_path_factory.mktemp("procgen")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    python = folder / "bin" / "python"
    command = [python, "-m", "pip", "install", "--quiet", *PACKAGES]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode and not os.environ.get("CI"):
        pytest.skip(f"the packages could not be installed: {done.stderr[-300:]}")
    assert done.returncode == 0, done.stderr
    return python


@pytest.mark.slow
def test_contract_in_an_interpreter_with_numpy_1(interpreter):
    done = subprocess.run(
        [interpreter, "-c", CODE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert "bossfight" in done.stdout
