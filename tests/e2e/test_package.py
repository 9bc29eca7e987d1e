"""What `pip install .` installs."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps"]
    command += ["--no-build-isolation", "--quiet", "--wheel-dir", str(directory)]
    subprocess.run(command, check=True)
    (path,) = directory.glob("*.whl")
    return zipfile.ZipFile(path)


def test_both_packages_with_their_data(wheel):
    names = set(wheel.namelist())
    expected = {"__init__.py", "py.typed"}
    for package in ("embodied", "dreamerv3"):
        assert {f"{package}/{name}" for name in expected} <= names
    assert "dreamerv3/configs.yaml" in names
    assert "dreamerv3/viewing/baselines.json" in names
    assert {f"dreamerv3/viewing/page/{n}" for n in ("index.html", "app.js")} <= names
    assert not any(name.startswith(("tests/", "bench/")) for name in names)


def test_the_command_and_the_extras(wheel):
    (metadata,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    text = wheel.read(metadata).decode()
    extras = ("atari", "dmc", "crafter", "minigrid", "ray", "wandb", "mlflow", "gpu")
    for extra in (*extras, "dev"):
        assert f"Provides-Extra: {extra}" in text
    (points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "dreamerv3 = dreamerv3.cli:cli" in wheel.read(points).decode()


def test_the_lock_names_no_host():
    text = (ROOT / "requirements.lock").read_text()
    assert "://" not in text
    assert "jax==" in text
