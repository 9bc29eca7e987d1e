"""`dreamerv3 doctor` names what is wrong with a machine and what fixes it."""

import importlib.metadata
import os
import types

import jax
import pytest

from dreamerv3.commands import doctor
from embodied import rpc
from embodied.core import machine
from embodied.run.parallel import run_keys


@pytest.fixture
def no_drawing(monkeypatch):
    """Whether OpenGL works takes processes to find out."""
    monkeypatch.setattr(doctor.headless, "attempt", lambda name: "")


@pytest.mark.compile
@pytest.mark.usefixtures("no_drawing")
def test_this_machine_is_fine(capsys, tmp_path):
    with pytest.raises(SystemExit) as info:
        doctor.run(["--logdir", str(tmp_path / "new")])
    out = capsys.readouterr().out
    assert info.value.code == 0, out
    for name in ("python", "package", "device", "cores", "memory", "disk", "suites"):
        assert f"✓ {name} " in out
    assert out.count("GFLOP/s") == len(jax.local_devices())
    assert "All is well." in out


@pytest.mark.usefixtures("no_drawing")
def test_what_is_wrong_ends_with_one(capsys, monkeypatch, tmp_path):
    def broken():
        raise OSError("the driver is gone")

    broken.__name__ = "devices"
    monkeypatch.setattr(doctor, "devices", broken)
    monkeypatch.setattr(doctor, "DISK", 1e30)
    with pytest.raises(SystemExit) as info:
        doctor.run(["--logdir", str(tmp_path)])
    out = capsys.readouterr().out
    assert info.value.code == 1
    assert "✗ devices         could not be checked, OSError: the driver is gone" in out
    assert "→ free some, choose another --logdir" in out
    assert "Wrong: devices, disk." in out


def test_packages_that_are_missing(monkeypatch):
    required = ["numpy>=2", "no-such-package", "other; extra == 'dev'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: required)
    missing, found = doctor.packages()
    assert missing.ok is False
    assert missing.remedy == "pip install no-such-package"
    assert found.text.startswith("numpy ")


def test_the_package_of_the_same_import_name(monkeypatch):
    monkeypatch.setattr(doctor, "_version", lambda name: "1.5.0")
    own, other = doctor.package()
    assert own.ok
    assert "'dreamerv3' 1.5.0 has the same import name" in other.text
    assert other.remedy.startswith("pip uninstall dreamerv3,")


def test_a_gpu_that_jax_cannot_use(monkeypatch):
    gpu = machine.Accelerator("NVIDIA GPU", ("/dev/null",), ("no_plugin",), "gpu")
    monkeypatch.setattr(machine, "ACCELERATORS", {"cuda": gpu})
    monkeypatch.setattr(doctor, "time_product", lambda device: 0.001)
    finding = list(doctor.devices())[-1]
    assert finding.ok is False
    assert "has a NVIDIA GPU" in finding.text
    assert finding.remedy == "pip install 'dreamerv3-distributed[gpu]'"


def test_little_memory(monkeypatch):
    little = types.SimpleNamespace(available=1e9, total=4e9)
    monkeypatch.setattr(doctor.psutil, "virtual_memory", lambda: little)
    (finding,) = doctor.memory()
    assert finding.ok is False
    assert finding.text == "1 GB free of 4 GB"


def test_a_folder_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "access", lambda *args: False)
    (finding,) = doctor.disk(tmp_path / "new")
    assert finding.ok is False
    assert str(tmp_path) in finding.text


def test_opengl_that_does_not_work(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(doctor.headless, "attempt", lambda name: "no library")
    (finding,) = doctor.opengl()
    assert finding.ok is False
    assert "egl: no library" in finding.text
    assert finding.remedy == "apt install libegl1 libosmesa6"


def test_keys(tmp_path):
    (finding,) = doctor.keys(tmp_path / "my keys")
    assert finding.ok is False
    assert finding.remedy == f"dreamerv3 keys '{tmp_path / 'my keys'}'"
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    (finding,) = doctor.keys(tmp_path / "keys")
    assert finding.ok
