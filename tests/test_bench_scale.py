"""bench/scale.py runs, with few environments and a short window."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

FILE = pathlib.Path(__file__).parents[1] / "bench" / "scale.py"
NUMBER = r"[\d.]+"


@pytest.mark.process
@pytest.mark.slow
def test_a_short_form_measures_every_role():
    command = [sys.executable, FILE, "--envs", "64,256", "--seconds", "1"]
    environ = {k: v for k, v in os.environ.items() if k != "BENCH_HISTORY"}
    result = subprocess.run(
        [*command, "--repeats", "1"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    rows = re.findall(rf"^ +((?:{NUMBER} *)+)$", result.stdout, re.MULTILINE)
    figures = [[float(x) for x in row.split()] for row in rows]
    assert [row[0] for row in figures] == [64, 256]
    # Rate, latencies and cost; then cost, memory and descriptors of three roles.
    assert all(len(row) == 5 + 3 * 3 for row in figures)
    assert all(value > 0 for row in figures for value in row[:4])
    assert "cost of a step with 256 to 64 environments" in result.stdout
    assert "refused" not in result.stdout + result.stderr
