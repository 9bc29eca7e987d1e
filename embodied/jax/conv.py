"""Convolutions of the encoder and decoder on NHWC images and HWIO kernels."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(
    x: Float[Array, "N H W I"], kernel: Float[Array, "K K I O"]
) -> Float[Array, "N H W O"]:
    """Convolution with same padding and stride one."""
    return jax.lax.conv_general_dilated(
        x, kernel, (1, 1), "SAME", dimension_numbers=LAYOUT
    )


def conv_pool(
    x: Float[Array, "N H W I"],
    kernel: Float[Array, "K K I O"],
    bias: Float[Array, " O"],
) -> Float[Array, "N H/2 W/2 O"]:
    """Convolution with same padding, then the maximum of each 2x2 cell."""
    y = conv(x, kernel) + bias
    n, h, w, c = y.shape
    return y.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def upsample_conv(
    x: Float[Array, "N H W I"],
    kernel: Float[Array, "K K I O"],
    bias: Float[Array, " O"],
) -> Float[Array, "N 2H 2W O"]:
    """Nearest-neighbour upsampling by two, then convolution with same padding."""
    n, h, w, c = x.shape
    wide = jnp.broadcast_to(x[:, :, None, :, None, :], (n, h, 2, w, 2, c))
    return conv(wide.reshape(n, 2 * h, 2 * w, c), kernel) + bias
