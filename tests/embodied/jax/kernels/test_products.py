"""Products with kernels: their gradients are those of JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax.kernels import products


@pytest.mark.parametrize("batch", [(), (5,), (3, 5), (2, 3, 5)])
@pytest.mark.parametrize("units", [(4, 7), (7, 4), (1, 1)])
def test_the_gradient_is_that_of_the_product(batch, units):
    rng = np.random.default_rng(0)
    x, kernel, dy = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((*batch, units[0]), units, (*batch, units[1]))
    )
    expected, back = jax.vjp(products.product.plain, x, kernel)
    actual, fast = jax.vjp(products.product.fast, x, kernel)
    np.testing.assert_array_equal(actual, expected)
    for ours, theirs in zip(jax.jit(fast)(dy), back(dy), strict=True):
        np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


@pytest.mark.parametrize("units", [(64, 255), (384, 128)])
def test_no_factor_is_stored_the_other_way_round(units):
    """XLA would multiply by a transposed `dy`, which takes two to six times as long."""
    shapes = [jax.ShapeDtypeStruct((16, 256, size), jnp.float32) for size in units]

    def gradient(x, dy):
        return products.kernel_grad.fast(x, jax.nn.silu(dy) * dy)

    program = jax.jit(gradient).lower(*shapes).compile().as_text()
    assert "lhs_contracting_dims={0}, rhs_contracting_dims={0}" in program
    assert "rhs_contracting_dims={1}" not in program


@pytest.mark.parametrize("form", [products.spread.fast, products.spread.plain])
@pytest.mark.parametrize("rank", [1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_gradient_of_a_vector_that_is_spread(form, rank, dtype):
    rng = np.random.default_rng(0)
    shape = (2, 3, 4, 5)[-rank:]
    weight = jnp.asarray(rng.normal(size=shape), dtype)
    vector = jnp.asarray(rng.normal(size=5), dtype)
    grad = jax.grad(lambda v: (form(v, shape) * weight).sum())(vector)
    assert grad.dtype == dtype
    want = np.asarray(weight, np.float64).reshape(-1, 5).sum(0)
    tolerance = 1e-6 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(np.asarray(grad, np.float64), want, 0, tolerance)


@pytest.mark.parametrize("batch", [(5,), (2, 3, 5)])
def test_joined_maps_are_the_maps_by_themselves(batch):
    rng = np.random.default_rng(0)
    x, *kernels = (
        jnp.asarray(rng.normal(size=shape), jnp.float32)
        for shape in ((*batch, 6), (6, 4), (6, 1), (6, 9))
    )
    biases = [kernel.sum(0) for kernel in kernels]
    args = (x, kernels, biases)
    fast, fast_back = jax.vjp(products.linears.fast, *args)
    plain, plain_back = jax.vjp(products.linears.plain, *args)
    dy = [jnp.cos(y) for y in plain]
    results = (fast, fast_back(dy)), (plain, plain_back(dy))
    for one, two in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(one, two, 1e-5, 1e-5)


def test_joined_maps_are_one_product_on_one_cpu():
    args = jnp.zeros((5, 6)), [jnp.zeros((6, 8))] * 3, [jnp.zeros(8)] * 3
    for form, count in ((products.linears.fast, 1), (products.linears.plain, 3)):
        assert str(jax.make_jaxpr(form)(*args)).count("dot_general") == count
