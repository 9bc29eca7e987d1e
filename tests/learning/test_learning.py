"""Agents that must learn, judged by environment steps and never by time."""

from functools import partial as bind

import numpy as np
import pytest

from tests.learning.harness import learn
from tests.learning.tasks import OPTIMUM, Corridor

STEPS = 4000
LAST = 60  # Episodes that count, about the last thousand steps.
# Perfect play earns 6.5, always walking to the same bench 3.5, random play 0.9.
# `tests/learning/broken.py` breaks one part of the agent each; see docs/results.md.
ENOUGH = 5.5
SEEDS = (0, 1, 2)  # Two of them decide: an agent may try something at the very end.


@pytest.mark.slow
@pytest.mark.parametrize("image", [False, True], ids=["vector", "image"])
def test_the_corridor_is_learned(tmp_path, image):
    ends: list[float] = []
    for seed in SEEDS:
        logdir = tmp_path / f"run{seed}"
        scores = learn(bind(Corridor, image=image), logdir, STEPS, seed)
        assert np.mean(scores[:20]) < 2.5
        ends.append(float(np.mean(scores[-LAST:])))
        learned = sum(ENOUGH < end < 1.15 * OPTIMUM for end in ends)
        if 2 in (learned, len(ends) - learned):
            break
    assert learned == 2, ends
