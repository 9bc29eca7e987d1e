"""docs/custom-environment.md, done as a reader would."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip("gymnasium")

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(
    r"(?P<text>(?:(?!```).)*?)```(?P<kind>\w+)\n(?P<code>.*?)^```", re.M | re.S
)
FILE = re.compile(r"[Ss]ave (?:this|it) as\s+`(\S+\.py)`")


@pytest.fixture
def shell(tmp_path):
    """Runs commands in an empty folder, with `dreamerv3` and `python` as ours."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, words in (("dreamerv3", " -m dreamerv3"), ("python", "")):
        (tools / name).write_text(f'#!/bin/sh\nexec {sys.executable}{words} "$@"\n')
        (tools / name).chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    folder = tmp_path / "work"
    folder.mkdir()

    def run(code):
        return subprocess.run(
            ["bash", "-e", "-c", code],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run, folder


@pytest.mark.slow
def test_every_block_in_order(shell):
    run, folder = shell
    page = (ROOT / "docs" / "custom-environment.md").read_text()
    commands, outputs = 0, ""
    for block in BLOCK.finditer(page):
        name = FILE.search(block["text"])
        if block["kind"] == "sh":
            result = run(block["code"])
            outputs += result.stdout
            commands += len(block["code"].splitlines())
            assert result.returncode == 0, result.stdout + result.stderr
        elif name:
            (folder / name[1]).write_text(block["code"])
    assert commands == 7
    assert outputs.count("All is well.") == 3
    assert outputs.count("The run ended: agent completed the run.") == 3
    assert (folder / "check-env.png").read_bytes().startswith(b"\x89PNG")
    for logdir in ("flag", "python"):
        metrics = (folder / "logdir" / logdir / "metrics.jsonl").read_text()
        assert "train/loss/total" in metrics
