"""What a person sees who starts a run in a terminal, and how it is left."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from embodied.process import signals
from embodied.testing.terminal import Terminal
from tests.e2e.command import wait_for

RUN = ["--configs", "debug", "--random_agent", "--run.log_every", "0.5"]


def start(terminal, *args):
    command = [sys.executable, "-m", "dreamerv3", *RUN, *map(str, args)]
    env = {**os.environ, "TERM": "xterm", "CI": ""}
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=terminal.tty,
        stderr=terminal.tty,
        start_new_session=True,
        env=env,
    )


@pytest.mark.parametrize("script", ["parallel", "train"])
def test_a_run_in_a_terminal(tmp_path, script):
    terminal = Terminal(lines=30, columns=100)
    args = ["--script", script, "--run.steps", 400, "--run.env_processes", "False"]
    process = start(terminal, *args, "--logdir", tmp_path)
    assert process.wait(120) == 0
    lines = terminal.finish()
    bars = [line for line in lines if line.startswith("step ")]
    assert len(bars) == 1, "\n".join(lines)  # Nothing of the view was left behind.
    assert "400 of 400  100%  ━━" in bars[0]
    assert re.search("for (the first steps|metrics, which come)", terminal.text)
    assert any(line.startswith("score ") for line in lines)
    assert f"logs     {tmp_path}" in lines
    assert any("● replay" in line for line in lines) == (script == "parallel")
    assert lines.index("Ends:     after 400 environment steps") < lines.index(bars[0])
    assert lines.index(bars[0]) < lines.index(f"Report:   {tmp_path}/report.html")
    assert terminal.region == (0, 29)
    assert not terminal.cursor_hidden


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_early_end_leaves_the_terminal_clean(tmp_path, number):
    """Asked twice, a run ends at once; so does one whose logger cannot go on."""
    terminal = Terminal(lines=30, columns=100)
    process = start(terminal, "--run.budget", 0, "--logdir", tmp_path)
    try:
        scores = tmp_path / "scores.jsonl"
        wait_for(scores.exists, "score")
        if number == signal.SIGKILL:
            roles = json.loads((tmp_path / "roles.json").read_text())
            os.kill(roles["logger"]["pid"], number)
        else:
            os.killpg(process.pid, number)
            time.sleep(2 * signals.SAME)  # Sooner, it would be the same request.
            os.killpg(process.pid, number)
        process.wait(60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    lines = terminal.finish()
    assert "\x1b[1;" in terminal.text  # There was a view.
    assert terminal.region == (0, 29), "\n".join(lines)
    assert not terminal.cursor_hidden
