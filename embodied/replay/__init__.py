"""The replay and what configures it."""

from embodied.replay import selectors
from embodied.replay.encoder import StepError
from embodied.replay.limiter import LimiterClosedError, SamplesPerInsert
from embodied.replay.replay import Replay, ReplayClosedError
from embodied.replay.selectors import (
    Mixture,
    Prioritized,
    Recency,
    Selector,
    Uniform,
    make_selector,
)
from embodied.replay.store import ReplayFullError

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
