"""Minecraft through MineRL 0.4: collect a diamond from scratch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import elements
import numpy as np

from embodied import public_names
from embodied.core import base
from embodied.envs.registry import unknown_task

public_names.extend(__name__)

MILESTONES = (
    *("log", "planks", "stick", "crafting_table", "wooden_pickaxe", "cobblestone"),
    *("stone_pickaxe", "iron_ore", "furnace", "iron_ingot", "iron_pickaxe", "diamond"),
)
ITEMS = (*MILESTONES, "dirt", "coal", "torch", "stone")
TOOLS = ("none", "air", "wooden_pickaxe", "stone_pickaxe", "iron_pickaxe", "other")
TASKS = ("diamond",)
TURN = 15  # Degrees.
ACTIONS: dict[str, dict[str, Any]] = {
    "noop": {},
    "attack": {"attack": 1},
    "turn_up": {"camera": (-TURN, 0)},
    "turn_down": {"camera": (TURN, 0)},
    "turn_left": {"camera": (0, -TURN)},
    "turn_right": {"camera": (0, TURN)},
    "forward": {"forward": 1},
    "back": {"back": 1},
    "left": {"left": 1},
    "right": {"right": 1},
    "jump": {"jump": 1, "forward": 1},
    "place_dirt": {"place": "dirt"},
    "place_crafting_table": {"place": "crafting_table"},
    "place_furnace": {"place": "furnace"},
    "craft_planks": {"craft": "planks"},
    "craft_stick": {"craft": "stick"},
    "craft_crafting_table": {"craft": "crafting_table"},
    "nearby_wooden_pickaxe": {"nearbyCraft": "wooden_pickaxe"},
    "nearby_stone_pickaxe": {"nearbyCraft": "stone_pickaxe"},
    "nearby_iron_pickaxe": {"nearbyCraft": "iron_pickaxe"},
    "nearby_furnace": {"nearbyCraft": "furnace"},
    "smelt_iron_ingot": {"nearbySmelt": "iron_ingot"},
    "equip_wooden_pickaxe": {"equip": "wooden_pickaxe"},
    "equip_stone_pickaxe": {"equip": "stone_pickaxe"},
    "equip_iron_pickaxe": {"equip": "iron_pickaxe"},
}
KEYS = ("attack", "forward", "back", "left", "right", "jump", "sneak", "sprint")
CHOICES = ("place", "craft", "nearbyCraft", "nearbySmelt", "equip")
PITCH = 60.0  # Degrees up and down that the agent can look.
HEART = 2.0  # Points of life.
FULL = {"life": 20.0, "food": 20.0, "air": 300.0}  # Points.


def make(
    name: str,
    seed: int = 0,
    size: tuple[int, int] = (64, 64),
    length: int = 36_000,
    break_speed: float = 100.0,
    sticky_attack: int = 30,
    sticky_jump: int = 10,
) -> base.Env:
    """Task `diamond`, in a world that MineRL makes."""
    if name not in TASKS:
        raise unknown_task("minecraft", name, TASKS)
    from embodied.envs import minecraft_spec  # Needs minerl.

    env = minecraft_spec.create(tuple(size), break_speed, ITEMS, TOOLS)
    env.seed(seed)
    return MinecraftEnv(env, size, length, sticky_attack, sticky_jump)


class MinecraftEnv(base.Env):
    """Rewards each of twelve milestones once an episode with 1, a heart with 0.01.

    The agent sees an image, how many of each item it has and has had at most, what it
    holds, and its health, hunger and breath. An attack lasts for `sticky_attack`
    steps and a jump for `sticky_jump` unless the agent does something else with its
    hands, since breaking a block takes a while. `log/NAME` counts items.
    """

    def __init__(
        self,
        env: Any,
        size: tuple[int, int] = (64, 64),
        length: int = 36_000,
        sticky_attack: int = 30,
        sticky_jump: int = 10,
    ):
        self._env = env
        self._size, self._length = tuple(size), length
        self._actions = list(ACTIONS.values())
        self._hold = {"attack": sticky_attack, "jump": sticky_jump}
        self._held = dict.fromkeys(self._hold, 0)
        self._pitch = 0.0
        self._count = 0
        self._most = np.zeros(len(ITEMS), np.float32)
        self._life = FULL["life"]
        self._done = True

    @property
    def obs_space(self) -> base.Spaces:
        unit = elements.Space(np.float32, (), 0, 1)
        logs = {_log(item): elements.Space(np.float32) for item in MILESTONES}
        return {
            "image": elements.Space(np.uint8, (*self._size, 3)),
            "inventory": elements.Space(np.float32, (len(ITEMS),), 0),
            "inventory_max": elements.Space(np.float32, (len(ITEMS),), 0),
            "equipped": elements.Space(np.int32, (), 0, len(TOOLS)),
            "health": unit,
            "hunger": unit,
            "breath": unit,
            **base.special_spaces(),
            **logs,
        }

    @property
    def act_space(self) -> base.Spaces:
        return {
            "action": elements.Space(np.int32, (), 0, len(self._actions)),
            base.RESET: elements.Space(bool),
        }

    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        if action[base.RESET] or self._done:
            return self._reset()
        self._count += 1
        raw = self._raw_action(self._actions[int(action["action"])])
        obs, _, ended, _ = self._env.step(raw)
        reward = self._reward(obs)
        dead = self._life <= 0
        self._done = bool(ended or dead or self._count >= self._length)
        return self._obs(obs, base.special_values(reward, False, self._done, dead))

    def close(self) -> None:
        self._env.close()

    def _reset(self) -> dict[str, Any]:
        obs = self._env.reset()
        self._held = dict.fromkeys(self._hold, 0)
        self._pitch, self._count, self._done = 0.0, 0, False
        self._life = float(obs["life_stats"]["life"])
        self._most = _inventory(obs)
        return self._obs(obs, base.special_values(is_first=True))

    def _raw_action(self, chosen: Mapping[str, Any]) -> dict[str, Any]:
        """What MineRL takes: every key, held keys and a bounded pitch."""
        raw: dict[str, Any] = dict.fromkeys(KEYS, 0)
        raw |= dict.fromkeys(CHOICES, "none")
        raw |= {"camera": (0.0, 0.0), **chosen}
        for key, steps in self._hold.items():
            if raw[key]:
                self._held[key] = steps
            elif self._held[key] and not any(name in chosen for name in CHOICES):
                self._held[key] -= 1
                raw[key] = 1
            else:
                self._held[key] = 0
        up, across = raw["camera"]
        pitch = float(np.clip(self._pitch + up, -PITCH, PITCH))
        raw["camera"] = np.array([pitch - self._pitch, across], np.float32)
        self._pitch = pitch
        return raw

    def _reward(self, obs: Mapping[str, Any]) -> float:
        items = _inventory(obs)
        new = (items > 0) & (self._most == 0)
        self._most = np.maximum(self._most, items)
        life = float(obs["life_stats"]["life"])
        hearts, self._life = (life - self._life) / HEART, life
        return float(new[: len(MILESTONES)].sum()) + 0.01 * hearts

    def _obs(self, obs: Mapping[str, Any], special: dict[str, Any]) -> dict[str, Any]:
        items, stats = _inventory(obs), obs["life_stats"]
        share = {k: np.clip(float(stats[k]) / v, 0, 1) for k, v in FULL.items()}
        held = str(obs["equipped_items"]["mainhand"]["type"])
        tool = TOOLS.index(held if held in TOOLS else "other")
        counts = dict(zip(ITEMS, items, strict=True))
        return {
            "image": np.asarray(obs["pov"], np.uint8),
            "inventory": np.log1p(items),
            "inventory_max": np.log1p(self._most),
            "equipped": np.int32(tool),
            "health": np.float32(share["life"]),
            "hunger": np.float32(share["food"]),
            "breath": np.float32(share["air"]),
            **special,
            **{_log(item): np.float32(counts[item]) for item in MILESTONES},
        }


def _inventory(obs: Mapping[str, Any]) -> np.ndarray:
    return np.array([float(obs["inventory"][item]) for item in ITEMS], np.float32)


def _log(item: str) -> str:
    return f"{base.LOG_PREFIX}{item}"
