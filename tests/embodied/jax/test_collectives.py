"""Functions of devices that share a batch, in a process with several of them."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import collectives

PROGRAM = """
import jax, numpy as np
import jax.numpy as jnp
jax.config.update("jax_num_cpu_devices", 2)
from embodied.jax import collectives, sharding
from embodied.jax.kernels import dispatch
mesh = sharding.make_mesh(jax.devices(), (-1, 1, 1))
assert sharding.splits_rows(mesh, 4) and not sharding.splits_rows(mesh, 3)
assert not dispatch.on_one_cpu()

def local(scale, x):
    assert dispatch.on_one_cpu() and x.shape == (2, 3)
    rows = collectives.gather(x.T)
    average = collectives.mean({"a": x.mean(), "b": scale * x.sum(0)})
    return average, rows, 2 * x

fn = sharding.by_rows(local, mesh, (False, True), (False, False, True))
x = np.arange(12, dtype=np.float32).reshape(4, 3)
average, rows, twice = jax.jit(fn)(np.float32(4), x)
np.testing.assert_allclose(average["a"], x.mean())
np.testing.assert_allclose(average["b"], 2 * x.sum(0))
np.testing.assert_array_equal(rows, x.T)
np.testing.assert_array_equal(twice, 2 * x)
text = jax.jit(fn).lower(np.float32(4), x).compile().as_text()
assert text.count(" all-reduce(") == 1
"""


@pytest.mark.process
def test_devices_with_rows_of_their_own_agree_in_one_exchange():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)


def test_where_nothing_is_split_nothing_changes():
    x = {"a": jnp.arange(3.0)}
    assert collectives.mean(x) is x
    np.testing.assert_array_equal(collectives.gather(x["a"]), x["a"])
