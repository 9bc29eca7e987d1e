"""Networks that share a product against the same ones apart."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import nets
from embodied.jax.kernels import dispatch


@pytest.fixture(params=[True, False], ids=["one_cpu", "elsewhere"])
def one_cpu(request, monkeypatch):
    monkeypatch.setattr(dispatch, "on_one_cpu", lambda: request.param)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layers", [(1, 1, 3), (2, 0, 1), (0, 0)])
def test_mlps_begun_together_are_the_mlps_by_themselves(one_cpu, layers, dtype):
    rng = np.random.default_rng(0)
    mlps = [nets.MLP(rng, 6, 8 + i, n, dtype) for i, n in enumerate(layers)]
    x = jnp.asarray(rng.normal(size=(4, 3, 6)), dtype)

    def together(mlps, x):
        return [
            m.finish(y) for m, y in zip(mlps, nets.first_maps(mlps, x), strict=True)
        ]

    def apart(mlps, x):
        return [mlp(x) for mlp in mlps]

    def loss(mlps, x, fn):
        return sum(jnp.sin(3 * y.astype(jnp.float32)).sum() for y in fn(mlps, x))

    close = 1e-5 if dtype == "float32" else 0.1
    for one, two in zip(together(mlps, x), apart(mlps, x), strict=True):
        assert one.dtype == two.dtype
        np.testing.assert_allclose(
            np.float32(one), np.float32(two), rtol=close, atol=close
        )
    one, two = (jax.grad(loss, (0, 1))(mlps, x, fn) for fn in (together, apart))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(
            np.float32(a), np.float32(b), rtol=close, atol=10 * close
        )
