"""Any environment registered with Gymnasium, and any object that is one."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import elements
import gymnasium
import numpy as np
from gymnasium import spaces

from embodied.core import base, env_rules, watch, wrappers
from embodied.envs import codecs, gymnasium_spaces, options
from embodied.envs.registry import TaskError, atari_task
from embodied.envs.tracebacks import user_traceback

OBS, ACTION, IMAGE = "obs", "action", "image"  # Keys of spaces that have no name.
REMEDY = "wrap the environment to give Box, Discrete, MultiDiscrete, MultiBinary, "
REMEDY += "Dict or Tuple instead"
# What the methods of an environment return.
RETURNS = {
    "reset": ("observation", "info"),
    "step": ("observation", "reward", "terminated", "truncated", "info"),
}
TEXT_REMEDY = "wrap the environment to give tokens, for example as MultiDiscrete"


def make(
    name: str,
    seed: int = 0,
    kwargs: str | Mapping[str, Any] = "{}",
    render: bool = False,
    vector: bool = True,
    repeat: int = 1,
    time_limit: int = 0,
    resize: Sequence[int] = (64, 64),
    gray: bool = False,
    shown: bool = False,
) -> base.Env:
    """The environment of an id, with the options of `env.gymnasium`.

    What is `shown` renders for people; with `render` the agent sees it as well.
    """
    arguments = options.parse_kwargs(kwargs)
    if render or shown:
        arguments = {"render_mode": "rgb_array", **arguments}
    if time_limit:
        arguments["max_episode_steps"] = time_limit * repeat  # Also above its own.
    inner = _create(name, arguments)
    env = adapt(f"gymnasium_{name}", inner, seed, render, vector)
    return options.present(env, repeat, 0, resize, gray)


def adapt(
    task: str,
    env: gymnasium.Env,
    seed: int = 0,
    render: bool = False,
    vector: bool = True,
    group: str = "env.gymnasium",
) -> Gymnasium:
    """An environment object as ours; what cannot be done is a `TaskError`."""
    _check_interface(task, env)
    try:
        return Gymnasium(env, seed, render, vector)
    except codecs.UnsupportedSpaceError as error:
        words = (str(error), error.remedy)
        rule, remedy = (text.replace("{group}", group) for text in words)
        raise TaskError(task, rule, remedy) from None


def _check_interface(task: str, env: gymnasium.Env) -> None:
    """Raise if a class lacks what Gymnasium's own ones have."""
    for name in ("observation_space", "action_space"):
        if getattr(env, name, None) is None:
            remedy = f"set self.{name} in the constructor, for example to "
            remedy += "gymnasium.spaces.Box(-1, 1, (3,))"
            raise TaskError(task, f"it has no {name}", remedy)
    parameters = inspect.signature(env.unwrapped.reset).parameters.values()
    if not any(p.name == "seed" or p.kind == p.VAR_KEYWORD for p in parameters):
        remedy = "begin it with def reset(self, *, seed=None, options=None) and let it "
        remedy += "return observation and info"
        raise TaskError(task, "its reset takes no seed", remedy)


class Gymnasium(base.Env):
    """Adapts an environment; dictionary spaces keep their keys, joined by slashes.

    An image is called `image`, any other observation without a name `obs`. `render`
    adds what a person would see as `image`; without `vector` only images are observed.
    """

    def __init__(
        self,
        env: gymnasium.Env,
        seed: int = 0,
        render: bool = False,
        vector: bool = True,
    ):
        self._env = env
        self._watch = watch.Watch(env)
        self.original = env.observation_space, env.action_space
        self.vector, self.rendered = vector, render
        self._seed: int | None = seed  # Used by the first reset only.
        self._done = True
        namer = codecs.Namer(ACTION)
        self._action = _codec(env.action_space, ACTION, namer, True)
        namer = codecs.Namer(OBS, tuple(self._action.spaces))
        self._value = _codec(env.observation_space, OBS, namer, False)
        if isinstance(self._value, codecs.Image):
            self._value = codecs.Image(IMAGE, self._value.own)
        self._obs_space = dict(self._value.spaces)
        if not vector:
            images = {k: v for k, v in self._obs_space.items() if wrappers.is_image(v)}
            self._obs_space = images
        self._frame: codecs.Image | None = self._ask_frame() if render else None
        if not self._obs_space:
            message = "there is no image to observe and {group}.vector is False"
            remedy = "use --{group}.render True, or leave vector True"
            raise codecs.UnsupportedSpaceError(message, remedy)

    @property
    def obs_space(self) -> base.Spaces:
        return {**self._obs_space, **base.special_spaces()}

    @property
    def act_space(self) -> base.Spaces:
        return {**self._action.spaces, base.RESET: elements.Space(bool)}

    @property
    def notes(self) -> Sequence[str]:
        return [*self._value.notes, *self._action.notes, *self._watch.notes]

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            obs, _ = _unpack("reset", self._env.reset(seed=self._seed))
            self._seed, self._done = None, False
            self._watch.judge(self.check(obs), "reset")
            return self._obs(obs, base.special_values(is_first=True))
        value = self.decode(action)
        outs = _unpack("step", self._env.step(value))
        obs, reward, terminated, truncated, _ = outs
        self._done = bool(terminated or truncated)
        special = base.special_values(
            float(reward), False, self._done, bool(terminated)
        )
        self._watch.judge(self.check(obs))
        return self._obs(obs, special)

    def encode_action(self, action: Any) -> dict[str, np.ndarray]:
        """An action of the environment as ours; the inverse of what `step` does."""
        return self._action.encode(action)

    def render(self) -> np.ndarray | None:
        if self._env.render_mode != "rgb_array":
            return None
        try:
            image = self._draw()
        except NotImplementedError:  # The class takes a mode, but draws nothing.
            return None
        return image if isinstance(image, np.ndarray) else None

    def close(self) -> None:
        self._env.close()

    def decode(self, action: Mapping[str, Any]) -> Any:
        """The action of the environment that ours stands for."""
        return self._action.decode(action)

    def encode(self, obs: Any) -> dict[str, Any]:
        """Our view of an observation, without what is rendered."""
        values = self._value.encode(obs)
        return {k: values[k] for k in self._obs_space if k in values}

    def describe(self) -> dict[str, Any]:
        """What makes another adapter that encodes and decodes as this one."""
        spaces = dict(zip(("observation", "action"), self.original, strict=True))
        tree = {key: gymnasium_spaces.encode(space) for key, space in spaces.items()}
        return {**tree, "vector": self.vector, "render": self.rendered}

    def check(self, obs: Any) -> list[env_rules.Fault]:
        """What is wrong with an observation by the environment's own space."""
        return list(self._value.check(obs, "observation"))

    def _obs(self, obs: Any, special: dict[str, Any]) -> dict[str, Any]:
        frame = self._frame.encode(self._draw()) if self._frame else {}
        return {**self.encode(obs), **frame, **special}

    def _draw(self) -> Any:
        """What a person would see; raises if a package for that is missing."""
        try:
            return self._env.render()
        except gymnasium.error.DependencyNotInstalled as error:
            task = f"gymnasium_{self._env.spec.id}" if self._env.spec else "your own"
            remedy = "install it beside dreamerv3, or go without pictures"
            raise TaskError(task, f"it cannot be drawn: {error}", remedy) from None

    def _ask_frame(self) -> codecs.Image:
        """How the rendered image looks, which is known only from one."""
        if IMAGE in self._obs_space:
            message = f"it observes an '{IMAGE}' already"
            remedy = "leave --{group}.render False"
            raise codecs.UnsupportedSpaceError(message, remedy)
        self._env.reset(seed=self._seed)
        frame = self._draw()
        if not isinstance(frame, np.ndarray):
            message = f"it renders no array in mode '{self._env.render_mode}'"
            remedy = "leave --{group}.render False, or give its constructor "
            remedy += 'render_mode="rgb_array"'
            raise codecs.UnsupportedSpaceError(message, remedy)
        codec = codecs.Image(IMAGE, elements.Space(np.uint8, frame.shape))
        self._obs_space |= codec.spaces
        return codec


def _unpack(method: str, result: Any) -> Any:
    """The values that a method returned; raises if they are those of the old Gym."""
    if isinstance(result, tuple) and len(result) == len(RETURNS[method]):
        return result
    found = f"{len(result)} values" if isinstance(result, tuple) else "one value"
    raise wrappers.SpaceError(
        f"{method} returned {found}, Gymnasium's is a tuple of "
        f"{len(RETURNS[method])}: {', '.join(RETURNS[method])}"
    )


def _create(name: str, arguments: dict[str, Any]) -> gymnasium.Env:
    task = f"gymnasium_{name}"
    if ours := atari_task(name):
        rule = "Gymnasium knows this id only where ale_py was imported"
        remedy = f"did you mean {ours}? gymnasium_ale_py:{name} is Gymnasium's version"
        raise TaskError(task, rule, remedy)
    try:
        return gymnasium.make(name, disable_env_checker=True, **arguments)
    except gymnasium.error.DependencyNotInstalled as error:
        remedy = "install what it names, or choose another task"
        raise TaskError(task, str(error), remedy) from None
    except gymnasium.error.Error as error:
        known = {key.lower(): key for key in gymnasium.registry}
        near = difflib.get_close_matches(name.lower(), known, 3)
        ids = " or ".join(f"gymnasium_{known[key]}" for key in near)
        remedy = f"did you mean {ids}? " if ids else ""
        remedy += "gymnasium.pprint_registry() lists the ids that are installed"
        raise TaskError(task, str(error), remedy) from None
    except Exception as error:
        rule = f"its constructor raised:\n{user_traceback(error)}"
        given = {k: v for k, v in arguments.items() if k != "max_episode_steps"}
        remedy = f"fix it, or the arguments it was given: {given}"
        raise TaskError(task, rule, remedy) from None


def _codec(
    space: gymnasium.Space, key: str, namer: codecs.Namer, action: bool
) -> codecs.Codec:
    match space:
        case spaces.Dict():
            return _group(space.spaces, dict, key, namer, action)
        case spaces.Tuple():
            children = dict(enumerate(space.spaces))
            return _group(children, codecs.to_tuple, key, namer, action)
        case spaces.Discrete() | spaces.MultiDiscrete() | spaces.MultiBinary():
            return codecs.leaf(key, _own(space), action, codecs.MAX_CLASSES)
        case spaces.Box():
            return codecs.leaf(key, _own(space), action)
        case spaces.Text():
            message = f"'{key}' is text, which the agent cannot read"
            raise codecs.UnsupportedSpaceError(message, TEXT_REMEDY)
    message = f"the space {space} of '{key}' is not supported"
    raise codecs.UnsupportedSpaceError(message, REMEDY)


def _group(
    children: Mapping[Any, gymnasium.Space],
    build: Any,
    key: str,
    namer: codecs.Namer,
    action: bool,
) -> codecs.Codec:
    parts = {
        name: _codec(child, namer.join(key, name), namer, action)
        for name, child in children.items()
    }
    if not parts:
        raise codecs.UnsupportedSpaceError(f"the space of '{key}' is empty", REMEDY)
    return codecs.Group(parts, build)


def _own(space: gymnasium.Space) -> elements.Space:
    """Our way to write an array space: the upper end of integers is exclusive."""
    match space:
        case spaces.Discrete():
            start = int(space.start)
            return elements.Space(space.dtype, (), start, start + int(space.n))
        case spaces.MultiDiscrete():
            high = space.start + space.nvec
            return elements.Space(space.dtype, space.shape, space.start, high)
        case spaces.MultiBinary():
            return elements.Space(space.dtype, space.shape, 0, 2)
        case spaces.Box():
            return codecs.box(space.dtype, space.shape, space.low, space.high)
    raise AssertionError(space)
