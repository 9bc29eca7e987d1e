"""The built-in learnable environment: keep a paddle under a bouncing ball."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core import base

CELLS = 8  # The board is CELLS x CELLS; ceiling in the top row, paddle in the last.
WIDTH = 2  # Cells of the ball in both directions, and of the paddle.
RIGHT = CELLS - WIDTH  # Last column of ball and paddle, by their left cell.
TOP, BOTTOM = 1, CELLS - 1 - WIDTH  # First and last row of the ball, by its upper cell.

CEILING_COLOR = (60, 60, 70)
PADDLE_COLOR = (90, 180, 255)
BALL_COLOR = (255, 220, 80)
CAUGHT_COLOR = (90, 255, 120)


@dataclasses.dataclass
class State:
    """Everything that changes; positions are those of the upper left cell."""

    x: int  # Of the ball.
    y: int
    dx: int  # Direction of the ball, -1 or 1.
    dy: int
    paddle: int
    count: int = 0  # Steps of the episode so far.
    caught: bool = False  # Whether the ball is on the paddle now.


class Bounce(base.Env):
    """A ball bounces between walls, ceiling and floor; each catch earns 1.

    The ball moves one cell diagonally each step, so that its direction cannot be seen
    in one image and the agent needs memory. Actions are left, stay and right. The ball
    bounces whether it is caught or not, so that everything but the agent's own choice
    can be predicted, and perfect play catches it each time; a catch needs the paddle
    exactly under the ball. Task `16`, `32` or `64` is the image size.
    """

    TASKS = ("16", "32", "64")
    MOVES = (-1, 0, 1)

    def __init__(self, task: str = "32", length: int = 100, seed: int = 0):
        assert task in self.TASKS, task
        self._scale = int(task) // CELLS
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._state = self._start()
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        size = CELLS * self._scale
        image = elements.Space(np.uint8, (size, size, 3))
        return {"image": image, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self.MOVES)),
            base.RESET: elements.Space(bool),
        }

    @property
    def remaining_score(self) -> int:
        """What perfect play can still earn in this episode."""
        state, height = self._state, BOTTOM - TOP
        first = BOTTOM - state.y if state.dy > 0 else height + state.y - TOP
        first = first or 2 * height  # A ball on the floor was just counted.
        left = self._length - state.count
        return 0 if first > left else 1 + (left - first) // (2 * height)

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._state, self._done = self._start(), False
            return self._obs(is_first=True)
        state = self._state
        state.paddle += self.MOVES[int(action["action"])]
        state.paddle = min(max(state.paddle, 0), RIGHT)
        state.x, state.dx = _bounce(state.x + state.dx, state.dx, 0, RIGHT)
        state.y, state.dy = _bounce(state.y + state.dy, state.dy, TOP, BOTTOM)
        state.caught = state.y == BOTTOM and state.x == state.paddle
        state.count += 1
        self._done = state.count >= self._length
        return self._obs()

    def render(self) -> np.ndarray:
        state = self._state
        board = np.zeros((CELLS, CELLS, 3), np.uint8)
        board[:TOP] = CEILING_COLOR
        board[-1, state.paddle : state.paddle + WIDTH] = PADDLE_COLOR
        ball = board[state.y : state.y + WIDTH, state.x : state.x + WIDTH]
        ball[:] = CAUGHT_COLOR if state.caught else BALL_COLOR
        return board.repeat(self._scale, 0).repeat(self._scale, 1)

    def _start(self) -> State:
        """A random ball that is high enough for the paddle to get under it in time."""
        return State(
            x=int(self._rng.integers(0, RIGHT + 1)),
            y=int(self._rng.integers(TOP, TOP + 2)),
            dx=int(self._rng.choice((-1, 1))),
            dy=int(self._rng.choice((-1, 1))),
            paddle=RIGHT // 2,
        )

    def _obs(self, is_first: bool = False) -> dict[str, Any]:
        special = base.special_values(self._state.caught, is_first, self._done)
        return {"image": self.render(), **special}


def _bounce(position: int, direction: int, low: int, high: int) -> tuple[int, int]:
    """Reflect a position that left [low, high], and its direction with it."""
    if position < low:
        return 2 * low - position, 1
    if position > high:
        return 2 * high - position, -1
    return position, direction
