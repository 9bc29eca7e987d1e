"""Log directories as runs write them, and a browser that looks at their pages."""

import json
import os
import threading
import time

import numpy as np
import pytest

from dreamerv3.viewing.server import Server
from dreamerv3.viewing.store import Store
from embodied.metrics import video

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
TIMEOUT = 60_000  # Milliseconds.
POLL = 0.01  # Seconds until a server notices that it should shut down.


class FakeRun:
    """Writes the files of a run."""

    def __init__(self, path, task="bounce_32", method="dreamerv3", seed=0, **config):
        self.path = path
        path.mkdir(parents=True)
        lines = {"script": "parallel", "task": task, "seed": seed, "method": method}
        lines |= config
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (path / "config.yaml").write_text(text)

    def add(self, step, time=None, **metrics):
        """Append a row; `__` in names stands for `/`."""
        row = {"step": step} | ({} if time is None else {"time": time})
        row |= {key.replace("__", "/"): value for key, value in metrics.items()}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        if "episode/score" in row:
            kept = {
                k: v for k, v in row.items() if k in ("step", "time", "episode/score")
            }
            with (self.path / "scores.jsonl").open("a") as file:
                file.write(json.dumps(kept) + "\n")

    def add_episodes(self, amount=50, start=1.7e9, offset=0.0):
        for index in range(amount):
            score = offset + index / 10
            step = 100 * (index + 1)
            self.add(step, start + index, episode__score=score, episode__length=100)
            self.add(step, start + index, train__loss__total=100 / (index + 1))

    def add_video(self, key, step, seed=0, frames=30):
        random = np.random.default_rng(seed)
        images = random.integers(0, 255, (frames, 32, 48, 3), np.uint8)
        self.add_file(key, f"{step:012d}.mp4", video.encode_mp4(images, 15))

    def add_file(self, key, name, content):
        folder = self.path / "media" / key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    def add_roles(self, **roles):
        """Name to pid and restarts."""
        data = {name: {"pid": p, "restarts": r} for name, (p, r) in roles.items()}
        (self.path / "roles.json").write_text(json.dumps(data))


@pytest.fixture
def make_run(tmp_path):
    def make(name="run", **options):
        return FakeRun(tmp_path / "logdir" / name, **options)

    return make


@pytest.fixture(scope="module")
def chromium():
    if not os.environ.get("CI"):  # There both have to be.
        pytest.importorskip("playwright.sync_api")
        if not os.path.exists(CHROMIUM):
            pytest.skip(f"no Chromium at {CHROMIUM}")
    import playwright.sync_api as api

    with api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def page(chromium):
    page = chromium.new_page(viewport={"width": 1300, "height": 900})
    page.set_default_timeout(TIMEOUT)
    errors = []

    def on_error(error):
        errors.append(str(error))

    def on_request(request):
        if not request.url.startswith(("http://127.0.0.1", "data:", "file:", "blob:")):
            errors.append(request.url)

    page.on("pageerror", on_error)
    page.on("request", on_request)
    yield page
    page.close()
    assert not errors


@pytest.fixture
def runs(make_run):
    runs = [make_run(f"seed{seed}", seed=seed, batch_size=8 + seed) for seed in (0, 1)]
    for seed, run in enumerate(runs):
        run.add_episodes(40, offset=seed)
        for step in (1000, 2000, 3000):
            run.add_video("report/openloop/image", step, seed=step + seed)
        run.add_file("note", "000000001000.txt", b"a line of text")
        run.add_roles(agent=(os.getpid(), seed), env0=(2**22 + 1, 0))
    return runs


@pytest.fixture
def address(runs, tmp_path):
    store = Store([str(tmp_path / "logdir")])
    server = Server(store, 0)
    store.start()
    thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()
    store.close()


@pytest.fixture
def until():
    """Wait for an expression to be true.

    Not `wait_for_function`: what it evaluates after its first try, the page's own
    Content-Security-Policy forbids.
    """

    def wait(page, expression, arg=None):
        deadline = time.monotonic() + TIMEOUT / 1000
        while not page.evaluate(expression, arg):
            assert time.monotonic() < deadline, f"never true: {expression}"
            page.wait_for_timeout(20)

    return wait
