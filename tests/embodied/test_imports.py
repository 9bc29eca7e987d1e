"""Environment machines have no JAX: nothing on their side may import it."""

import pkgutil
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
    "dreamerv3.commands.envs",
    *sorted(
        module.name
        for module in pkgutil.walk_packages(embodied.__path__, "embodied.")
        if module.name.startswith("embodied.envs.") and module.name not in STANDINS
    ),
]


@pytest.mark.parametrize("name", WITHOUT_JAX)
def test_import_without_jax(name):
    code = (
        "import sys; sys.modules['jax'] = None\n"  # Importing JAX now fails.
        f"import {name}\n"
        "heavy = {'jax', 'jaxlib', 'equinox', 'optax', 'orbax'} & {\n"
        "    m for m, v in sys.modules.items() if v is not None}\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
