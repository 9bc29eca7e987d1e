"""Roles start under the `portal` package, as the product's documents write it."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading

TIMEOUT = 120.0  # Seconds after which a run without what it should log has failed.
ROOT = pathlib.Path(__file__).parents[2]


def kill_group(pid):
    with contextlib.suppress(ProcessLookupError):  # Nothing is left of it.
        os.killpg(pid, signal.SIGKILL)


def test_roles_run_as_portal_processes_and_threads():
    with tempfile.TemporaryDirectory(dir="/tmp") as logdir:  # Short, for ipc paths.
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.e2e.portal_run", logdir],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        deadline = threading.Timer(TIMEOUT, kill_group, [process.pid])
        deadline.start()
        output = []
        for line in process.stdout:  # Ends with the run; its children hold the pipe.
            output.append(line)
            if line == "done\n":
                break
        deadline.cancel()
        kill_group(process.pid)
        assert output[-1] == "done\n", "".join(output)
