"""Helpers that work on NumPy arrays and on JAX arrays, also under `jax.jit`.

Conversions between an environment and its agent use them, so that an exported policy
can include the same conversion. Never imports JAX.
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
