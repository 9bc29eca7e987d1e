"""What a recorder writes is what the agent would have seen and done."""

import signal
import subprocess
import sys

import numpy as np
import pytest

import dreamerv3
from embodied.core import spacefile
from embodied.replay.recording import Recording

gymnasium = pytest.importorskip("gymnasium")
spaces = gymnasium.spaces


class Counter(gymnasium.Env):
    """Observes the number of steps in an array that it writes to in place."""

    action_space = spaces.Box(np.float32([-2, 0]), np.float32([2, 10]))
    observation_space = spaces.Box(0, 255, (32, 32, 3), np.uint8)

    def __init__(self, terminates=4):
        self._terminates = terminates
        self._image = np.zeros((32, 32, 3), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._image[:] = 0
        return self._image, {}

    def step(self, action):
        self._image += 1
        count = int(self._image[0, 0, 0])
        terminated = count == self._terminates
        return self._image, 10.0 * count, terminated, count == 6, {}


class Parts(gymnasium.Env):
    """All kinds of actions at once."""

    action_space = spaces.Dict(
        {
            "move": spaces.Discrete(3, start=5),
            "pair": spaces.Tuple((spaces.MultiDiscrete([2, 4]), spaces.MultiBinary(2))),
            "free": spaces.Box(-np.inf, np.inf, (1,)),
        }
    )
    observation_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return 0, {}

    def step(self, action):
        return 1, 0.0, False, False, {}


def read(directory):
    recording = Recording(directory / "replay")
    blocks = [block.steps for block in recording.blocks(1000)]
    return {key: np.concatenate([b[key] for b in blocks]) for key in blocks[0]}


def play(env, *actions):
    env.reset()
    for action in actions:
        result = env.step(np.array(action, np.float32))
    return result


def test_steps_are_those_of_the_agent(tmp_path):
    env = dreamerv3.Recorder(Counter(), tmp_path)
    assert play(env, [2, 0], [-2, 10], [0, 5], [9, 9])[1:4] == (40.0, True, False)
    env.close()
    steps = read(tmp_path)
    assert steps["image"].shape == (5, 64, 64, 3)  # As env.gymnasium.resize says.
    assert steps["image"][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4]
    assert steps["reward"].tolist() == [0, 10, 20, 30, 40]
    assert steps["is_first"].tolist() == [True, False, False, False, False]
    assert steps["is_last"].tolist() == [False, False, False, False, True]
    assert steps["is_terminal"].tolist() == [False, False, False, False, True]
    # In [-1, 1], clipped, chosen after the observation, and zero after the last one.
    expected = [[1, -1], [-1, 1], [0, 0], [1, 0.8], [0, 0]]
    np.testing.assert_allclose(steps["action"], expected, atol=1e-6)


def test_cut_episodes_are_not_terminal(tmp_path):
    env = dreamerv3.Recorder(Counter(terminates=99), tmp_path, resize=(0, 0))
    play(env, *[[0, 0]] * 6)  # Cut by the environment,
    play(env, [0, 0])  # by another reset
    play(env, [0, 0])  # and by the end.
    assert env.steps == 7 + 2 + 1  # One waits for its action.
    env.close()
    env.close()
    steps = read(tmp_path)
    assert steps["image"].shape == (11, 32, 32, 3)
    assert np.flatnonzero(steps["is_first"]).tolist() == [0, 7, 9]
    assert np.flatnonzero(steps["is_last"]).tolist() == [6, 8, 10]
    assert not steps["is_terminal"].any()


def test_all_kinds_of_actions(tmp_path):
    env = dreamerv3.Recorder(Parts(), tmp_path)
    env.reset()
    pair = (np.array([1, 3]), np.array([0, 1], np.int8))
    env.step({"move": 6, "pair": pair, "free": np.array([7.0], np.float32)})
    env.close()
    steps = read(tmp_path)
    assert steps["move"].tolist() == [1, 0]
    assert steps["pair/0/0"].tolist() == [1, 0]
    assert steps["pair/0/1"].tolist() == [3, 0]
    assert steps["pair/1"].tolist() == [[0, 1], [0, 0]]
    assert steps["free"].tolist() == [[7], [0]]
    _, act_space = spacefile.read(tmp_path)
    assert set(act_space) == {"move", "pair/0/0", "pair/0/1", "pair/1", "free", "reset"}


def test_recording_again_adds_without_joining(tmp_path):
    for _ in range(2):
        env = dreamerv3.Recorder(Counter(), tmp_path)
        play(env, [0, 0], [0, 0])
        env.close()
    recording = Recording(tmp_path / "replay")
    assert len(recording) == 6
    assert recording.sequences(3) == 2


def test_another_environment_is_refused(tmp_path):
    dreamerv3.Recorder(Counter(), tmp_path).close()
    with pytest.raises(ValueError, match=r"'image'.*record into another directory"):
        dreamerv3.Recorder(Counter(), tmp_path, gray=True)


def test_a_step_needs_a_reset(tmp_path):
    env = dreamerv3.Recorder(Counter(), tmp_path)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.zeros(2, np.float32))
    env.close()


KILLED = """
import gymnasium, os, signal, sys
import dreamerv3
env = dreamerv3.Recorder(gymnasium.make("CartPole-v1"), sys.argv[1])
env.reset(seed=0)
for _ in range(5):
    env.step(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.process
def test_steps_survive_a_kill(tmp_path):
    result = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    assert result.returncode == -signal.SIGKILL
    steps = read(tmp_path)
    assert len(steps["obs"]) == 5
    assert np.flatnonzero(steps["is_first"]).tolist() == [0]
