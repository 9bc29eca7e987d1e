"""The command on a log directory whose files are damaged: resumed, or one line."""

import subprocess
import sys

import pytest

from embodied.core.checkpoint import complete, read_item
from embodied.testing.damage import damage
from tests.e2e.command import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]

STEPS = 200
FLAGS = ("--configs", "debug", "--random_agent", "--task", "track_7", "--run.envs", "2")
ROLES = ("agent", "replay", "logger")
FILES = {"agent": "meta.json"}  # Of a checkpoint; of other roles, that of the item.


def dreamer(logdir, steps, *flags):
    words = ["--logdir", logdir, "--run.steps", steps, "--logger.outputs", "jsonl"]
    command = [sys.executable, "-m", "dreamerv3", *flags, *map(str, words)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT
    )


def test_a_run_with_damaged_files(tmp_path):
    logdir = tmp_path / "run"
    result = dreamer(logdir, STEPS, *FLAGS)
    assert result.returncode == 0, result.stdout + result.stderr

    # What has a copy, or can be made again, costs one line each and no restart.
    damaged = [logdir / "spaces.json", logdir / "incarnation"]
    for role in ROLES:
        newest = complete(logdir / "ckpt" / role)[-1]
        damaged.append(newest / FILES.get(role, f"{role}/tree.json"))
    for path in damaged:
        damage(path, "garbage")
    result = dreamer(logdir, 2 * STEPS)
    text = result.stdout + result.stderr
    assert result.returncode == 0, text
    for path in damaged:
        assert text.count(str(path)) == 1, (path, text)
    assert "is restarted" not in text
    assert "Traceback" not in text
    for role, item in (("agent", "learner"), ("logger", "logger")):
        assert read_item(logdir / "ckpt" / role, item)["step"] == 2 * STEPS

    # Without another checkpoint the run ends at once.
    for checkpoint in complete(logdir / "ckpt" / "replay"):
        damage(checkpoint / "meta.json", "empty")
    result = dreamer(logdir, 3 * STEPS)
    text = result.stdout + result.stderr
    assert result.returncode == 1, text
    assert f"no other checkpoint to use in {logdir / 'ckpt' / 'replay'}" in text
    assert "role 'replay' failed 1 time" in text
    assert "is restarted" not in text
    assert "Traceback" not in text

    # Settings are not guessed.
    damage(logdir / "config.yaml", "truncated")
    result = dreamer(logdir, 3 * STEPS)
    assert result.returncode == 2
    assert str(logdir / "config.yaml") in result.stderr
    assert "Traceback" not in result.stderr
