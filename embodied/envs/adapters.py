"""Adapters with the signatures of the public implementation: FromGym and FromDM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from embodied.core import base, wrappers

if TYPE_CHECKING:
    import dm_env
    import gymnasium

UNNAMED = ("obs", "image", "action")  # Default names of the adapters.


class FromGym(wrappers.Wrapper):
    """An environment of Gymnasium, as an object or by its id with arguments.

    `obs_key` and `act_key` name an observation or action that is not a dictionary.
    """

    def __init__(
        self,
        env: gymnasium.Env | str,
        obs_key: str = "image",
        act_key: str = "action",
        **kwargs: Any,
    ):
        import gymnasium

        from embodied.envs.gymnasium import adapt

        name = env if isinstance(env, str) else type(env).__name__
        if isinstance(env, str):
            env = gymnasium.make(env, **kwargs)
        elif kwargs:
            raise TypeError(f"arguments {sorted(kwargs)} need an id, not an object")
        super().__init__(RenameKeys(adapt(name, env), obs_key, act_key))


class FromDM(wrappers.Wrapper):
    """A `dm_env.Environment`; the arguments are those of `FromGym`."""

    def __init__(
        self,
        env: dm_env.Environment,
        obs_key: str = "observation",
        act_key: str = "action",
    ):
        from embodied.envs.dm_env import adapt

        inner = adapt(type(env).__name__, env)
        super().__init__(RenameKeys(inner, obs_key, act_key))


class RenameKeys(wrappers.Wrapper):
    """Renames the only observation and the only action if they have no name yet."""

    def __init__(self, env: base.Env, obs_key: str, act_key: str):
        super().__init__(env)
        self._obs = _rename(set(env.obs_space) - set(base.special_spaces()), obs_key)
        self._act = _rename(set(env.act_space) - {base.RESET}, act_key)
        self._inner = {new: old for old, new in self._act.items()}

    @property
    def obs_space(self) -> base.Spaces:
        return {self._obs.get(k, k): v for k, v in self.env.obs_space.items()}

    @property
    def act_space(self) -> base.Spaces:
        return {self._act.get(k, k): v for k, v in self.env.act_space.items()}

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        obs = self.env.step({self._inner.get(k, k): v for k, v in action.items()})
        return {self._obs.get(k, k): v for k, v in obs.items()}


def _rename(keys: set[str], new: str) -> dict[str, str]:
    return {key: new for key in keys if len(keys) == 1 and key in UNNAMED}
