"""What the documents of docs/seeds.md write for others to run."""

import pathlib
import subprocess
import sys

from tests.e2e.command import rows

ROOT = pathlib.Path(__file__).parents[2]
IMPORTS = """
import embodied
assert callable(embodied.run.parallel.combined)
from embodied.run.parallel import parallel_logger
from embodied.run.parallel import parallel_learner
from embodied.run.parallel import parallel_actor
from dreamerv3.main import make_logger
"""


def run(*words):
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_imports():
    result = run("-c", IMPORTS)
    assert result.returncode == 0, result.stderr


def test_the_example_of_the_launcher(tmp_path):
    flags = ["--random_agent", "True", "--run.steps", 300, "--run.log_every", 1]
    result = run("-m", "tests.e2e.seeds_run", "--logdir", tmp_path, *flags)
    output = result.stdout + result.stderr
    assert result.returncode == 0, output
    assert "The run ended: agent completed the run." in output
    names = {name for row in rows(tmp_path / "metrics.jsonl") for name in row}
    assert {"episode/score", "fps/policy", "fps/train", "parallel/ep_states"} <= names
    for role in ("agent", "replay", "logger"):
        assert any((tmp_path / "ckpt" / role).iterdir())
