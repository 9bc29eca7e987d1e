"""Every way to start the program that looks like one, is one."""

import ast
import pathlib
import subprocess
import sys

import pytest

import dreamerv3
import embodied
from dreamerv3.commands.base import COMMANDS

PACKAGES = [pathlib.Path(p.__file__).parent for p in (dreamerv3, embodied)]
WAYS = {
    "package": ["-m", "dreamerv3"],
    "module": ["-m", "dreamerv3.main"],
    "script": [PACKAGES[0] / "main.py"],
    "cli": ["-m", "dreamerv3.cli"],
}


@pytest.mark.process
@pytest.mark.parametrize("way", WAYS)
def test_trains(way, tmp_path):
    flags = ["--configs", "debug", "--script", "train", "--random_agent"]
    flags += ["--run.steps", "20", "--run.env_processes", "False"]
    command = [sys.executable, *WAYS[way], *flags, "--logdir", tmp_path / "run"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.mark.process
def test_the_script_starts_the_processes_of_a_parallel_run(tmp_path):
    flags = ["--configs", "debug", "--random_agent", "--run.steps", "20"]
    command = [sys.executable, *WAYS["script"], *flags, "--logdir", tmp_path / "run"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "The run ended" in result.stdout


@pytest.mark.process
def test_the_script_runs_commands_and_explains_mistakes(tmp_path):
    command = [sys.executable, *WAYS["script"], "eval", tmp_path / "missing"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "missing" in result.stderr
    assert "Traceback" not in result.stderr


def modules():
    return [path for package in PACKAGES for path in sorted(package.rglob("*.py"))]


@pytest.mark.parametrize(
    "path", modules(), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_module_that_reads_arguments_runs(path):
    """A module with `main` that does nothing when it is run misleads its reader."""
    source = path.read_text()
    tree = ast.parse(source)
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if functions & {"main", "cli"} or "ArgumentParser(" in source:
        assert '\nif __name__ == "__main__":' in source


@pytest.mark.process
@pytest.mark.parametrize("name", COMMANDS)
def test_the_module_of_a_command_is_the_command(name):
    module = f"dreamerv3.commands.{name.replace('-', '_')}"
    command = [sys.executable, "-m", module, "--help"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert f"dreamerv3 {name}" in result.stdout


@pytest.mark.process
def test_a_mistake_in_the_arguments_of_a_module_is_explained(tmp_path):
    script = PACKAGES[0] / "commands" / "convert.py"
    command = [sys.executable, script, tmp_path / "missing", tmp_path / "new"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert result.stderr.startswith("dreamerv3: ")
    assert "missing is not a directory" in result.stderr
