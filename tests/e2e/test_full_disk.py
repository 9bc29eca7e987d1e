"""A run whose disk is full waits, and continues by itself once there is room."""

import signal

import pytest

from tests.e2e.watching import Run, check_counts

pytestmark = [pytest.mark.process, pytest.mark.slow]


class SmallDisk:
    """A log directory on a file system of its own, which can be filled."""

    def __init__(self, mount, pauses):
        self.mount = mount
        self.logdir = mount / "run"
        self._ballast = mount / "ballast"
        # The environments of the tests write to this directory themselves.
        self.logdir.mkdir()
        (self.logdir / "pauses").symlink_to(pauses)

    def fill(self):
        """Leave no room."""
        with self._ballast.open("wb", buffering=0) as file:
            try:
                while file.write(bytes(1 << 16)):
                    pass
            except OSError:
                return

    def free(self):
        """Leave the room there was."""
        self._ballast.unlink()


@pytest.fixture
def disk(tmp_path, small_disk):
    pauses = tmp_path / "pauses"
    pauses.mkdir()
    return SmallDisk(small_disk(48), pauses)


@pytest.fixture
def full(disk):
    """A run that waits for room on its disk."""
    run = Run(disk.logdir)
    run.follow()
    run.wait_episodes(8)
    disk.fill()
    wait_printed(run, "The replay waits: no room for more steps")
    yield run
    run.process.kill()
    run.process.wait()


def wait_printed(run, text):
    run.wait_for(lambda: text in run.output, f"message '{text}'")


def test_a_full_disk_holds_the_run_until_there_is_room(disk, full):
    assert f"the file system {disk.mount} has" in full.output
    wait_printed(full, "The logger waits: no room for metrics")
    wait_printed(full, "ckpt/replay waits: no room for a checkpoint")
    full.kill("env0")
    wait_printed(full, "The restart of env0 waits")
    episodes = len(full.scores())
    disk.free()
    wait_printed(full, "The replay has disk space again")
    full.wait_restart("env0")
    full.wait_episodes(episodes + 20)
    assert full.stop() == 0, full.output
    assert full.output.count("times allowed") == 1, "more than env0 has failed"
    check_counts(full)


def test_the_end_on_a_full_disk_is_reported_and_the_run_resumes(disk, full):
    assert full.stop(signal.SIGTERM) != 0
    assert "no room for a checkpoint" in full.output
    assert "role 'agent' ended before it had saved everything" in full.output
    assert "did not stop in time" not in full.output
    disk.free()
    again = Run(disk.logdir)
    again.wait_episodes(len(full.scores()) + 8)
    assert again.stop() == 0, again.output
    check_counts(again, agents=1)
