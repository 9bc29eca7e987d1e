"""Pickles functions and settings for processes that this one starts.

Machines that only run environments have no cloudpickle: there everything pickled must
be importable by name. Pickles are never sent over our sockets; only a Ray cluster
transfers them between machines.
"""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any


def dumps(value: Any) -> bytes:
    """Pickle a value; with cloudpickle installed it may hold local functions."""
    if importlib.util.find_spec("cloudpickle") is None:
        return pickle.dumps(value)
    import cloudpickle

    return cloudpickle.dumps(value)


def loads(data: bytes) -> Any:
    """Unpickle a value."""
    return pickle.loads(data)
