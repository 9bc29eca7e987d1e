"""The fast convolutions against the plain ones they replace, with their gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from embodied.jax import cpu
from embodied.jax.kernels import conv, dispatch

# Few and many channels take different paths; 3x3 kernels have another cell grid.
MANY = [(4, 4, 40, 3, 5), (8, 8, 34, 40, 5)]
SHAPES = [
    *MANY,
    (8, 8, 3, 5, 5),
    (8, 4, 20, 6, 5),
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
    shapes = ((6, height, width, channels), (size, size, channels, units), (units,))
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


@pytest.fixture(params=[True, False], ids=["fast", "plain"])
def one_cpu(request, monkeypatch):
    monkeypatch.setattr(dispatch, "on_one_cpu", lambda: request.param)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("mine", "plain"),
    [(conv.conv_pool, plain_pool), (conv.upsample_conv, plain_upsample)],
)
def test_values_and_gradients(one_cpu, mine, plain, shape):
    check_values_and_gradients(mine, plain, shape)


@pytest.mark.parametrize("shape", MANY)
@pytest.mark.parametrize("limit", [0, 64])
def test_values_and_gradients_with_and_without_pairs(monkeypatch, shape, limit):
    monkeypatch.setattr(conv, "GRAD_CHANNELS", limit)
    check_values_and_gradients(conv.conv_pool, plain_pool, shape)


def check_values_and_gradients(fast, plain, shape):
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


@pytest.mark.parametrize("frames", [1, 2])
def test_a_tie_goes_to_the_first_pixel(frames):
    x, bias = np.zeros((frames, 4, 4, 2), np.float32), np.zeros(3, np.float32)
    kernel = np.random.default_rng(0).normal(size=(5, 5, 2, 3)).astype(np.float32)
    fast = jax.grad(lambda x: conv.conv_pool(x, kernel, bias).sum())(x)
    plain = jax.grad(lambda x: plain_pool(x, kernel, bias).sum())(x)
    np.testing.assert_allclose(fast, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("size", [1, 5, 9])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_kernel_gradient_of_pairs(size, dtype):
    rng = np.random.default_rng(0)
    x, dy = (jnp.asarray(rng.normal(size=(2, 5, 6, c)), dtype) for c in (3, 4))
    grad = conv._pair_kernel_grad(x, dy, size)
    assert grad.dtype == dtype
    kernel = jax.ShapeDtypeStruct((size, size, 3, 4), "float32")
    x, dy = x.astype("float32"), dy.astype("float32")
    (want,) = jax.linear_transpose(lambda k: conv._lax_conv(x, k), kernel)(dy)
    tolerance = 1e-5 if dtype == "float32" else 1e-2
    np.testing.assert_allclose(grad.astype("float32"), want, tolerance, tolerance)


@pytest.mark.parametrize(
    ("limit", "channels", "paired"), [(64, 32, True), (64, 128, False), (0, 32, False)]
)
def test_pairs_are_taken_where_they_win(monkeypatch, limit, channels, paired):
    taken = []
    pairs = conv._pair_kernel_grad
    monkeypatch.setattr(conv, "GRAD_CHANNELS", limit)
    monkeypatch.setattr(
        conv, "_pair_kernel_grad", lambda *args: taken.append(1) or pairs(*args)
    )
    x, kernel, bias = arrays(8, 8, channels, channels, 5)
    jax.grad(lambda k: conv.conv_pool(x, k, bias).sum())(kernel)
    assert bool(taken) == paired


@pytest.mark.parametrize(
    ("count", "looped"), [(1, False), (2, True), (5, False), (6, True)]
)
def test_what_is_stored_is_the_same(count, looped):
    x = jnp.asarray(np.random.default_rng(0).normal(size=(count, 3, 4)), jnp.float32)

    def largest(x):
        return conv._stored(lambda x: x.max(-1), x)

    np.testing.assert_array_equal(jax.jit(largest)(x), x.max(-1))
    assert ("scan" in str(jax.make_jaxpr(largest)(x))) == looped


@pytest.mark.parametrize("count", [1, 256, 300])
def test_chunks_give_what_the_whole_gives(count):
    x = jnp.arange(3.0 * count).reshape(count, 3)

    def loss(fn, x):
        y = fn(jnp.sin, x)
        return (y * jnp.cos(jnp.arange(y.size)).reshape(y.shape)).sum()

    fast, plain = conv.in_chunks.fast, conv.in_chunks.plain
    np.testing.assert_allclose(fast(jnp.sin, x), plain(jnp.sin, x), atol=1e-6)
    grads = [jax.grad(loss, 1)(fn, x) for fn in (fast, plain)]
    np.testing.assert_allclose(*grads, atol=1e-6)


def test_avx512_is_recognised(tmp_path):
    info = tmp_path / "cpuinfo"
    assert not cpu.has_avx512(info)
    info.write_text("flags : fpu avx2 fma\n")
    assert not cpu.has_avx512(info)
    info.write_text("flags : fpu avx2 avx512f avx512dq\n")
    assert cpu.has_avx512(info)


def test_wrong_shapes_are_refused():
    x, kernel, bias = arrays(8, 8, 3, 5, 5)
    with pytest.raises(ValueError, match="even height"):
        conv.conv_pool(x[:, :7], kernel, bias)
    with pytest.raises(ValueError, match="square and odd"):
        conv.upsample_conv(x, kernel[:4, :4], bias)
    with pytest.raises(ValueError, match="x has 2 channels, the kernel 3"):
        conv.conv_pool(x[..., :2], kernel, bias)
