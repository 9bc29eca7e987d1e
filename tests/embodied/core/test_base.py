"""Which keys of a step are stored."""

import numpy as np
import pytest

from embodied.core import base
from embodied.replay import Replay
from embodied.run.parallel import routing


@pytest.mark.parametrize("key", ["image", "reward", "is_last", "logits", "dyn/deter"])
def test_what_is_observed_done_or_computed_is_stored(key):
    assert base.is_stored(key)


@pytest.mark.parametrize("key", ["log/kills", "stepid", *routing.SPACES])
def test_logs_and_numbers_of_the_transport_are_not_stored(key):
    assert not base.is_stored(key)
    assert base.is_logged(key) == (key == "log/kills")


def test_a_replay_stores_those_keys_alone():
    replay = Replay(1, 8)
    step = dict.fromkeys(("vector", "log/kills", *routing.SPACES), np.float32(1))
    replay.add(step)
    assert set(replay.sample(1)) == {"vector", base.STEPID}
    replay.close()
