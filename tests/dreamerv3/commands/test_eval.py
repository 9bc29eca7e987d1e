"""`dreamerv3 eval`: scores, interval and video."""

import av
import numpy as np
import pytest

from dreamerv3 import main
from dreamerv3.commands import eval as command
from dreamerv3.commands.base import CommandError


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """A run of the random agent, which takes no time to make."""
    path = tmp_path_factory.mktemp("eval") / "run"
    argv = ["--configs", "debug", "--random_agent", "--task", "bounce_32"]
    argv += ["--env.bounce.length", "20", "--script", "train", "--run.steps", "80"]
    argv += ["--run.env_processes", "False", "--logger.outputs", "jsonl"]
    main.main([*argv, "--logdir", str(path)])
    return path


def test_scores_and_video(logdir, tmp_path, capsys):
    out = tmp_path / "new" / "out.mp4"
    flags = ["--episodes", "6", "--video", str(out), "--video-episodes", "2"]
    command.main([str(logdir), *flags])
    text = capsys.readouterr().out
    assert "Score of 6 episodes: mean" in text
    with av.open(str(out)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames) == 2 * 21
    assert frames[0].shape == (256, 256, 3)


def test_the_interval_covers_the_mean():
    scores = np.random.default_rng(1).normal(5, 2, 400)
    low, high = command.interval(scores)
    half = 1.96 * scores.std() / 20
    np.testing.assert_allclose(
        [low, high], [scores.mean() - half, scores.mean() + half], atol=0.02
    )


def test_mistakes(logdir):
    with pytest.raises(CommandError, match="--episodes 0 must be 1 or more"):
        command.parse([str(logdir), "--episodes", "0"])
    with pytest.raises(CommandError, match=r"must end in \.mp4"):
        command.parse([str(logdir), "--video", "x.avi"])
