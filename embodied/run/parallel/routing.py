"""Keys that accompany each observation: environment, step number and timing."""

from __future__ import annotations

import elements
import numpy as np

from embodied.core import base
from embodied.process import incarnations

ENVID = base.ENVID  # Number of the environment, unique in the run.
IS_EVAL = base.IS_EVAL  # Whether its steps are for evaluation.
SEQ = base.SEQ  # Number of the step in the environment's stream, always increasing.
INCARNATION_BITS = incarnations.BITS  # Low bits: step; high bits: incarnation.
ENV_TIME = base.ENV_TIME  # Seconds the environment took for the step.

MAX_ENVS = 2**30  # Numbers of environments are below.
UNNUMBERED = -1  # Of a step whose sender does not number them.
SPACES: base.Spaces = {
    ENVID: elements.Space(np.int32, (), 0, MAX_ENVS),
    IS_EVAL: elements.Space(bool),
    SEQ: elements.Space(np.int64, (), UNNUMBERED, 2**62),
    ENV_TIME: elements.Space(np.float32),
}
# Defaults of optional keys.
DEFAULTS = {IS_EVAL: False, SEQ: UNNUMBERED, ENV_TIME: 0.0}
