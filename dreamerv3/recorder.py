"""Records what happens in a Gymnasium environment, to learn from it later."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np

from dreamerv3 import environments
from embodied.core import base, runfiles, spacefile, wrappers
from embodied.envs import gymnasium as adapters
from embodied.envs import options, original
from embodied.replay import Replay

CAPACITY = 1 << 40  # Steps; a recording forgets nothing.


class Recorder(gymnasium.Wrapper):
    """The environment as it is; every step is also written into a directory.

    Steps are stored as the agent would see and do them, for `--script train_offline
    --replay DIRECTORY`. They are safe from the death of the process once `step` has
    returned, but for the newest observation, which waits for its action. Recording
    into a directory again adds to it. `render`, `vector`, `resize` and `gray` mean what
    they mean in `env.gymnasium`.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        directory: str | os.PathLike,
        render: bool = False,
        vector: bool = True,
        resize: Sequence[int] = (64, 64),
        gray: bool = False,
        chunksize: int = 1024,
    ):
        super().__init__(env)
        self._playback = _Playback(env)
        name = env.spec.id if env.spec else type(env.unwrapped).__name__
        self._adapter = adapters.adapt(
            name, self._playback, render=render, vector=vector
        )
        seen = options.present(self._adapter, resize=resize, gray=gray)
        self._view = environments.wrap_env(seen)
        self._scales = {
            key: wrappers.NormalizeAction(self._adapter, key)
            for key, space in self._adapter.act_space.items()
            if not space.discrete and key != base.RESET
        }
        self._pending: dict[str, Any] | None = None  # Observation without an action.
        directory = pathlib.Path(directory)
        self._write_spaces(directory)
        self._replay = Replay(
            1, CAPACITY, directory / runfiles.REPLAY, chunksize, name=str(directory)
        )

    @property
    def steps(self) -> int:
        """How many the directory holds."""
        return self._replay.total

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start a new episode; one that has not ended counts as cut."""
        self._cut()
        result = self.env.reset(seed=seed, options=options)
        self._pending = self._see(self._zeros(), result, reset=True)
        return result

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """A step of the environment, recorded once it has happened."""
        if self._pending is None:
            raise gymnasium.error.ResetNeeded("call reset() before the first step()")
        encoded = self._encode(action)
        result = self.env.step(action)
        obs = self._see(encoded, result)
        self._replay.add({**self._pending, **encoded})
        self._pending = obs
        if obs[base.IS_LAST]:
            self._cut()
        return result

    def close(self) -> None:
        """Write what is left and close the environment."""
        self._cut()
        self._replay.close()
        super().close()

    def _see(
        self, action: dict[str, np.ndarray], result: tuple, reset: bool = False
    ) -> dict[str, Any]:
        """What the agent would observe; copied, as environments reuse their arrays."""
        self._playback.result = result
        try:
            obs = self._view.step({**action, base.RESET: np.asarray(reset)})
        finally:
            self._playback.result = None
        return {key: np.array(value) for key, value in obs.items()}

    def _encode(self, action: Any) -> dict[str, np.ndarray]:
        """The action in the units of the agent."""
        values = self._adapter.encode_action(action)
        for key, scale in self._scales.items():
            values[key] = scale.normalize(values[key])
        spaces = self._view.act_space
        return {k: np.array(v, spaces[k].dtype) for k, v in values.items()}

    def _cut(self) -> None:
        """Write the last observation of an episode."""
        if self._pending is not None:
            last = {base.IS_LAST: np.asarray(True)}
            self._replay.add({**self._pending, **last, **self._zeros()})
            self._pending = None

    def _zeros(self) -> dict[str, np.ndarray]:
        spaces = self._view.act_space.items()
        return {k: np.zeros(v.shape, v.dtype) for k, v in spaces if k != base.RESET}

    def _write_spaces(self, directory: pathlib.Path) -> None:
        spaces = self._view.obs_space, self._view.act_space
        there = spacefile.read(directory)
        found = spacefile.differences(there, spaces) if there else []
        if found:
            raise ValueError(
                f"{directory} holds steps of another environment, which differs in "
                f"{'; '.join(map(str, found))}: record into another directory"
            )
        spacefile.write(directory, *spaces)
        original.write(directory, original.describe(self._view))


class _Playback(gymnasium.Wrapper):
    """Returns the last result of the environment instead of stepping it."""

    result: tuple | None = None

    def reset(self, **arguments: Any) -> Any:
        return self.env.reset(**arguments) if self.result is None else self.result

    def step(self, action: Any) -> Any:
        return self.result
