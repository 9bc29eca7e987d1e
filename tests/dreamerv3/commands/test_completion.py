"""`dreamerv3 completion`: what real shells complete."""

import os
import shutil
import subprocess

import pytest

from dreamerv3.commands import completion

BASH = """
source /dev/stdin
COMP_WORDS=(dreamerv3 {words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_dreamerv3
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ev", {"eval"}),
        ("--run.train_rat", {"--run.train_ratio"}),
        ("--configs size1", {"size1m", "size12m", "size100m"}),
        ("train --task boun", {"bounce_"}),
        ("--script parallel_env", {"parallel_env", "parallel_envs"}),
        ("--dry", {"--dry-run"}),
    ],
)
def test_bash(words, expected, tmp_path):
    done = subprocess.run(
        ["bash", "-c", BASH.format(words=words)],
        input=completion.script("bash"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.stderr == ""
    assert set(done.stdout.split()) == expected


@pytest.mark.process
@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_others_accept_the_script(shell):
    if not os.environ.get("CI") and not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    text = completion.script(shell)
    done = subprocess.run([shell, "-n"], input=text, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_shell_has_all_commands():
    for shell in completion.SHELLS:
        assert "check-env" in completion.script(shell)
