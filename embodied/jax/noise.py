"""Uniform noise as a hash of counters: fast to compute and, above all, to compile.

A number depends only on the key and on its coordinates, so the noise of a sequence
does not depend on the batch or the devices it is in.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, UInt32

Key = UInt32[Array, "2"]


def make_key(seed: int) -> np.ndarray:
    """Two words from a seed."""
    return np.random.SeedSequence(seed).generate_state(2)


def fold(key: Key, number: Array | int) -> Key:
    """A key for each number, independent of each other."""
    a, b, _, _ = pcg4d(key[0], key[1], _word(number), jnp.uint32(0x632BE5AB))
    return jnp.stack([a, b])


def uniform(
    key: Key, rows: UInt32[Array, " B"], shape: tuple[int, ...]
) -> Float[Array, "B ..."]:
    """Noise [B, *shape] strictly between 0 and 1, a function of key and row."""
    size = int(np.prod(shape, dtype=int))
    words = jnp.arange(-(-size // 4), dtype=jnp.uint32)[None]
    outs = pcg4d(key[0], rows.astype(jnp.uint32)[:, None], words, key[1])
    bits = jnp.stack(outs, -1).reshape(len(rows), -1)[:, :size]
    # With 23 bits the centre of every interval is a float32, and none is 0 or 1.
    unit = (bits >> 9).astype(jnp.float32) * np.float32(2**-23) + np.float32(2**-24)
    return unit.reshape(len(rows), *shape)


def pcg4d(*v: Array) -> tuple[Array, Array, Array, Array]:
    """Hash four 32-bit words to four (Jarzynski and Olano, JCGT 9(3), 2020)."""
    x, y, z, w = (_word(word) * 1664525 + 1013904223 for word in v)
    for _ in range(2):
        x = x + y * w
        y = y + z * x
        z = z + x * y
        w = w + y * z
        x, y, z, w = (word ^ (word >> 16) for word in (x, y, z, w))
    return x, y, z, w


def _word(number: Array | int) -> Array:
    return jnp.asarray(number).astype(jnp.uint32)
