"""`dreamerv3 play`: an agent that acts while a browser watches."""

import contextlib
import json
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import numpy as np
import pytest

from dreamerv3 import main
from dreamerv3.viewing.playing import Server, Stage
from embodied.core import base
from embodied.envs.dummy import Dummy

WAIT = 60  # Seconds until something must have happened.
POLL = 0.01  # Seconds until the server notices that it should shut down.


class Still:
    """An agent that does nothing."""

    def reset(self):
        return {"act_disc": np.int32(0), "act_cont": np.zeros(6), "reset": True}

    def act(self, obs):
        return {**self.reset(), "reset": bool(obs[base.IS_LAST])}


def picture(env, obs):
    return obs["image"]


@pytest.fixture
def make_stage():
    with contextlib.ExitStack() as stack:

        def make(env=None, show=picture, **options):
            stage = Stage(Still(), env or Dummy("both", length=4), show, **options)
            stack.callback(stage.close)
            return stage

        yield make


def test_frames_follow_episodes(make_stage):
    stage = make_stage(fps=240, paused=True)
    seen = []
    for number in range(7):
        stage.control("step")
        seen.append(stage.wait(number, WAIT))
    assert [frame.number for frame in seen] == list(range(1, 8))
    assert [frame.step for frame in seen] == [0, 1, 2, 3, 4, 0, 1]
    assert [frame.episode for frame in seen] == [1, 1, 1, 1, 1, 2, 2]
    assert seen[-1].scores == (seen[4].score,)
    assert seen[0].image.startswith(b"\x89PNG")


def test_a_paused_stage_waits(make_stage):
    stage = make_stage(fps=240)
    assert stage.wait(3, WAIT).number > 3
    stage.control("pause")
    stage.control("step")  # It stays paused.
    assert stage.state()["paused"]
    last = stage.wait(0, WAIT).number
    stage.control("step")
    number = stage.wait(last, WAIT).number
    assert stage.wait(number + 1, 0.5).number <= number + 1
    stage.control("pause")
    assert stage.wait(number + 3, WAIT).number > number + 3


def test_speed_has_limits(make_stage):
    stage = make_stage(paused=True, fps=10)
    stage.control("faster")
    assert stage.state()["fps"] == 20
    for _ in range(9):
        stage.control("slower")
    assert stage.state()["fps"] == 0.25


def test_an_error_reaches_the_browser(make_stage):
    def fail(env, obs):
        raise ValueError("the lamp is broken")

    with serving(make_stage(show=fail)) as ask:
        assert ask("/api/frame?after=0")["error"] == "ValueError: the lamp is broken"


def test_requests(make_stage):
    with serving(make_stage(fps=240)) as ask:
        frame = ask("/api/frame?after=2")
        assert frame["number"] > 2
        assert frame["title"] == "dummy"
        assert ask("/api/control?order=pause") == {"paused": True, "fps": 240}
        for path in ("/api/frame", "/api/control?order=dance", "/../playing.py"):
            with pytest.raises(urllib.error.HTTPError):
                ask(path)


@contextlib.contextmanager
def serving(stage):
    server = Server(stage, "dummy", 0)
    threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True).start()

    def ask(path):
        url = f"http://127.0.0.1:{server.server_address[1]}{path}"
        with urllib.request.urlopen(url, timeout=WAIT) as answer:
            return json.loads(answer.read())

    yield ask
    server.shutdown()
    server.server_close()


@pytest.fixture
def playing(tmp_path):
    """The command with the agent of a short run; its address."""
    argv = ["--configs", "debug", "--random_agent", "--task", "bounce_32"]
    argv += ["--script", "train", "--run.steps", "80", "--run.env_processes", "False"]
    main.main([*argv, "--logger.outputs", "jsonl", "--logdir", str(tmp_path)])
    command = [sys.executable, "-m", "dreamerv3", "play", str(tmp_path), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    assert "bounce_32, agent of step 80: watch it at http://127.0.0.1" in line
    yield line.split("watch it at ")[1].split()[0]
    process.terminate()
    process.wait(WAIT)


@pytest.mark.slow
def test_the_page_by_keyboard(playing, chromium, tmp_path, until):
    page = chromium.new_page(viewport={"width": 420, "height": 800})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(playing)

    number = "Number(document.body.dataset.number || 0)"
    until(page, f"{number} > 3")
    page.keyboard.press("Space")
    until(page, "document.body.dataset.paused == 'true'")
    page.wait_for_timeout(500)  # A frame may be on its way.
    before = page.evaluate(number)
    page.keyboard.press("ArrowRight")
    until(page, f"{number} == {before + 1}")
    until(page, "document.getElementById('image').naturalWidth >= 32")
    assert "Episode 1, step" in page.inner_text("#status")
    page.screenshot(path=tmp_path / "play.png")
    page.get_by_role("button", name="Play").click()
    until(page, f"{number} > {before + 3}")
    assert not errors
