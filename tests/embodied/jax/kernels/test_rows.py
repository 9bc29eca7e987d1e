"""Fast reductions of rows against the plain ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax.kernels import rows

WIDTHS = (1, 2, 3, 8, 33, 63, 64, 255, 2048)


def numbers(width):
    return np.random.default_rng(width).normal(size=(4, 3, width)).astype(np.float32)


def rms_norm(form):
    def call(x):
        scale = jnp.linspace(-1, 1, x.shape[-1])
        return form(x, scale, 1e-4, (-1,)), form(x, scale, 1e-4, (0, -1))

    return call


PAIRS = {
    "row_sum": (rows.row_sum, lambda x: x.sum(-1)),
    "softmax": (rows.softmax.fast, rows.softmax.plain),
    "logsumexp": (rows.logsumexp.fast, rows.logsumexp.plain),
    "log_softmax": (rows.log_softmax.fast, rows.log_softmax.plain),
    "rms_norm": (rms_norm(rows.rms_norm.fast), rms_norm(rows.rms_norm.plain)),
}


@pytest.mark.parametrize("offset", [0, 1000])  # Must not cost precision.
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(name, width, offset):
    x = numbers(width) + np.float32(offset)

    def loss(fn, x):
        ys = jax.tree.leaves(fn(x))
        return sum((y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum() for y in ys)

    def results(fn, compiled):
        wrap = jax.jit if compiled else lambda fn: fn
        value, grad = wrap(lambda x: fn(x)), wrap(jax.grad(lambda x: loss(fn, x)))
        return value(x), grad(x)

    mine, plain = PAIRS[name]
    for compiled in (True, False):
        pair = results(mine, compiled), results(plain, compiled)
        for one, two in zip(*map(jax.tree.leaves, pair), strict=True):
            np.testing.assert_allclose(one, two, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_maximum_of_each_row(width):
    x = numbers(width)
    np.testing.assert_array_equal(rows.row_max(x), x.max(-1))
    for place in {0, width // 2, width - 1}:  # None may be left out.
        spiked = np.array(x)
        spiked[..., place] = 100
        np.testing.assert_array_equal(rows.row_max(spiked), 100)


def test_no_gradient_goes_through_the_maximum():
    grad = jax.grad(lambda x: rows.row_max(x).sum())(numbers(8))
    np.testing.assert_array_equal(grad, 0)


def test_large_numbers_do_not_overflow():
    x = np.array([[1e4, -1e4, 1e4], [-1e30, 0, -1e30]], np.float32)
    want = np.array([[0.5, 0, 0.5], [0, 1, 0]], np.float32)
    np.testing.assert_allclose(rows.softmax.fast(x), want)
    np.testing.assert_allclose(rows.logsumexp.fast(x), [1e4 + np.log(2), 0], rtol=1e-6)


def test_what_is_repeated_along_rows_is_summed_in_the_gradient():
    x, weight = numbers(5), np.random.default_rng(0).random((4, 3, 5, 64), np.float32)
    np.testing.assert_array_equal(
        rows.spread_rows(x, 64), np.repeat(x[..., None], 64, -1)
    )
    grad = jax.grad(lambda x: (rows.spread_rows(x, 64) * weight).sum())(x)
    np.testing.assert_allclose(grad, weight.sum(-1), rtol=1e-5)
