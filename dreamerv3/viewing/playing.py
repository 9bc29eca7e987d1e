"""An agent that acts while a browser watches, pauses it and steps it."""

from __future__ import annotations

import base64
import http
import json
import pathlib
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from dreamerv3.viewing.local import LocalHandler, LocalServer, Query, RefusedError
from embodied.core import base
from embodied.metrics import video

PAGE = pathlib.Path(__file__).parent / "play_page"
HOLD = 10.0  # Seconds that a browser waits for the next frame.
FASTEST = 240.0  # Frames per second.


class Acting(Protocol):
    """What plays: a trained agent."""

    def reset(self) -> base.Batch:
        """Forget all latents; returns the action that starts an episode."""

    def act(self, obs: base.Step) -> base.Batch:
        """The action for an observation."""


class Frame(NamedTuple):
    """What a browser shows."""

    number: int  # Counts all frames.
    episode: int
    step: int  # Of the episode.
    reward: float
    score: float  # Of the episode so far.
    scores: tuple[float, ...]  # Of the last complete episodes.
    image: bytes  # PNG.


class Stage:
    """Steps the agent's environment in a thread, at a rate that can be changed."""

    def __init__(
        self,
        agent: Acting,
        env: base.Env,
        picture: Callable[[base.Env, base.Step], np.ndarray],
        fps: float = 15,
        paused: bool = False,
    ):
        self._agent, self._env, self._picture = agent, env, picture
        self._changed = threading.Condition()
        self._fps = fps
        self._paused = paused
        self._singles = 0  # Steps to take although it is paused.
        self._closed = False
        self._frame: Frame | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="play", daemon=True)
        self._thread.start()

    def wait(self, after: int, timeout: float) -> Frame | None:
        """The newest frame, once it has a number above `after`.

        Raises what the environment or the agent raised.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_newer(after), timeout)
            if self._error:
                raise self._error
            return self._frame

    def control(self, order: str) -> None:
        """Pause, play, step once, or change the speed; raises `KeyError` for others."""
        orders: dict[str, Callable[[], None]] = {
            "pause": self._toggle,
            "step": self._step_once,
            "faster": lambda: self._set_speed(2.0),
            "slower": lambda: self._set_speed(0.5),
        }
        with self._changed:
            orders[order]()
            self._changed.notify_all()

    def state(self) -> dict[str, Any]:
        """Whether it is paused, and its speed."""
        with self._changed:
            return {"paused": self._paused, "fps": self._fps}

    def close(self) -> None:
        """Stop and close the environment."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()
        self._env.close()

    def _toggle(self) -> None:
        self._paused = not self._paused

    def _step_once(self) -> None:
        self._paused = True
        self._singles += 1

    def _set_speed(self, factor: float) -> None:
        self._fps = float(np.clip(self._fps * factor, 0.25, FASTEST))

    def _is_newer(self, after: int) -> bool:
        found = self._frame is not None and self._frame.number > after
        return found or self._error is not None or self._closed

    def _run(self) -> None:
        try:
            self._play()
        except BaseException as error:
            with self._changed:
                self._error = error
                self._changed.notify_all()

    def _play(self) -> None:
        action, scores = self._agent.reset(), [0.0]
        number = step = 0
        while self._await_turn():
            obs = self._env.step(action)
            action = self._agent.act(obs)
            number, step = number + 1, 0 if obs[base.IS_FIRST] else step + 1
            reward = float(obs[base.REWARD])
            scores[-1] += reward
            image = video.encode_png(video.to_pixels(self._picture(self._env, obs)))
            done = tuple(scores[-11:-1])
            frame = Frame(number, len(scores), step, reward, scores[-1], done, image)
            with self._changed:
                self._frame = frame
                self._changed.notify_all()
            if obs[base.IS_LAST]:
                scores.append(0.0)

    def _await_turn(self) -> bool:
        """Wait for the next step; False if it was closed."""
        start = time.monotonic()
        with self._changed:
            while not self._closed:
                if self._singles:
                    self._singles -= 1
                    return True
                left = start + 1 / self._fps - time.monotonic()
                if not self._paused and left <= 0:
                    return True
                self._changed.wait(None if self._paused else left)
        return False


class Server(LocalServer):
    """Serves the page that watches a stage."""

    def __init__(self, stage: Stage, title: str, port: int):
        super().__init__(port, Handler, PAGE)
        self.stage, self.title = stage, title


class Handler(LocalHandler):
    """One connection of a browser."""

    server: Server

    def answer(self, path: str, query: Query) -> None:
        stage = self.server.stage
        if path == "/api/frame":
            after = query.get("after", "")
            if not after.isdecimal():
                raise RefusedError(http.HTTPStatus.BAD_REQUEST, "after: not a number")
            self._send_frame(int(after))
            return
        if path == "/api/control":
            try:
                stage.control(query.get("order", ""))
            except KeyError as error:
                raise RefusedError(
                    http.HTTPStatus.BAD_REQUEST, f"there is no order {error}"
                ) from error
            self._send_json(stage.state())
            return
        self.send_page(path.removeprefix("/") or "index.html")

    def _send_frame(self, after: int) -> None:
        about = {"title": self.server.title, **self.server.stage.state()}
        try:
            frame = self.server.stage.wait(after, HOLD)
        except Exception as error:  # Of the environment; the page shows it.
            self._send_json({**about, "error": f"{type(error).__name__}: {error}"})
            return
        if frame is None or frame.number <= after:
            self._send_json(about)
            return
        image = base64.b64encode(frame.image).decode()
        about |= self.server.stage.state()
        self._send_json({**about, **frame._asdict(), "image": image})

    def _send_json(self, found: dict[str, Any]) -> None:
        self.send(http.HTTPStatus.OK, json.dumps(found).encode(), "application/json")
