"""Atari games of the Arcade Learning Environment, with the protocol of the field."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import ale_py
import elements
import numpy as np
from ale_py import roms

from embodied.core import base
from embodied.core.resize import make_resize
from embodied.envs.registry import unknown_task

STICKY = 0.25  # Probability of Machado et al. (2018) that a frame repeats the action.
NOOP = 0


class Atari(base.Env):
    """One game: each step holds the action for `repeat` frames and sums their rewards.

    The image is the maximum of the last two frames, since games draw some sprites in
    every other frame only; the first image of an episode is pooled in the same way.
    `actions` is `all` 18 or those that are `needed` by the game. With `lives`
    `discount`, the loss of a life ends bootstrapping but not the episode; with
    `reset` it ends the episode, and the game continues in the next one. Episodes start
    with up to `noops` frames without action and are cut after `length` frames.
    """

    def __init__(
        self,
        name: str,
        seed: int = 0,
        size: tuple[int, int] = (96, 96),
        gray: bool = True,
        repeat: int = 4,
        sticky: bool = True,
        actions: Literal["all", "needed"] = "all",
        lives: Literal["unused", "discount", "reset"] = "unused",
        noops: int = 30,
        length: int = 108_000,
        interpolation: Literal["area", "bilinear"] = "area",
        suite: str = "atari",
    ):
        self._ale = _load(name, suite, seed, STICKY if sticky else 0.0, length)
        self._rng = np.random.default_rng(seed)
        self._repeat, self._noops, self._lives_mode = repeat, noops, lives
        self._actions = (
            self._ale.getLegalActionSet()
            if actions == "all"
            else self._ale.getMinimalActionSet()
        )
        channels = 1 if gray else 3
        screen = self._ale.getScreenDims()
        self._grab = self._ale.getScreenGrayscale if gray else self._ale.getScreenRGB
        self._frames = np.zeros((2, *screen, channels), np.uint8)
        self._shape = (*size, channels)
        self._resize = make_resize(screen, size, interpolation)
        self._lives = 0
        self._done = True
        self._goes_on = False  # The game after the episode, when a life was lost.

    @property
    def obs_space(self) -> base.Spaces:
        image = elements.Space(np.uint8, self._shape)
        return {"image": image, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self._actions)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            return self._reset()
        reward = self._advance(self._actions[int(action["action"])], self._repeat)
        over = self._ale.game_over(with_truncation=False)
        lost, self._lives = self._ale.lives() < self._lives, self._ale.lives()
        ended = over or (lost and self._lives_mode == "reset")
        self._done = ended or self._ale.game_truncated()
        self._goes_on = ended and not over and not self._ale.game_truncated()
        terminal = ended or (lost and self._lives_mode == "discount")
        return {
            "image": self._image(),
            **base.special_values(reward, is_last=self._done, is_terminal=terminal),
        }

    def render(self) -> np.ndarray:
        return self._ale.getScreenRGB()

    def _reset(self) -> dict[str, Any]:
        if self._goes_on:
            self._advance(self._actions[NOOP], 1)
        else:
            self._start()
        self._done = self._goes_on = False
        self._lives = self._ale.lives()
        return {"image": self._image(), **base.special_values(is_first=True)}

    def _start(self) -> None:
        self._ale.reset_game()
        self._keep(slice(2))
        self._advance(self._actions[NOOP], int(self._rng.integers(self._noops + 1)))
        if self._ale.game_over():  # No game ends that early unless it is left alone.
            self._ale.reset_game()
            self._keep(slice(2))

    def _advance(self, action: ale_py.Action, frames: int) -> float:
        """Hold an action and keep the last two frames; the sum of rewards."""
        reward = 0.0
        for index in range(frames):
            reward += self._ale.act(action)
            over = self._ale.game_over()
            if over or index >= frames - 2:
                self._frames[0] = self._frames[1]
                self._keep(slice(1, 2))
            if over:
                break
        return reward

    def _keep(self, where: slice) -> None:
        self._frames[where] = self._grab().reshape(self._frames.shape[1:])

    def _image(self) -> np.ndarray:
        pooled = np.maximum(self._frames[0], self._frames[1])
        return self._resize(pooled)


def atari100k(name: str, seed: int = 0, **options: Any) -> Atari:
    """The benchmark of 100,000 steps: colour, small images, no sticky actions."""
    defaults = {"size": (64, 64), "gray": False, "sticky": False, "actions": "needed"}
    return Atari(name, seed, **{**defaults, **options}, suite="atari100k")


def _load(
    name: str, suite: str, seed: int, sticky: float, length: int
) -> ale_py.ALEInterface:
    # The literature writes james_bond where the file is called jamesbond.
    games = {rom.replace("_", ""): rom for rom in roms.get_all_rom_ids()}
    rom = games.get(name.replace("_", ""))
    if rom is None:
        raise unknown_task(suite, name, games.values(), "pong")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", sticky)
    ale.setInt("max_num_frames_per_episode", length)
    ale.setBool("truncate_on_loss_of_life", False)
    path = roms.get_rom_path(rom)
    assert path is not None, rom
    ale.loadROM(path)
    return ale
