"""`--seeds 0 1 2`: one command, several trainings, one summary."""

import json

from tests.e2e.test_cli import QUICK, call, refused

FLAGS = [*QUICK, "--task", "dummy_disc", "--env.dummy.length", 10, "--run.steps", 60]


def test_each_seed_is_trained_once(tmp_path):
    flags = [*FLAGS, "--logdir", tmp_path, "--seeds", 3, 5]
    result = call(*flags)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Score of 2 of 2 seeds: mean" in result.stdout
    for seed in (3, 5):
        rows = (tmp_path / f"seed{seed}" / "metrics.jsonl").read_text().splitlines()
        assert json.loads(rows[-1])["step"] == 60
        assert f"seed {seed}: done, step 60" in result.stdout
    files = {path: path.stat().st_mtime_ns for path in tmp_path.glob("seed*/*")}
    again = call(*flags)  # Complete trainings are left alone.
    assert again.returncode == 0
    assert files == {path: path.stat().st_mtime_ns for path in tmp_path.glob("seed*/*")}


def test_a_failing_seed_is_shown(tmp_path):
    bad = tmp_path / "seed1"
    bad.mkdir()
    (bad / "replay").write_text("a file where a directory has to be")
    result = call(*FLAGS, "--logdir", tmp_path, "--seeds", 0, 1)
    assert result.returncode == 1
    assert "seed 0: done" in result.stdout
    assert "seed 1: failed" in result.stdout
    assert "replay" in result.stdout


def test_mistakes(tmp_path):
    flags = [*FLAGS, "--logdir", tmp_path, "--seeds", 0, 1]
    assert "is set by --seeds" in refused(*flags, "--seed", 3)
    assert "does not train" in refused(*flags, "--script", "parallel_envs")
    assert "cannot be combined" in refused(*flags, "--run.duration", 5)
    assert call(*FLAGS, "--logdir", tmp_path).returncode == 0
    assert "holds a run" in refused(*FLAGS, "--logdir", tmp_path, "--seeds", 0, 1)
