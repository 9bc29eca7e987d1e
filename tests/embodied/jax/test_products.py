"""Products with kernels: their gradients are those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import products


@pytest.mark.parametrize("batch", [(), (5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("units", [(4, 7), (7, 4), (1, 1)])
def test_the_gradient_is_that_of_the_product(batch, units):
    rng = np.random.default_rng(0)
    x, kernel, dy = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((*batch, units[0]), units, (*batch, units[1]))
    )
    expected, back = jax.vjp(jnp.matmul, x, kernel)
    actual, fast = jax.vjp(products.product, x, kernel)
    np.testing.assert_array_equal(actual, expected)
    for ours, theirs in zip(jax.jit(fast)(dy), back(dy), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


@pytest.mark.parametrize("units", [(64, 255), (384, 128)])
def test_no_factor_is_stored_the_other_way_round(units):
    """XLA would multiply by a transposed `dy`, which takes two to six times as long."""
    shapes = [jax.ShapeDtypeStruct((16, 256, size), jnp.float32) for size in units]

    def gradient(x, dy):
        return products.kernel_grad(x, jax.nn.silu(dy) * dy)

    program = jax.jit(gradient).lower(*shapes).compile().as_text()
    assert "lhs_contracting_dims={0}, rhs_contracting_dims={0}" in program
    assert "rhs_contracting_dims={1}" not in program
