"""Agents that must learn, judged by environment steps and never by time."""

from functools import partial as bind

import numpy as np
import pytest

from tests.learning.harness import learn, reached
from tests.learning.tasks import OPTIMUM, Corridor

STEPS = 4000
# Perfect play earns 6.35, always walking to the same bench 3.4, random play 0.4.
# `tests/learning/broken.py` breaks one part of the agent each; see docs/results.md.
ENOUGH = 5.5
SEEDS = (0, 1)  # The second only if the first falls short.


@pytest.mark.slow
@pytest.mark.parametrize("image", [False, True], ids=["vector", "image"])
def test_the_corridor_is_learned(tmp_path, image):
    found: list[float] = []
    for seed in SEEDS:
        logdir = tmp_path / f"run{seed}"
        scores = learn(bind(Corridor, image=image), logdir, STEPS, seed)
        assert np.mean(scores[:20]) < 2.5
        found.append(reached(scores))
        assert found[-1] < 1.15 * OPTIMUM
        if found[-1] > ENOUGH:
            break
    assert found[-1] > ENOUGH, found
