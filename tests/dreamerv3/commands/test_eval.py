"""`dreamerv3 eval`: scores, interval and video."""

import json
import shutil
import types

import av
import elements
import numpy as np
import pytest

from dreamerv3 import main, player
from dreamerv3.commands import eval as command
from dreamerv3.commands.base import CommandError
from dreamerv3.settings.config import ConfigError
from embodied.core import spacefile
from embodied.envs import registry

LINE = """
import gymnasium, numpy as np
class Line(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,))
    action_space = gymnasium.spaces.Discrete(2)
    metadata = {"render_modes": ["rgb_array"]}
    def __init__(self, render_mode=None):
        self.render_mode = render_mode
    def reset(self, seed=None, options=None):
        self.count = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.count += 1
        return np.zeros(2, np.float32), 0.0, self.count == 5, False, {}
    def render(self):
        return np.zeros((16, 16, 3), np.uint8) if self.render_mode else None
"""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory):
    """A run of the random agent, which takes no time to make."""
    path = tmp_path_factory.mktemp("eval") / "run"
    argv = ["--configs", "debug", "--random_agent", "--task", "bounce_32"]
    argv += ["--env.bounce.length", "20", "--script", "train", "--run.steps", "80"]
    argv += ["--run.env_processes", "False", "--logger.outputs", "jsonl"]
    main.main([*argv, "--logdir", str(path)])
    return path


@pytest.mark.process
def test_the_result_as_json(logdir, capsys):
    command.run([str(logdir), "--episodes", "3", "--random-episodes", "2", "--json"])
    (line,) = capsys.readouterr().out.splitlines()
    result = json.loads(line)
    assert (result["task"], result["step"], result["episodes"]) == ("bounce_32", 80, 3)
    assert np.mean(result["scores"]) == pytest.approx(result["mean"])
    assert len(result["random"]["scores"]) == 2


@pytest.mark.process
def test_scores_and_video(logdir, tmp_path, capsys):
    out = tmp_path / "new" / "out.mp4"
    flags = ["--episodes", "6", "--video", str(out), "--video-episodes", "2"]
    command.run([str(logdir), *flags])
    text = capsys.readouterr().out
    assert "Score of 6 episodes: mean" in text
    assert "Random actions, for comparison: mean" in text
    with av.open(str(out)) as file:
        frames = [frame.to_ndarray(format="rgb24") for frame in file.decode(video=0)]
    assert len(frames) == 2 * 21
    assert frames[0].shape == (256, 256, 3)


@pytest.mark.parametrize(("length", "episodes"), [(21, 5), (100, 1), (250, 1), (1, 20)])
def test_a_video_is_long_enough_to_see_something(
    length, episodes, tmp_path, monkeypatch, capsys
):
    frames = np.zeros((length, 32, 32, 3), np.uint8)
    monkeypatch.setattr(command, "episode", lambda agent, index: frames)
    agent = types.SimpleNamespace(config=elements.Config(logger={"fps": 20}))
    command.write_video(agent, tmp_path / "out.mp4", None)
    amount = f"{episodes} episode{'s' * (episodes > 1)}, {episodes * length} frames"
    assert amount in capsys.readouterr().out


def test_the_interval_covers_the_mean():
    scores = np.random.default_rng(1).normal(5, 2, 400)
    low, high = command.interval(scores)
    half = 1.96 * scores.std() / 20
    np.testing.assert_allclose(
        [low, high], [scores.mean() - half, scores.mean() + half], atol=0.02
    )


@pytest.mark.process
def test_own_environment_from_another_directory(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(
        "from embodied.envs.dummy import Dummy\n"
        "def make():\n"
        "    return Dummy('disc', length=5)\n"
    )
    monkeypatch.chdir(tmp_path)
    argv = ["--configs", "debug", "--random_agent", "--task", "mine.py:make"]
    argv += ["--script", "train", "--run.steps", "40", "--logger.outputs", "jsonl"]
    main.main([*argv, "--run.env_processes", "False", "--logdir", "run"])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    command.run(["../run", "--episodes", "2"])
    assert "Score of 2 episodes: mean" in capsys.readouterr().out
    (tmp_path / "mine.py").rename(tmp_path / "gone.py")
    with pytest.raises(registry.TaskError, match=r"there is no file .*mine\.py"):
        command.run(["../run", "--episodes", "2"])


def test_an_environment_that_has_changed_is_refused(logdir, tmp_path):
    shutil.copytree(logdir, tmp_path / "run")
    obs_space, act_space = spacefile.read(logdir)
    obs_space["image"] = elements.Space(np.uint8, (16, 16, 3))  # In training.
    spacefile.write(tmp_path / "run", obs_space, act_space)
    with pytest.raises(ConfigError) as info:
        command.run([str(tmp_path / "run")])
    (problem,) = info.value.problems
    assert problem[:2] == ("observation 'image'", "uint8[32, 32, 3] from 0 to 255")


@pytest.mark.process
def test_mistakes(logdir):
    with pytest.raises(CommandError, match="--episodes 0 must be 1 or more"):
        command.parse([str(logdir), "--episodes", "0"])
    with pytest.raises(CommandError, match=r"must end in \.mp4"):
        command.parse([str(logdir), "--video", "x.avi"])
    with pytest.raises(CommandError, match="cannot write"):
        command.run([str(logdir), "--episodes", "1", "--video", "/dev/null/x.mp4"])


class Blind:
    """An environment without pictures."""

    def __init__(self):
        self.obs_space = {"vector": elements.Space(np.float32, (3,))}

    def step(self, action):
        return {"vector": np.zeros(3, np.float32)}

    def render(self):
        return None

    def close(self):
        pass


@pytest.mark.parametrize("kind", ["gymnasium_CartPole-v1", "line.py:Line"])
def test_pictures_of_an_agent_that_was_trained_without(tmp_path, monkeypatch, kind):
    pytest.importorskip("pygame")
    (tmp_path / "line.py").write_text(LINE)
    monkeypatch.chdir(tmp_path)
    argv = ["--configs", "debug", "--random_agent", "--task", kind, "--script", "train"]
    argv += ["--run.env_processes", "False", "--logger.outputs", "jsonl"]
    main.main([*argv, "--run.steps", "40", "--logdir", "run"])
    agent = player.load("run")
    assert not any(len(space.shape) == 3 for space in agent.obs_space.values())
    assert command.episode(agent, 0).shape[-1] == 3


def test_missing_pictures_are_found_before_the_episodes(logdir, monkeypatch):
    def no_scores(*args):
        raise AssertionError("episodes were played")

    monkeypatch.setattr(command, "scores", no_scores)
    monkeypatch.setattr(command, "make_shown", lambda *args: Blind())
    with pytest.raises(CommandError, match="no pictures to show"):
        command.run([str(logdir), "--video", "out.mp4"])


def test_pictures_are_pixels_that_can_be_encoded():
    obs = {"image": np.zeros((8, 6, 4), np.uint8)}  # Four frames, one per channel.
    env = Blind()
    env.obs_space = {"image": elements.Space(np.uint8, (8, 6, 4))}
    assert command.picture(env, obs).shape == (8, 24, 1)


def test_progress_is_told_also_if_several_episodes_end_at_once(capsys):
    show = command._progress(50)
    for done in (4, 7, 9, 12, 13, 50):
        show(done)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["7", "12"]
