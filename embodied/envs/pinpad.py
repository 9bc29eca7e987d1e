"""Pin pad: step on coloured pads in an unknown order."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied.core import base

WIDTH, HEIGHT = 16, 14  # Cells of the room, with the walls around it.
MEMORY = 2  # Rows of cells below the room that show the pads stepped on.
SCALE = 4  # Pixels per cell, which makes images of 64x64.
PAD = 3  # Cells of a pad in both directions.
REWARD = 10.0

# Upper left cells of pads, row and column: along the walls, so that every pad can be
# reached from the middle without stepping on another.
WEST, EAST, NORTH, SOUTH = (5, 1), (5, 12), (1, 6), (10, 6)
CORNERS = ((1, 1), (1, 12), (10, 12), (10, 1))
LAYOUTS = {
    "three": (NORTH, CORNERS[2], CORNERS[3]),
    "four": CORNERS,
    "five": (*CORNERS, NORTH),
    "six": (*CORNERS, NORTH, SOUTH),
    "seven": (*CORNERS, NORTH, SOUTH, WEST),
    "eight": (*CORNERS, NORTH, SOUTH, WEST, EAST),
}

WALL, FLOOR, AGENT = (80, 80, 80), (230, 230, 230), (0, 0, 0)
COLORS = (
    (220, 60, 60),
    (60, 180, 75),
    (60, 100, 230),
    (250, 200, 40),
    (160, 60, 200),
    (60, 200, 220),
    (250, 130, 40),
    (240, 110, 190),
)


class PinPad(base.Env):
    """Reward 10 for each time the last pads stepped on are all pads in their order.

    The order is that of the pads' numbers, the same in every episode; the pads stepped
    on last are shown below the room. Stepping on a pad counts once until another is
    stepped on. After a reward, the agent restarts at a random cell with no history.
    Actions are none, up, down, left and right. The task is the number of pads.
    """

    TASKS = tuple(LAYOUTS)
    MOVES = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, task: str = "three", length: int = 10000, seed: int = 0):
        assert task in self.TASKS, task
        self._length = length
        self._rng = np.random.default_rng(seed)
        self._pads = _pads(LAYOUTS[task])
        self._target = tuple(range(len(LAYOUTS[task])))
        self._free = np.argwhere(self._pads == -1)
        self._room = _room(self._pads)
        self._memory: deque[int] = deque(maxlen=len(self._target))
        self._position = (0, 0)
        self._count = 0
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        size = (HEIGHT + MEMORY) * SCALE, WIDTH * SCALE, 3
        return {"image": elements.Space(np.uint8, size), **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self.MOVES)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            self._count, self._done = 0, False
            self._spawn()
            return self._obs(base.special_values(is_first=True))
        reward = self._move(*self.MOVES[int(action["action"])])
        self._count += 1
        self._done = self._count >= self._length
        return self._obs(base.special_values(reward, is_last=self._done))

    def render(self) -> np.ndarray:
        cells = self._room.copy()
        cells[self._position] = AGENT
        for index, pad in enumerate(self._memory):
            cells[HEIGHT:, MEMORY * index : MEMORY * (index + 1)] = COLORS[pad]
        return cells.repeat(SCALE, 0).repeat(SCALE, 1)

    def _move(self, rows: int, columns: int) -> float:
        """Go one cell unless there is a wall; returns the reward."""
        target = self._position[0] + rows, self._position[1] + columns
        if 0 < target[0] < HEIGHT - 1 and 0 < target[1] < WIDTH - 1:
            self._position = target
        pad = int(self._pads[self._position])
        if pad >= 0 and (not self._memory or self._memory[-1] != pad):
            self._memory.append(pad)
        if tuple(self._memory) != self._target:
            return 0.0
        self._spawn()
        return REWARD

    def _spawn(self) -> None:
        """Start on a random free cell with an empty memory."""
        row, column = self._rng.choice(self._free)
        self._position = int(row), int(column)
        self._memory.clear()

    def _obs(self, special: dict[str, Any]) -> dict[str, Any]:
        return {"image": self.render(), **special}


def _pads(corners: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The number of the pad on each cell; -1 for the floor and -2 for walls."""
    cells = np.full((HEIGHT, WIDTH), -2)
    cells[1:-1, 1:-1] = -1
    for number, (row, column) in enumerate(corners):
        cells[row : row + PAD, column : column + PAD] = number
    return cells


def _room(pads: np.ndarray) -> np.ndarray:
    """Colours of all cells, without the agent and what it remembers."""
    colors = np.array([*COLORS, WALL, FLOOR], np.uint8)  # -2 and -1 count from the end.
    cells = np.zeros((HEIGHT + MEMORY, WIDTH, 3), np.uint8)
    cells[:HEIGHT] = colors[pads]
    return cells
