"""Settings that the agent facade reads; an `elements.Config` with them will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class JaxSettings(Protocol):
    """The block `jax`."""

    platform: str
    compute_dtype: str
    policy_devices: Sequence[int]
    train_devices: Sequence[int]
    mesh: Sequence[int]
    mock_devices: int
    prealloc: bool
    jit: bool
    prefetch: int
    debug_nans: bool
    cache: str


class AgentSettings(Protocol):
    """What an agent needs besides the settings of its model."""

    seed: int
    eval_mode: str
    finite_check: bool
    jax: JaxSettings
