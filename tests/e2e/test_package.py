"""What `pip install .` installs."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps"]
    command += ["--no-build-isolation", "--quiet", "--wheel-dir", str(directory)]
    subprocess.run(command, check=True)
    (path,) = directory.glob("dreamerv3_distributed-*.whl")
    return zipfile.ZipFile(path)


def test_both_packages_with_their_data(wheel):
    names = set(wheel.namelist())
    expected = {"__init__.py", "py.typed"}
    for package in ("embodied", "dreamerv3"):
        assert {f"{package}/{name}" for name in expected} <= names
    assert {"dreamerv3/configs.yaml", "embodied/run/settings.yaml"} <= names
    assert "dreamerv3/viewing/baselines.json" in names
    glossary = wheel.read("dreamerv3/viewing/metrics.md").decode()
    assert glossary == (ROOT / "docs" / "metrics.md").read_text()
    assert {f"dreamerv3/viewing/page/{n}" for n in ("index.html", "app.js")} <= names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


def test_the_command_and_the_extras(wheel):
    (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    text = wheel.read(metadata).decode()
    extras = ("atari", "dmc", "crafter", "minigrid", "ray", "wandb", "mlflow", "gpu")
    for extra in (*extras, "dev"):
        assert f"Provides-Extra: {extra}" in text
    (points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "Name: dreamerv3-distributed\n" in text
    assert "dreamerv3 = dreamerv3.cli:cli" in wheel.read(points).decode()


@pytest.fixture(scope="module")
def program(wheel, tmp_path_factory):
    """The command of the wheel in a virtual environment of its own.

    Its dependencies are those of this interpreter, after which the folder is named: its
    own `.pth` files, which lead to this repository, have no effect there.
    """
    folder = tmp_path_factory.mktemp("clean")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, timeout=120)
    command = [folder / "bin" / "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, wheel.filename], check=True, timeout=120)
    (packages,) = folder.glob("lib/*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return folder / "bin" / "dreamerv3"


def start(program, *args, cwd):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    command = [program, *map(str, args)]
    return subprocess.run(
        command, env=env, cwd=cwd, capture_output=True, text=True, timeout=300
    )


def test_the_wheel_works_in_a_clean_environment(program, tmp_path):
    code = "import dreamerv3, embodied; print(dreamerv3.__file__, embodied.__file__)"
    result = start(program.parent / "python", "-c", code, cwd=tmp_path)
    assert result.stdout.count(str(program.parents[1])) == 2, result.stdout
    result = start(program, "--version", cwd=tmp_path)
    assert result.stdout.startswith("dreamerv3-distributed 0."), result.stderr
    result = start(program, "doctor", "--logdir", tmp_path, cwd=tmp_path)
    assert "✓ packages" in result.stdout, result.stdout
    assert "GFLOP/s" in result.stdout


def test_the_wheel_trains(program, tmp_path):
    flags = ["--configs", "debug", "--task", "dummy_disc", "--script", "train"]
    flags += ["--random_agent", "True", "--run.steps", 60, "--logdir", "run"]
    result = start(program, *flags, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "Device:   none, actions are random" in result.stdout
    assert (tmp_path / "run" / "metrics.jsonl").exists()


def test_the_lock_names_no_host():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "jax==" in text
