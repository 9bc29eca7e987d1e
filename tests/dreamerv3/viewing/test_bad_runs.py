"""A run whose files are not what they should be: its row says so, the others work."""

import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request

import pytest

from dreamerv3.settings import config, logdir
from dreamerv3.viewing import endpoints, tail
from dreamerv3.viewing.store import Store

DEADLINE = 120  # Seconds; a reader that blocks never ends.
LONG = 50_000_000  # Bytes of a line.


def fifo(path):
    os.mkfifo(path)


def directory(path):
    path.mkdir()


def device(path):
    path.symlink_to("/dev/zero")


def loop(path):
    path.symlink_to(path)


def unreadable(path):
    path.symlink_to("/proc/self/mem")  # Also for root, who may read anything.


def long_line(path):
    path.write_bytes(b'{"step": 1, "a": "' + b"x" * LONG + b'"}\n')


def endless_line(path):
    path.write_bytes(b"x" * LONG)


def nested(path):
    path.write_text('{"step": 1, "a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")


def garbage(path):
    path.write_bytes(bytes(range(256)) * 100)


def no_steps(path):
    rows = ['{"step": 1e999}', '{"step": NaN}', f'{{"step": {10**400}}}', "[]", "{}"]
    path.write_text("\n".join(rows) + "\n")


def many_names(path):
    names = ", ".join(f'"m{index}": 1' for index in range(20_000))
    path.write_text(f'{{"step": 1, {names}}}\n')


METRICS = {
    fifo: "not a regular file",
    directory: "not a regular file",
    device: "not a regular file",
    loop: "Too many levels of symbolic links",
    unreadable: "Input/output error",
    long_line: "1 line cannot be read: longer than 1,048,576 bytes",
    endless_line: "1 line cannot be read: longer than 1,048,576 bytes",
    nested: "1 line cannot be read: nested too deeply",
    garbage: "cannot be read: no JSON",
    no_steps: "5 lines cannot be read: no step",
    many_names: "more than 10,000 metrics",
}


def deep_settings(path):
    path.write_text("task: " + "[" * 100_000 + "\n")


def list_settings(path):
    path.write_text("task: [1, 2]\n")


def laughs(path):
    """Few lines that stand for two to the power of 30 values."""
    lines = ["task: dummy_disc", "a0: &a0 [1, 1]"]
    lines += [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 30)]
    path.write_text("\n".join(lines) + "\n")


def no_settings(path):
    path.write_text("}{ nothing of ours\n")


def much(path):
    path.write_text("task: dummy_disc\n" + "# comment\n" * 100_000)


CONFIGS = {
    fifo: "not a regular file",
    directory: "not a regular file",
    loop: "Too many levels of symbolic links",
    garbage: "no text",
    deep_settings: "no task, method, seed, script",
    list_settings: "no task, method, seed, script",
    no_settings: "no task, method, seed, script",
    much: "larger than 262,144 bytes",
}


def within_deadline(function, *args):
    """The result of a function, or a failure if it blocks."""
    results = []

    def call():
        results.append(function(*args))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert results, f"{function} blocks or failed"
    return results[0]


@pytest.fixture
def look(make_run, tmp_path):
    """What the server answers about a bad run between two others."""
    for name in ("a", "c"):
        make_run(name).add_episodes(5)
    stores = []

    def answer():
        store = within_deadline(Store, [str(tmp_path / "logdir")])
        stores.append(store)
        store.start()
        assert store.ready.wait(DEADLINE)
        ids = ",".join(data.run.id for data in store.all())
        query = {"runs": ids, "key": "episode/score"}
        state = within_deadline(endpoints.state, store, {})
        others = (endpoints.health, endpoints.settings, endpoints.media)
        for function in (*others, endpoints.curves):
            within_deadline(function, store, query)
        return {run["name"]: run for run in state["runs"]}

    yield answer
    for store in stores:
        within_deadline(store.close)


def check(runs, message):
    assert message in runs["b"]["error"]
    for name in ("a", "c"):
        assert runs[name]["error"] == ""
        assert runs[name]["step"] == 500
        assert runs[name]["points"] == 15


@pytest.mark.parametrize("name", ["metrics.jsonl", "scores.jsonl"])
@pytest.mark.parametrize("make", METRICS, ids=lambda make: make.__name__)
def test_metrics(make_run, look, make, name):
    make(make_run("b").path / name)
    runs = look()
    check(runs, METRICS[make])
    assert runs["b"]["error"].startswith(f"{name}: ")
    assert runs["b"]["task"] == "bounce_32"


@pytest.mark.parametrize("make", CONFIGS, ids=lambda make: make.__name__)
def test_settings(make_run, look, make):
    run = make_run("b")
    run.add_episodes(3)
    (run.path / "config.yaml").unlink()
    make(run.path / "config.yaml")
    runs = look()
    check(runs, f"config.yaml: {CONFIGS[make]}")
    assert runs["b"]["step"] == 300, "its metrics can be read"


def test_settings_that_repeat_themselves(make_run, look, tmp_path):
    laughs(make_run("b").path / "config.yaml")
    assert look()["b"]["task"] == "dummy_disc"
    with pytest.raises(config.ConfigError, match="more than 10,000 values"):
        logdir.load(tmp_path / "logdir" / "b")


def test_other_files(make_run, look):
    """What the page of health reads besides."""
    run = make_run("b")
    run.add_file("parallel/bottleneck", "000000000001.txt", b"")
    os.unlink(run.path / "media/parallel/bottleneck/000000000001.txt")
    fifo(run.path / "media/parallel/bottleneck/000000000001.txt")
    fifo(run.path / "roles.json")
    fifo(run.path / "run.lock")
    assert look()["b"]["error"] == ""


def test_good_lines_around_bad_ones_count(make_run, look):
    run = make_run("b")
    run.add(100, episode__length=1)
    for make in (nested, long_line):
        make(run.path / "bad")
        with (run.path / "metrics.jsonl").open("ab") as file:
            file.write((run.path / "bad").read_bytes())
        run.add(200, episode__length=2)
    runs = look()
    check(runs, "2 lines cannot be read")
    assert (runs["b"]["step"], runs["b"]["points"]) == (200, 3)


def test_values_that_are_no_numbers(make_run, look):
    run = make_run("b")
    run.add(1, list=[1, 2], huge=10**400, text="x", tree={"a": 1}, time=[3])
    run.add(2, list=[3, 4], huge=1, text=None, tree=1)
    runs = look()
    check(runs, "")
    assert runs["b"]["error"] == ""
    assert runs["b"]["points"] == 8


def test_a_program_error_concerns_one_run(make_run, look, monkeypatch):
    make_run("b").add(1, a=1)
    original = tail.Tail.read

    def fail(self, limit):
        if self.path.parent.name == "b":
            raise ZeroDivisionError("a bug")
        return original(self, limit)

    monkeypatch.setattr(tail.Tail, "read", fail)
    check(look(), "ZeroDivisionError: a bug")


@pytest.mark.process
def test_the_command(make_run, tmp_path):
    """One server, all bad runs at once."""
    for name in ("a", "c"):
        make_run(name).add_episodes(5)
    for make in METRICS:
        make(make_run(f"metrics-{make.__name__}").path / "metrics.jsonl")
    for make in CONFIGS:
        file = make_run(f"config-{make.__name__}").path / "config.yaml"
        file.unlink()
        make(file)
    command = [sys.executable, "-m", "dreamerv3", "view", str(tmp_path / "logdir")]
    process = subprocess.Popen(
        [*command, "--port", "0", "--no-cache"], stdout=subprocess.PIPE, text=True
    )
    try:
        line = within_deadline(process.stdout.readline)
        address = re.search(r"http://\S+", line)[0]
        found = {run["name"]: run["error"] for run in poll(address)["runs"]}
    finally:
        process.kill()
        process.communicate()
    assert found.pop("a") == found.pop("c") == ""
    assert len(found) == len(METRICS) + len(CONFIGS)
    for make, message in METRICS.items():
        assert message in found[f"metrics-{make.__name__}"]
    for make, message in CONFIGS.items():
        assert message in found[f"config-{make.__name__}"]


def poll(address):
    """The state of a server once it has read everything."""
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        with urllib.request.urlopen(f"{address}/api/state", timeout=DEADLINE) as file:
            state = json.load(file)
        if not state["busy"]:
            return state
        time.sleep(0.1)
    pytest.fail("the server never reads everything")


def test_a_pipe_that_becomes_a_file(make_run, tmp_path):
    run = make_run("b")
    fifo(run.path / "metrics.jsonl")
    store = within_deadline(Store, [str(tmp_path / "logdir")])
    within_deadline(store.read_all)
    (data,) = store.all()
    assert data.error()
    (run.path / "metrics.jsonl").unlink()
    run.add(7, a=1)
    store.read_all()
    assert (data.error(), data.step()) == ("", 7)
