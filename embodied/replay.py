"""The replay and what configures it."""

from embodied.core import selectors
from embodied.core.limiter import LimiterClosedError, SamplesPerInsert
from embodied.core.replay import Replay, ReplayClosedError
from embodied.core.selectors import (
    Mixture,
    Prioritized,
    Recency,
    Selector,
    Uniform,
    make_selector,
)
from embodied.core.stepcheck import StepError
from embodied.core.store import ReplayFullError

__all__ = [
    "LimiterClosedError",
    "Mixture",
    "Prioritized",
    "Recency",
    "Replay",
    "ReplayClosedError",
    "ReplayFullError",
    "SamplesPerInsert",
    "Selector",
    "StepError",
    "Uniform",
    "make_selector",
    "selectors",
]
