"""Settings of all tests: their tiers, and how they compile."""

import multiprocessing.process
import os
import pathlib
import shutil
import subprocess

import pytest

# Helpers whose assertions should say what they compared.
pytest.register_assert_rewrite(
    "tests.e2e.command", "tests.e2e.watching", "tests.e2e.torture"
)

QUICK = "--xla_backend_optimization_level=0"
HERE = pathlib.Path(__file__).parent
# Folders and files whose tests all start processes or compile programs; in other files,
# single tests say so by themselves.
TIERS = {
    "process": (
        "e2e",
        "embodied/cluster",
        "embodied/process/test_supervisor.py",
        "embodied/test_imports.py",
    ),
    "compile": (
        "embodied/jax",
        "learning",
        "dreamerv3/commands/test_convert.py",
        "dreamerv3/commands/test_export.py",
        "dreamerv3/test_agent.py",
        "dreamerv3/test_golden.py",
        "dreamerv3/test_hosts.py",
        "dreamerv3/test_learning.py",
        "dreamerv3/test_modes.py",
        "dreamerv3/test_player.py",
        "dreamerv3/test_report.py",
        "dreamerv3/test_seeds.py",
        "dreamerv3/test_sharding.py",
        "test_docs.py",
        "test_migrating_docs.py",
    ),
}


def pytest_collection_modifyitems(items):
    """Mark tests by their file."""
    for item in items:
        for marker, places in TIERS.items():
            if any(item.path.is_relative_to(HERE / place) for place in places):
                item.add_marker(marker)


def pytest_collection_finish(session):
    """Compile fast rather than run fast, also in child processes, unless it pays.

    Most tests compile for longer than they compute. Slow ones do not; they run with
    the programs that a user gets, and so do the golden numbers beside them.
    """
    if not any(item.get_closest_marker("slow") for item in session.items):
        os.environ.setdefault("XLA_FLAGS", QUICK)


@pytest.fixture(autouse=True)
def tier(request, monkeypatch):
    """Let only slow tests and those that are marked so start processes."""
    if any(map(request.node.get_closest_marker, ("process", "slow"))):
        return

    def reject(*args, **options):
        pytest.fail("this test starts a process: mark it with pytest.mark.process")

    monkeypatch.setattr(subprocess.Popen, "__init__", reject)
    monkeypatch.setattr(multiprocessing.process.BaseProcess, "start", reject)


@pytest.fixture
def small_disk(tmp_path):
    """Mounts a file system of so many megabytes; for tests that may start processes."""
    mount = tmp_path / "disk"

    def make(megabytes):
        mount.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(mount)]
        allowed = not os.getuid() and shutil.which("mount")
        if not allowed or subprocess.call(["mount", *options]):
            pytest.skip("cannot mount a small file system: not root, or not allowed")
        return mount

    yield make
    if mount.is_mount():
        subprocess.check_call(["umount", "-l", str(mount)])
