"""Code that works for NumPy arrays and, traced by `jax.jit`, for those of JAX.

What converts values between an environment and its agent is written with these, so that
an exported policy has the same conversion inside. JAX is never imported here.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def namespace(value: Any) -> Any:
    """The module with the functions for this value: `numpy` or `jax.numpy`."""
    ask = getattr(value, "__array_namespace__", None)
    return ask() if ask else np


def as_array(value: Any) -> Any:
    """The value as an array; one that is an array already is not converted."""
    traced = hasattr(value, "__array_namespace__") and not isinstance(value, np.generic)
    return value if traced else np.asarray(value)


def cast(value: Any, dtype: Any) -> Any:
    """The value in a type, or in the nearest that its library has."""
    value = as_array(value)
    return value.astype(namespace(value).result_type(np.empty(0, dtype)))
