"""The commands about environments, as a user meets them."""

import sys
import threading

import elements
import numpy as np
import pytest
from PIL import Image

from dreamerv3 import cli
from dreamerv3.commands import check_env, envs, picture
from dreamerv3.settings.config import ConfigError
from embodied.core import wrappers
from embodied.envs import registry
from embodied.envs.bounce import Bounce
from embodied.envs.dummy import Dummy
from embodied.testing.env_report import Finding

BROKEN = """
import numpy as np
from embodied.envs.dummy import Dummy

class Broken(Dummy):
    def step(self, action):
        obs = super().step(action)
        return {**obs, "vector": obs["vector"] / 0}
"""


def run(capsys, *argv):
    with pytest.raises(SystemExit) as info:
        check_env.run([*map(str, argv), "--steps", "60"])
    return info.value.code, capsys.readouterr().out


@pytest.mark.process
def test_a_good_environment(capsys, tmp_path):
    path = tmp_path / "seen.png"
    code, out = run(capsys, "bounce_32", "--picture", path)
    assert code == 0, out
    assert "✗" not in out
    assert "All is well." in out
    for name in ("same seed", "own process", "steps/s", "memory", "agent"):
        assert name in out
    assert Image.open(path).size[0] > 1000


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_a_broken_environment(capsys, tmp_path, monkeypatch):
    (tmp_path / "broken.py").write_text(BROKEN)
    monkeypatch.setattr(sys, "path", [*sys.path])
    path = tmp_path / "seen.png"
    code, out = run(capsys, tmp_path / "broken.py:Broken", "--picture", path)
    assert code == 1
    assert "✗ ranges" in out
    assert "'vector' is not finite" in out
    assert "first at step 0, 60 times in 60 steps" in out
    assert "broken.py:6 Broken.step" in out
    assert "→ check for division by zero" in out
    assert "Wrong: ranges" in out
    assert not path.exists()


def test_an_environment_that_hangs(capsys, tmp_path, monkeypatch):
    """It is said, and Ctrl-C says where it hangs."""
    monkeypatch.setattr(check_env, "PATIENCE", 0.01)
    waited = threading.Event()

    def examine(*args):
        yield Finding("creation", True, "0.01 s")
        waited.wait(0.1)
        raise KeyboardInterrupt

    monkeypatch.setattr(check_env.env_report, "examine", examine)
    code, out = run(capsys, "bounce_32", "--picture", tmp_path / "seen.png")
    assert code == 1
    assert "- waiting         for 0 s" in out
    assert "✗ interrupted" in out
    assert "in examine" in out


@pytest.mark.process
def test_options_are_settings(capsys, tmp_path):
    pytest.importorskip("gymnasium")
    options = ["--env.gymnasium.render", "True", "--env.gymnasium.resize", "0", "0"]
    code, out = run(
        capsys, "gym_CartPole-v1", *options, "--picture", tmp_path / "a.png"
    )
    assert code == 1
    assert "✗ agent" in out  # No 400x600 images.
    assert "--env.gymnasium.resize 64 64" in out


def test_mistakes_are_refused():
    with pytest.raises(ConfigError, match="there is no such key"):
        check_env.run(["bounce_32", "--env.bounce.lenght", "3"])
    with pytest.raises(ConfigError, match="did you mean bounce_32"):
        check_env.run(["bonce_32"])
    with pytest.raises(ConfigError, match="must be a JSON object"):
        check_env.run(["gym_CartPole-v1", "--env.gymnasium.kwargs", "size=3"])


def test_too_few_steps(capsys, monkeypatch):
    argv = ["dreamerv3", "check-env", "bounce_32", "--steps", "3"]
    monkeypatch.setattr(sys, "argv", argv)
    with pytest.raises(SystemExit) as info:
        cli.cli()
    assert info.value.code == 2
    assert "give at least 30" in capsys.readouterr().err


def test_what_the_agent_cannot_take():
    class Odd(wrappers.Wrapper):
        @property
        def obs_space(self):
            tensor = elements.Space(np.float32, (2, 3, 4))
            return {**self.env.obs_space, "tensor": tensor}

    assert check_env.agent_finding(Dummy()).ok
    finding = check_env.agent_finding(Odd(Dummy()))
    assert finding.ok is False
    assert "'tensor'" in finding.text


def test_the_picture_shows_images_and_traces(tmp_path):
    path = tmp_path / "seen.png"
    picture.draw(Bounce("32"), path, steps=20)
    colors = {tuple(pixel) for pixel in np.unique(_pixels(path), axis=0).tolist()}
    assert (255, 220, 80) in colors  # The ball, as the agent sees it.
    picture.draw(Dummy("both"), path, steps=20)
    assert Image.open(path).size[1] > 800  # A row for each of the seven keys.


def _pixels(path):
    return np.asarray(Image.open(path).convert("RGB")).reshape(-1, 3)


def test_the_list_of_suites(capsys, monkeypatch):
    missing = registry.Suite("x", "X", "Far away.", extra="far", needs=("no_such",))
    monkeypatch.setitem(registry.SUITES, "far", missing)
    envs.run([])
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert set(registry.SUITES) <= set(lines)
    assert "installed  Keep a paddle" in lines["bounce"]
    assert "missing    Far away." in lines["far"]
    assert "pip install 'dreamerv3-distributed[far]'" in out


@pytest.mark.parametrize("name", ["missing/seen.png", "seen.xyz"])
def test_a_picture_that_cannot_be_written(tmp_path, name):
    finding = check_env._draw(Dummy("disc"), tmp_path / name)
    assert finding.ok is None
    assert finding.text.startswith("not drawn, ")
