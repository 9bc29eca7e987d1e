"""Learning from recorded steps: import, counting, resume, evaluation, messages."""

import json
import os
import signal

import numpy as np
import pytest

import dreamerv3
from dreamerv3 import main
from dreamerv3.commands import eval as evaluate
from dreamerv3.commands.base import CommandError
from dreamerv3.settings import config
from embodied.core import runfiles, spacefile
from embodied.core.checkpoint import read_item
from embodied.envs import original
from embodied.replay import Replay
from embodied.replay.recording import Recording
from embodied.run import importer

gymnasium = pytest.importorskip("gymnasium")

STEPS = 120
OFFLINE = ["--configs", "debug", "--script", "train_offline"]
QUICK = [*OFFLINE, "--random_agent", "--run.env_processes", "False"]
QUICK += ["--logger.report", "False"]
CARTPOLE = ["--task", "gymnasium_CartPole-v1"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """CartPole, pushed to where the pole falls."""
    directory = tmp_path_factory.mktemp("recorded")
    env = dreamerv3.Recorder(gymnasium.make("CartPole-v1"), directory)
    obs, _ = env.reset(seed=0)
    while env.steps < STEPS:
        obs, _, terminated, truncated, _ = env.step(int(obs[2] > 0))
        if terminated or truncated:
            obs, _ = env.reset()
    env.close()
    return directory


def train(*words):
    main.main([str(word) for word in words])


def refused(*words):
    with pytest.raises(config.ConfigError) as info:
        train(*words)
    return str(info.value)


def steps_of(directory):
    blocks = list(Recording(directory / "replay").blocks(10**6))
    return {
        key: np.concatenate([block.steps[key] for block in blocks])
        for key in blocks[0].steps
    }


def metrics(logdir):
    lines = (logdir / "metrics.jsonl").read_text().splitlines()
    return {name for line in lines for name in json.loads(line)}


def test_without_an_environment(recorded, tmp_path, capsys):
    train(*QUICK, "--replay", recorded, "--logdir", tmp_path, "--run.steps", 50)
    output = capsys.readouterr().out
    assert "Task:     none; learns from" in output
    # Of 4 x 10 steps, a train ratio of 32: an update counts as 1.25 steps.
    assert "Stopped at step 50 after 40 gradient updates" in output
    assert not any(name.startswith("eval/") for name in metrics(tmp_path))
    assert spacefile.read(tmp_path) == spacefile.read(recorded)
    assert original.read(recorded)
    assert original.read(tmp_path) == original.read(recorded)
    before, after = steps_of(recorded), steps_of(tmp_path)
    assert set(before) == set(after)
    for key, value in before.items():
        np.testing.assert_array_equal(value, after[key], key)
    with pytest.raises(CommandError, match="has no environment: resume it with"):
        evaluate.run([str(tmp_path)])


def test_evaluates_in_an_environment(recorded, tmp_path, capsys):
    words = [*QUICK, *CARTPOLE, "--replay", recorded / "replay", "--logdir", tmp_path]
    train(*words, "--run.steps", 20, "--run.eval_episodes", 3)
    assert "mean score of the last 3 evaluated episodes" in capsys.readouterr().out
    assert {"eval/episode/score", "fps/train"} <= metrics(tmp_path)


def test_goes_on_without_the_recording_and_gets_an_environment(recorded, tmp_path):
    source, logdir = tmp_path / "source", tmp_path / "logdir"
    os.symlink(recorded, source)
    train(*QUICK, "--replay", source, "--logdir", logdir, "--run.steps", 20)
    source.unlink()
    train("--logdir", logdir, "--run.steps", 30)
    learner = read_item(logdir / "ckpt" / "agent", "learner")
    assert (learner["step"], learner["updates"]) == (30, 24)
    train("--logdir", logdir, "--run.steps", 40, *CARTPOLE)
    assert "eval/episode/score" in metrics(logdir)
    assert len(Recording(logdir / "replay")) == len(Recording(recorded / "replay"))


def test_an_interrupted_import_goes_on(recorded, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(importer, "BLOCK", 16)
    add, calls = Replay.add_batch, []

    def interrupt(self, *args):
        calls.append(args)
        if len(calls) == 3:
            signal.raise_signal(signal.SIGINT)  # Handled when it returns.
        return add(self, *args)

    words = [*QUICK, "--replay", recorded, "--logdir", tmp_path, "--run.steps", 20]
    monkeypatch.setattr(Replay, "add_batch", interrupt)
    train(*words)
    assert "SIGINT received" in capsys.readouterr().out
    assert len(Recording(tmp_path / "replay")) == 3 * 16
    assert not importer.imported(tmp_path)
    train(*words)
    total = len(Recording(recorded / "replay"))
    assert f"{total} of {total} recorded steps, 48 of which were" in (
        capsys.readouterr().out
    )
    assert importer.imported(tmp_path)
    np.testing.assert_array_equal(steps_of(tmp_path)["obs"], steps_of(recorded)["obs"])


def test_wrong_directories(recorded, tmp_path):
    words = [*QUICK, "--logdir", tmp_path / "run"]
    assert "needs recorded steps; give --replay DIR" in refused(*words)
    message = refused(*words, "--replay", tmp_path / "nowhere")
    assert "replay.source" in message
    assert "no such directory" in message
    assert "has no recorded steps" in refused(*words, "--replay", tmp_path)
    os.symlink(recorded / "replay", tmp_path / "replay")
    assert "has no spaces.json" in refused(*words, "--replay", tmp_path)
    own = [*QUICK, "--logdir", recorded]
    assert "is the log directory of this run" in refused(*own, "--replay", recorded)
    assert not (tmp_path / "run").exists()


def test_settings_that_do_not_fit(recorded, tmp_path):
    words = [*QUICK, "--replay", recorded, "--logdir", tmp_path / "run"]
    message = refused(*words, "--task", "gymnasium_Pendulum-v1")
    assert "'obs': float32[3] instead of float32[4]" in message
    assert "'action': float32[1] from -1 to 1 instead of int32 from" in message
    assert "must hold all" in refused(*words, "--replay.size", 100)
    message = refused(*words, "--batch_length", 200)
    assert "hold 0 sequences of 201 steps" in message
    assert "more than 0" in refused(*words, "--run.train_ratio", 0)
    assert "reads no recording" in refused(*words, "--script", "train")
    spacefile.write(tmp_path, *spacefile.read(recorded))
    os.symlink(recorded / "replay", tmp_path / "replay")
    spaces = json.loads((tmp_path / runfiles.SPACES).read_text())
    spaces["obs"]["obs"]["shape"] = [5]
    (tmp_path / runfiles.SPACES).write_text(json.dumps(spaces))
    message = refused(*words, "--replay", tmp_path)
    assert "has float32[4] for 'obs', not float32[5]" in message


@pytest.mark.slow
def test_the_agent_learns_from_the_log_of_another(tmp_path):
    """Its latents do not fit and are left out; own ones start at zero."""
    online = ["--configs", "debug", "--script", "train", "--task", "track_7"]
    online += ["--run.env_processes", "False", "--run.steps", 200]
    train(*online, "--logdir", tmp_path / "online", "--agent.dyn.rssm.deter", 64)
    logdir = tmp_path / "offline"
    words = [*OFFLINE, "--replay", tmp_path / "online", "--logdir", logdir]
    train(*words, "--run.steps", 20)
    latents = steps_of(logdir)["dyn/deter"]
    assert latents.shape == (200, 32)
    used = np.abs(latents).max(1) > 0
    assert 0 < used.sum() < 200  # Those that were trained on were written back.
    assert any(name.startswith("train/loss/") for name in metrics(logdir))
    assert dreamerv3.load(logdir).step == 20


@pytest.mark.slow
def test_learns_to_act_from_random_actions(tmp_path):
    """Random play scores 2.29 and perfect play 14.57."""
    track = ["--configs", "track", "--run.env_processes", "False"]
    random = ["--script", "train", "--random_agent", "--run.steps", 6000]
    train(*track, *random, "--logdir", tmp_path / "random")
    words = ["--script", "train_offline", "--replay", tmp_path / "random"]
    words += ["--run.steps", 9000, "--run.eval_episodes", 50]
    train(*track, *words, "--logdir", tmp_path / "run", "--run.report_every", 1e6)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    scores = [r["eval/episode/score"] for r in rows if "eval/episode/score" in r]
    assert len(scores) == 50
    assert sum(scores) / len(scores) > 8
