"""Scalars to an Expa server, through its package."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import expa
import numpy as np

from embodied.metrics.summary import Summary, group, is_scalar


class ExpaOutput:
    """Posts the numbers of each step; those that are not finite are left out."""

    def __init__(
        self,
        experiment: str,
        run: str,
        config: Mapping[str, Any],
        url: str,
        project: str,
        user: str = "",
    ):
        self._logger = expa.Logger(experiment, run, project, user, url)
        self._logger.log_params({k: str(v) for k, v in config.items()})

    def __call__(self, summaries: Sequence[Summary]) -> None:
        for step, metrics in group(s for s in summaries if is_scalar(s[2])):
            numbers = {k: float(np.asarray(v)) for k, v in metrics.items()}
            finite = {k: v for k, v in numbers.items() if math.isfinite(v)}
            if finite:
                self._logger.log(finite, step)

    def close(self) -> None:
        self._logger.flush()
