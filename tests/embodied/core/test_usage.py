"""What processes use of the machine."""

import json
import os
import subprocess
import sys
import time
import types

import pytest

from embodied.core import usage as usage_module
from embodied.core.usage import Process, Processes, Usage, UsageSettings


def make_usage(psutil=False, nvsmi=False, jax=False):
    return Usage(UsageSettings(psutil, nvsmi, jax))


def test_cores_memory_threads_and_files_of_this_process(tmp_path):
    usage = make_usage(psutil=True)
    end = time.process_time() + 0.1
    while time.process_time() < end:
        pass
    with (tmp_path / "file").open("w"):
        stats = usage.stats()
        more = stats["files"]
    assert set(stats) == {"cpu", "memory", "threads", "files"}
    assert 0 < stats["cpu"] < os.cpu_count() + 1
    assert stats["memory"] > 10**6
    assert stats["threads"] >= 1
    assert usage.stats()["files"] == more - 1


def test_cores_are_those_since_the_last_call(monkeypatch):
    process, now = Process(os.getpid()), [10.0]
    monkeypatch.setattr(
        usage_module, "time", types.SimpleNamespace(monotonic=lambda: now[0])
    )
    seconds = [1.0]
    monkeypatch.setattr(process, "_cpu_seconds", lambda: seconds[0])
    process.stats()
    now[0], seconds[0] = 14.0, 7.0
    assert process.stats()["cpu"] == pytest.approx(1.5)
    now[0] = 15.0
    assert process.stats()["cpu"] == 0


def test_what_is_switched_off_is_not_told():
    assert make_usage().stats() == {}


def test_gpus(monkeypatch):
    """As NVIDIA's library tells them, here a stand-in with two."""
    fake = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda h: types.SimpleNamespace(gpu=25 + 25 * h),
        nvmlDeviceGetMemoryInfo=lambda h: types.SimpleNamespace(used=1000 * (h + 1)),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    stats = make_usage(nvsmi=True).stats()
    assert stats == {
        "gpu0/compute": 0.25,
        "gpu0/memory": 1000,
        "gpu1/compute": 0.5,
        "gpu1/memory": 2000,
    }


def test_no_gpu_library_is_said(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert make_usage(nvsmi=True).stats() == {}
    assert "pip install 'dreamerv3-distributed[gpu]'" in capsys.readouterr().out


def test_device_memory_where_it_is_known(monkeypatch):
    stats = [{"bytes_in_use": 5, "peak_bytes_in_use": 7, "limit": 9}, None]
    devices = [types.SimpleNamespace(memory_stats=lambda s=s: s) for s in stats]
    fake = types.SimpleNamespace(local_devices=lambda: devices)
    monkeypatch.setitem(sys.modules, "jax", fake)
    found = make_usage(jax=True).stats()
    assert found == {"device0/memory": 5, "device0/peak": 7}
    monkeypatch.delitem(sys.modules, "jax")
    assert make_usage(jax=True).stats() == {}


@pytest.mark.process
def test_sums_over_processes_of_a_run(tmp_path):
    status = tmp_path / "roles.json"
    processes = Processes(status, ("env", "eval"))
    assert processes.stats() == {}
    children = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        for _ in range(3)
    ]
    names = ("env0", "eval1", "replay")
    pids = [child.pid for child in children]
    roles = {n: {"pid": p, "restarts": 0} for n, p in zip(names, pids, strict=True)}
    status.write_text(json.dumps(roles))
    assert processes.stats()["processes"] == 2
    children[0].kill()
    children[0].wait()
    assert processes.stats()["processes"] == 1
    for child in children:
        child.kill()
        child.wait()
