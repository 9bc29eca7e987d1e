"""The fast convolutions against the plain ones they replace, with their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from embodied.jax import conv

# Few and many channels take different paths; 3x3 kernels have another cell grid.
SHAPES = [
    (8, 8, 3, 5, 5),
    (8, 4, 20, 6, 5),
    (4, 4, 40, 3, 5),
    (8, 8, 34, 40, 5),
    (4, 8, 3, 5, 3),
    (4, 8, 6, 5, 3),
    (8, 8, 6, 5, 7),
]


def plain_conv(x, kernel, bias):
    layout = ("NHWC", "HWIO", "NHWC")
    y = lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=layout)
    return y + bias


def plain_pool(x, kernel, bias):
    size = (1, 2, 2, 1)
    y = plain_conv(x, kernel, bias)
    return lax.reduce_window(y, -jnp.inf, lax.max, size, size, "VALID")


def plain_upsample(x, kernel, bias):
    return plain_conv(x.repeat(2, 1).repeat(2, 2), kernel, bias)


def arrays(height, width, channels, units, size):
    rng = np.random.default_rng(0)
    shapes = ((3, height, width, channels), (size, size, channels, units), (units,))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("fast", "plain"),
    [(conv.conv_pool, plain_pool), (conv.upsample_conv, plain_upsample)],
)
def test_values_and_gradients(fast, plain, shape):
    args = arrays(*shape)

    def both(fn):
        def loss(*args):
            y = fn(*args)
            weights = jnp.cos(jnp.arange(y.size, dtype=jnp.float32)).reshape(y.shape)
            return (y * weights).sum(), y

        return jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))(*args)

    (grads, y), (wants, want) = both(fast), both(plain)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    for grad, desired in zip(grads, wants, strict=True):
        np.testing.assert_allclose(grad, desired, rtol=1e-4, atol=1e-3)


def test_a_tie_goes_to_the_first_pixel():
    x, bias = np.zeros((1, 4, 4, 2), np.float32), np.zeros(3, np.float32)
    kernel = np.random.default_rng(0).normal(size=(5, 5, 2, 3)).astype(np.float32)
    fast = jax.grad(lambda x: conv.conv_pool(x, kernel, bias).sum())(x)
    plain = jax.grad(lambda x: plain_pool(x, kernel, bias).sum())(x)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


def test_wrong_shapes_are_refused():
    x, kernel, bias = arrays(8, 8, 3, 5, 5)
    with pytest.raises(ValueError, match="even height"):
        conv.conv_pool(x[:, :7], kernel, bias)
    with pytest.raises(ValueError, match="square and odd"):
        conv.upsample_conv(x, kernel[:4, :4], bias)
    with pytest.raises(ValueError, match="x has 2 channels, the kernel 3"):
        conv.conv_pool(x[..., :2], kernel, bias)
