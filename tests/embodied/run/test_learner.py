"""Reports over several batches."""

import numpy as np

from embodied.replay import Replay
from embodied.run.learner import Reporter, least_steps
from embodied.run.settings import RunSettings


class Agent:
    """Reports the number of the batch and a video of it."""

    def init_report(self, batch_size):
        return 0

    def stream(self, source):
        return source

    def report(self, carry, batch):
        video = np.full((20, 4, 4, 3), batch, np.uint8)
        return carry + 1, {"loss": np.float32(batch), "openloop/image": video}


def test_numbers_are_averaged_and_videos_are_of_the_last_batch():
    args = RunSettings.of({"logdir": "unused", "batch_size": 2, "report_batches": 3})
    replay = [0] * args.batch_size
    report = Reporter(Agent(), replay, lambda replay, mode: iter([1, 2, 6]), args)
    result = report()
    assert result["loss"] == 3
    np.testing.assert_array_equal(result["openloop/image"], np.full((20, 4, 4, 3), 6))
    assert Reporter(Agent(), [0], lambda replay, mode: iter([]), args)() == {}


def test_the_first_update_waits_for_the_sequences_of_a_batch(tmp_path):
    sizes = {"batch_size": 4, "batch_length": 5, "replay_context": 1}
    args = RunSettings.of({"logdir": "unused", **sizes})
    assert least_steps(object(), args) == 4 * (1 + 5)
    replay = Replay(length=1 + 3 * 5, capacity=100, directory=tmp_path)
    assert least_steps(replay, args) == 4 * (1 + 3 * 5)  # As with consec_train 3.
    replay.close()
