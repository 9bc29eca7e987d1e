"""Functions and settings as bytes, for a process that this one starts.

Machines that only run environments have no cloudpickle: there all parts of a parcel
must be importable by name, which `pickle` checks. Parcels never go through a socket of
ours; only a cluster carries them to its other machines.
"""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any


def dumps(value: Any) -> bytes:
    """Pack a value; where cloudpickle is installed it may hold local functions."""
    if importlib.util.find_spec("cloudpickle") is None:
        return pickle.dumps(value)
    import cloudpickle

    return cloudpickle.dumps(value)


def loads(parcel: bytes) -> Any:
    """Unpack a value."""
    return pickle.loads(parcel)
