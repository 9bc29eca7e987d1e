"""Environment machines have no JAX: nothing on their side may import it."""

import os
import pkgutil
import re
import subprocess
import sys

import pytest

import embodied

# Their packages cannot be installed here; tests import them with stand-ins.
STANDINS = {f"embodied.envs.{n}" for n in ("dmlab", "minecraft_spec", "procgen")}
WITHOUT_JAX = [
    "embodied",
    "embodied.replay",
    "embodied.rpc",
    "embodied.streams",
    "embodied.run",
    "embodied.metrics",
    "embodied.testing",
    "dreamerv3",
    "dreamerv3.main",
    "dreamerv3.api",
    "dreamerv3.commands.check_env",
    "dreamerv3.commands.doctor",
    "dreamerv3.commands.envs",
    *sorted(
        module.name
        for module in pkgutil.walk_packages(embodied.__path__, "embodied.")
        if module.name.startswith("embodied.envs.") and module.name not in STANDINS
    ),
]


HEAVY = ("jax", "jaxlib", "equinox", "optax", "orbax")
OURS = ("embodied", "dreamerv3")


@pytest.mark.parametrize("name", WITHOUT_JAX)
def test_import_without_jax(name):
    code = (
        "import sys; sys.modules['jax'] = None\n"  # Importing JAX now fails.
        "try:\n"
        f"    import {name}\n"
        "except ModuleNotFoundError as error:\n"
        f"    if error.name.split('.')[0] in {HEAVY + OURS}: raise\n"
        "    sys.exit(error.name)\n"
        "loaded = {m for m, v in sys.modules.items() if v is not None}\n"
        f"heavy = loaded.intersection({HEAVY})\n"
        "assert not heavy, heavy"
    )
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    missing = re.fullmatch(r"(\w+)(\.\w+)*\n", result.stderr)
    if result.returncode and missing and not os.environ.get("CI"):
        pytest.skip(f"needs the package {missing[1]}")
    assert result.returncode == 0, result.stderr
