"""Image convolutions: convolve-then-pool and upsample-then-convolve.

A *cell* is a 2x2 block of pixels; for a 5x5 kernel the 2x2 outputs of a cell read the
6x6 pixels of its 3x3 neighbouring cells. So both are one convolution of a small grid:

    conv_pool      cells with 4C channels -> 4O channels, then a max over the 4 phases
    upsample_conv  pixels with C channels -> 4O channels, then phases become pixels

The second needs fewer multiplications everywhere. The first, and what convolutions are
made of here, only run faster on CPUs, several times if channels are few;
`embodied.jax.cpu.tune` lets them use every core. Keep their gradients out of `lax.scan`
and `lax.map`: inside a loop XLA runs the kernel gradient many times slower on CPU.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..cpu import has_avx512
from .dispatch import fast_on_cpu
from .products import spread

# Cells do 36/25 of the multiplications and still win below this many channels; pairing
# does 6/5 (5x5) or 4/3 (3x3) of them and wins below the other, where building patches
# costs more than multiplying them. Measured with AVX-512; AVX2 shows no other limits.
CELL_CHANNELS = 32
PAIR_CHANNELS = 16
# Kernel gradients build more patches: with AVX-512 pairs win while neither side has
# more channels than this. With AVX2, where multiplying takes twice as long, they lose:
# the encoder of size12m and its gradient take 1.24 s with, 1.04 s without (256 frames).
GRAD_CHANNELS = 64 if has_avx512() else 0
CHUNK = 256  # Frames whose activations fit into the caches.


def _to_cells(x: Array) -> Array:
    """`[N,H,W,C] -> [N,H/2,W/2,4C]`, the phases before the channels."""
    n, h, w, c = x.shape
    x = x.reshape(n, h // 2, 2, w // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, h // 2, w // 2, 4 * c)


def _from_cells(x: Array) -> Array:
    """The inverse of `_to_cells`."""
    n, h, w, c = x.shape
    x = x.reshape(n, h, w, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return x.reshape(n, 2 * h, 2 * w, c // 4)


def _phase_taps(kernel: Array) -> Array:
    """The kernel as seen from each output phase: `[S',2,S',2,C,4O]`.

    Phase `(p,q)` reads the window of `S'` cells that starts `2R` pixels before the
    cell, `R = ceil(r/2)`, so its taps begin at pixel `p + 2R - r` of that window.
    """
    size, _, c, o = kernel.shape
    radius = size // 2
    cells = 2 * ((radius + 1) // 2) + 1
    first = cells - 1 - radius
    spare = 2 * cells - size - first
    phases = [
        jnp.pad(
            kernel, ((first + p, spare - p), (first + q, spare - q), (0, 0), (0, 0))
        )
        for p in (0, 1)
        for q in (0, 1)
    ]
    return jnp.stack(phases, 3).reshape(cells, 2, cells, 2, c, 4 * o)


def _cell_kernel(kernel: Array) -> Array:
    """The kernel between cells: `[S,S,C,O] -> [S',S',4C,4O]`."""
    taps = _phase_taps(kernel)
    cells, _, _, _, c, o = taps.shape
    return taps.transpose(0, 2, 1, 3, 4, 5).reshape(cells, cells, 4 * c, o)


def _lax_conv(x: Array, kernel: Array, stride: int = 1) -> Array:
    """Plain convolution; `stride` is the horizontal one, padding as for stride 1."""
    radius = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x,
        kernel,
        window_strides=(1, stride),
        padding=((radius, radius), (radius, radius)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _pair_conv(x: Array, kernel: Array) -> Array:
    """The same convolution, two neighbouring outputs per patch: half the patches."""
    size, _, c, o = kernel.shape
    shifts = [jnp.pad(kernel, ((0, 0), (q, 1 - q), (0, 0), (0, 0))) for q in (0, 1)]
    pairs = jnp.stack(shifts, 3).reshape(size, size + 1, c, 2 * o)
    return _lax_conv(x, pairs, stride=2).reshape(*x.shape[:3], o)


@jax.custom_vjp
def _fast_conv(x: Array, kernel: Array) -> Array:
    if x.shape[-1] < PAIR_CHANNELS and x.shape[2] % 2 == 0:
        return _pair_conv(x, kernel)
    return _lax_conv(x, kernel)


def _conv_fwd(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _fast_conv(x, kernel), (x, kernel)


def _conv_bwd(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    """`dx = dy * flip(k)^T`; `dk[u,v] = sum_{n,i,j} x[n,i+u-r,j+v-r]^T dy[n,i,j]`."""
    x, kernel = residuals
    return _fast_conv(dy, _flip(kernel)), _kernel_grad(x, dy, kernel.shape[0])


_fast_conv.defvjp(_conv_fwd, _conv_bwd)


@fast_on_cpu(_fast_conv)
def conv(x: Array, kernel: Array) -> Array:
    """Convolve with same padding, `[N,H,W,C] * [S,S,C,O] -> [N,H,W,O]`."""
    return _lax_conv(x, kernel)


@jax.custom_vjp
def _cell_conv(x: Array, kernel: Array) -> Array:
    """`conv` of the cells of `x`, `[N,H,W,C] * [S,S,4C,4O] -> [N,H/2,W/2,4O]`.

    A window of `2S` pixels that moves by 2 reads the same numbers. So `x` stays as it
    is: XLA would compute what it is a function of while it rearranges it, pixel by
    pixel instead of as vectors.
    """
    c, (size, _, _, o) = x.shape[-1], kernel.shape
    if 4 * c < PAIR_CHANNELS:  # So few that pairs of cells are faster.
        return _fast_conv(_to_cells(x), kernel)
    pixels = kernel.reshape(size, size, 2, 2, c, o).transpose(0, 2, 1, 3, 4, 5)
    return lax.conv_general_dilated(
        x,
        pixels.reshape(2 * size, 2 * size, c, o),
        window_strides=(2, 2),
        padding=((size - 1, size - 1), (size - 1, size - 1)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _cell_conv_fwd(x: Array, kernel: Array) -> tuple[Array, tuple[Array, Array]]:
    return _cell_conv(x, kernel), (x, kernel)


def _cell_conv_bwd(residuals: tuple[Array, Array], dy: Array) -> tuple[Array, Array]:
    """That of `conv` on cells."""
    x, kernel = residuals
    dx, dkernel = _conv_bwd((_to_cells(x), kernel), dy)
    return _from_cells(dx), dkernel


_cell_conv.defvjp(_cell_conv_fwd, _cell_conv_bwd)


def _flip(kernel: Array) -> Array:
    return kernel[::-1, ::-1].swapaxes(2, 3)


def _kernel_grad(x: Array, dy: Array, size: int) -> Array:
    """The kernel gradient, with the wider operand as the columns of the product."""
    c, o = x.shape[-1], dy.shape[-1]
    if o < c:
        return _flip(_kernel_grad(dy, x, size))
    if o <= GRAD_CHANNELS and size % 4 == 1 and x.shape[2] % 2 == 0:
        return _pair_kernel_grad(x, dy, size)
    kernel = jax.ShapeDtypeStruct((size, size, c, o), x.dtype)
    (grad,) = jax.linear_transpose(partial(_lax_conv, x), kernel)(dy)
    return grad


def _pair_kernel_grad(x: Array, dy: Array, size: int) -> Array:
    """The same for pairs of neighbouring columns: half the patches, twice as wide.

    With `j = 2m+q`, tap `v` of output `j` reads pixel `2m+(v+q)-r`: one of `S+1` taps
    of pair `m`, which are two pixels of `(S+1)/2` pairs, as `r` is even.
    """
    (n, h, w, c), o, radius = x.shape, dy.shape[-1], size // 2
    columns = x.reshape(n, h, w // 2, 2, c).transpose(3, 4, 1, 2, 0)
    taps = lax.conv_general_dilated(
        columns.reshape(2 * c, h, w // 2, n),
        dy.reshape(n, h, w // 2, 2 * o).transpose(1, 2, 0, 3),
        window_strides=(1, 1),
        padding=((radius, radius), (radius // 2, radius // 2)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        preferred_element_type=jnp.float32,  # Rounded once, after the two are added.
    )
    taps = taps.reshape(2, c, size, radius + 1, 2, o).transpose(4, 2, 3, 0, 1, 5)
    taps = taps.reshape(2, size, size + 1, c, o)
    return (taps[0, :, :-1] + taps[1, :, 1:]).astype(x.dtype)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _max(z: Array, axes: tuple[int, int]) -> Array:
    """Maximum over two axes of size 2."""
    a, b, c, d = _phases(z, axes)
    return jnp.maximum(jnp.maximum(a, b), jnp.maximum(c, d))


def _max_fwd(z: Array, axes: tuple[int, int]) -> tuple[Array, Array]:
    """The maximum, and which of the four phases it is as one byte for the gradient."""
    return _max(z, axes), _stored(partial(_argmax, axes=axes), z)


def _argmax(z: Array, axes: tuple[int, int]) -> Array:
    """The number of the first phase that is the maximum."""
    a, b, c, d = _phases(z, axes)
    upper, lower = jnp.where(a >= b, 0, 1), jnp.where(c >= d, 2, 3)
    phase = jnp.where(jnp.maximum(a, b) >= jnp.maximum(c, d), upper, lower)
    return phase.astype(jnp.uint8)


def _phases(z: Array, axes: tuple[int, int]) -> list[Array]:
    """The four phases of each cell, in row-major order."""
    rows = [lax.index_in_dim(z, p, axes[0], keepdims=False) for p in (0, 1)]
    return [
        lax.index_in_dim(row, q, axes[1] - 1, keepdims=False)
        for row in rows
        for q in (0, 1)
    ]


def _stored(fn: Callable[[Array], Array], x: Array) -> Array:
    """`fn(x)`, computed once and kept; entries of `x` must not depend on each other.

    XLA computes what is cheap again in every consumer. On a CPU that is slow where the
    consumer rearranges it, as the kernel gradient does: number by number and not as
    vectors. What a loop returns is kept, here of two halves; XLA ignores an
    `optimization_barrier`. An odd number of entries is not worth a special case.
    """
    if len(x) % 2:
        return fn(x)
    halves = lax.map(fn, x.reshape(2, len(x) // 2, *x.shape[1:]))
    return halves.reshape(len(x), *halves.shape[2:])


def _max_bwd(axes: tuple[int, int], phase: Array, dy: Array) -> tuple[Array]:
    phase, dy = jnp.expand_dims(phase, axes), jnp.expand_dims(dy, axes)
    shape = [2 if axis in axes else 1 for axis in range(dy.ndim)]
    phases = jnp.arange(4, dtype=jnp.uint8).reshape(shape)
    return (jnp.where(phase == phases, dy, jnp.zeros((), dy.dtype)),)


_max.defvjp(_max_fwd, _max_bwd)


def _fast_pool_of_conv(x: Array, kernel: Array) -> Array:
    """As one convolution of cells if there are few channels; the maximum by phases."""
    (n, h, w, c), o = x.shape, kernel.shape[-1]
    if c < CELL_CHANNELS:
        z = _cell_conv(x, _cell_kernel(kernel))
        return _max(z.reshape(n, h // 2, w // 2, 2, 2, o), (3, 4))
    z = _fast_conv(x, kernel)
    return _max(z.reshape(n, h // 2, 2, w // 2, 2, o), (2, 4))


@fast_on_cpu(_fast_pool_of_conv)
def pool_of_conv(x: Array, kernel: Array) -> Array:
    """Convolve with same padding, max-pool 2x2: `[N,H,W,C] -> [N,H/2,W/2,O]`.

    The gradient of a tie goes to the first maximum in row-major order.
    """
    y, size = _lax_conv(x, kernel), (1, 2, 2, 1)
    return lax.reduce_window(y, -jnp.inf, lax.max, size, size, "VALID")


def conv_pool(x: Array, kernel: Array, bias: Array) -> Array:
    """Convolve with same padding, add the bias, max-pool 2x2 with stride 2.

    `y[n,i,j,o] = b[o] + max_{p,q in {0,1}} sum_{u,v,c} x[n,2i+p+u-r,2j+q+v-r,c]
    k[u,v,c,o]`, for `x [N,H,W,C]`, `kernel [2r+1,2r+1,C,O]`, `y [N,H/2,W/2,O]`.
    """
    _, h, w, _ = _check(x, kernel, bias)
    if h % 2 or w % 2:
        raise ValueError(f"conv_pool needs an even height and width, got {h}x{w}.")
    y = pool_of_conv(x, kernel)
    return y + spread(bias, y.shape)


def upsample_conv(x: Array, kernel: Array, bias: Array) -> Array:
    """Repeat every pixel 2x2, convolve with same padding, add the bias.

    `y[n,i,j,o] = b[o] + sum_{u,v,c} x[n,(i+u-r)//2,(j+v-r)//2,c] k[u,v,c,o]`, for
    `x [N,H,W,C]`, `kernel [2r+1,2r+1,C,O]`, `y [N,2H,2W,O]`. Taps that fall on the
    same small pixel are added up first: 25 multiplications become 9.
    """
    _check(x, kernel, bias)
    y = _from_cells(conv(x, _phase_taps(kernel).sum((1, 3))))
    return y + spread(bias, y.shape)


def _check(x: Array, kernel: Array, bias: Array) -> tuple[int, ...]:
    """Raise on shapes that have no meaning here, return the shape of `x`."""
    if x.ndim != 4 or kernel.ndim != 4 or bias.shape != kernel.shape[-1:]:
        raise ValueError(
            f"Expected x [N,H,W,C], kernel [S,S,C,O] and bias [O], got {x.shape}, "
            f"{kernel.shape} and {bias.shape}."
        )
    size, width, channels, _ = kernel.shape
    if size != width or size % 2 == 0:
        raise ValueError(f"The kernel must be square and odd, got {size}x{width}.")
    if channels != x.shape[-1]:
        raise ValueError(f"x has {x.shape[-1]} channels, the kernel {channels}.")
    return x.shape


def _fast_in_chunks(fn: Callable[[Array], Array], x: Array) -> Array:
    """So that the activations of a few frames stay in the caches of a CPU."""
    starts = range(0, len(x), CHUNK)
    return jnp.concatenate([fn(x[i : i + CHUNK]) for i in starts])


@fast_on_cpu(_fast_in_chunks)
def in_chunks(fn: Callable[[Array], Array], x: Array) -> Array:
    """`fn(x)`, where `fn` maps each entry of `x` by itself."""
    return fn(x)
