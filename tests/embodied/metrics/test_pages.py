"""TensorBoard's and Scope's own pages in a real browser."""

import socket
import subprocess
import sys

import numpy as np
import pytest

from embodied.metrics import ScopeOutput

playwright = pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.slow
WAIT = 60_000  # Milliseconds until a page must show something.


@pytest.fixture
def serve():
    """Start a server; it ends with the test."""
    processes = []

    def start(*command, ready):
        process = subprocess.Popen(
            [sys.executable, "-m", *map(str, command)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if ready in line:
                return
        pytest.fail("".join(lines))

    yield start
    for process in processes:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@pytest.fixture
def curve(every_kind):
    """Enough steps for a line."""
    scores = [(step, "episode/score", np.asarray(step**0.5)) for step in range(30, 99)]
    return [*every_kind, *scores]


def visit(browser, port):
    page = browser.new_page(viewport={"width": 1400, "height": 1400})
    page.goto(f"http://127.0.0.1:{port}/", timeout=WAIT)
    return page


def test_tensorboard(tmp_path, curve, browser, serve, port):
    pytest.importorskip("tensorboard")
    from embodied.metrics.tensorboard import TensorBoardOutput

    output = TensorBoardOutput(tmp_path / "first", 7, {})
    output(curve)
    output.close()
    options = ("--logdir", tmp_path, "--port", port, "--host=127.0.0.1")
    serve("tensorboard.main", *options, ready="Press CTRL+C")
    page = visit(browser, port)
    page.get_by_text("episode/score").first.wait_for(timeout=WAIT)
    # Only the first groups of cards are open, but all that a filter finds is shown.
    page.get_by_role("combobox", name="Filter tags").fill("score|openloop")
    video = page.locator("image-card", has_text="report/openloop/image").locator("img")
    video.scroll_into_view_if_needed(timeout=WAIT)
    page.wait_for_function(
        "image => image.complete && image.naturalWidth == 47",
        arg=video.element_handle(),
        timeout=WAIT,
    )
    page.screenshot(path=tmp_path / "tensorboard.png")
    # It is the animated image: the server hands out the file as it was written.
    content = page.request.get(f"http://127.0.0.1:{port}/{video.get_attribute('src')}")
    assert content.body().startswith(b"GIF89a")


def test_scope(tmp_path, curve, browser, serve, port):
    pytest.importorskip("scope")
    ScopeOutput(tmp_path / "runs" / "first", fps=7)(curve)
    options = ("--port", port, "--workers", 1, "--cachedir", tmp_path / "cache")
    serve(
        "scope_viewer",
        "--basedir",
        tmp_path / "runs",
        *options,
        ready="startup complete",
    )
    page = visit(browser, port)
    names = page.get_by_text("first", exact=True)
    names.first.wait_for(timeout=WAIT)
    # Scope forgets to load what is selected while its page is still loading.
    page.wait_for_load_state("networkidle", timeout=WAIT)
    names.first.click(timeout=WAIT)
    names.nth(1).click(timeout=WAIT)
    for name in ("episode-score.float", "report-openloop-image.mp4"):
        page.get_by_text(name, exact=True).first.click(timeout=WAIT)
    page.get_by_text("parallel-bottleneck.txt", exact=True).first.click(timeout=WAIT)
    page.get_by_text("actor: it is busy").first.wait_for(timeout=WAIT)
    video = page.locator("video").first
    page.wait_for_function(
        "video => video.readyState >= 2 && video.videoWidth == 48",
        arg=video.element_handle(timeout=WAIT),
        timeout=WAIT,
    )
    page.screenshot(path=tmp_path / "scope.png")
