"""Runs of earlier releases: resumed, or rejected by version.

`tests/fixtures/run-0.1.tar.gz` is the log directory that release 0.1.0 left after

    dreamerv3 --configs debug --task track_7 --run.steps 200 \
      --logger.outputs jsonl media --logdir run

less its report, videos and older checkpoints: 200 training and 264 evaluation steps,
117 updates.
"""

import json
import pathlib
import subprocess
import sys
import tarfile

import numpy as np
import pytest

import dreamerv3
from dreamerv3.settings import logdir as settings
from embodied.core import spacefile
from embodied.core.checkpoint import CheckpointError, complete, read_item, read_meta
from embodied.core.formats import NewerFormatError
from embodied.replay import Replay, chunk, layout

FIXTURE = pathlib.Path(__file__).parents[1] / "fixtures" / "run-0.1.tar.gz"
STEPS, UPDATES, EVAL_STEPS = 200, 117, 264
NEWER = "{} has format {}, this version reads up to {}: .* written by a newer release"


@pytest.fixture
def logdir(tmp_path):
    with tarfile.open(FIXTURE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "run"


def test_the_agent_acts(logdir):
    player = dreamerv3.load(logdir, **{"jax.platform": "cpu"})
    assert player.step == STEPS
    obs = player.make_env().step(player.reset())
    assert set(player.act(obs)) == set(player.act_space)


def test_the_replay_has_every_step(logdir):
    for folder, steps in (("replay", STEPS), ("replay_eval", EVAL_STEPS)):
        replay = Replay(11, capacity=10_000, directory=logdir / folder, chunksize=64)
        try:
            assert replay.total == steps
            batch = replay.sample(4)
            assert batch["dyn/deter"].shape == (4, 11, 32)
            assert np.isfinite(batch["reward"]).all()
        finally:
            replay.close()


def test_a_run_resumes(logdir):
    flags = ["--logdir", logdir, "--run.steps", STEPS + 50, "--jax.platform", "cpu"]
    command = [sys.executable, "-m", "dreamerv3", *map(str, flags)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr
    learner = read_item(logdir / "ckpt" / "agent", "learner")
    assert learner["step"] == STEPS + 50
    assert learner["updates"] > UPDATES
    assert read_item(logdir / "ckpt" / "logger", "logger")["step"] == STEPS + 50
    lines = (logdir / "scores.jsonl").read_text().splitlines()
    steps = [json.loads(line)["step"] for line in lines]
    assert steps == sorted(steps)
    assert steps[0] < STEPS < steps[-1] <= STEPS + 50
    replay = Replay(11, capacity=10_000, directory=logdir / "replay", chunksize=64)
    assert replay.total == STEPS + 50
    replay.close()


def test_a_format_of_the_future_is_rejected_by_version(logdir):
    newest = complete(logdir / "ckpt" / "agent")[-1]
    meta = read_meta(newest) | {"format": 99}
    (newest / "meta.json").write_text(json.dumps(meta))
    with pytest.raises(CheckpointError, match=NEWER.format(newest, 99, 2)):
        dreamerv3.load(logdir, **{"jax.platform": "cpu"})


def test_steps_of_a_newer_release_are_rejected_by_name(logdir, monkeypatch):
    """Without them the run would resume with an empty replay."""
    path = max((logdir / "replay").glob("*.chunk"))
    header = chunk.load_readonly(path).header
    monkeypatch.setattr(layout, "VERSION", 2)
    content = header.encode()
    monkeypatch.undo()
    with path.open("r+b") as file:
        file.write(content)
    with pytest.raises(NewerFormatError, match=NEWER.format(path, 2, 1)):
        Replay(11, capacity=10_000, directory=logdir / "replay", chunksize=64)


def save_settings(logdir):
    """Write settings as this release does."""
    settings.save(settings.load(logdir) | {"logdir": str(logdir)})


READERS = {
    "config.yaml": settings.load,
    "spaces.json": spacefile.read,
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_a_newer_release_is_rejected_by_name(logdir, name):
    save_settings(logdir)
    spacefile.write(logdir, *spacefile.read(logdir))
    path = logdir / name
    text = path.read_text()
    newer = text.replace("format 1\n", "format 9\n").replace('sion": 1', 'sion": 9')
    assert newer != text
    path.write_text(newer)
    with pytest.raises(NewerFormatError, match=NEWER.format(path, 9, 1)):
        READERS[name](logdir)


def test_settings_of_the_first_release_have_no_format(logdir):
    before = settings.load(logdir)
    assert before["task"] == "track_7"
    save_settings(logdir)
    assert settings.load(logdir) == before | {"logdir": str(logdir)}


def test_a_later_replay_names_the_format_of_the_steps(logdir, monkeypatch, caplog):
    monkeypatch.setattr(layout, "VERSION", 2)
    replay = Replay(11, capacity=10_000, directory=logdir / "replay", chunksize=64)
    replay.close()
    assert replay.total == 0
    assert "has format 1, this version reads 2" in caplog.text
