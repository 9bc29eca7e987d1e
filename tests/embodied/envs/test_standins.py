"""Suites whose packages cannot be installed beside ours, on stand-ins of their API.

A stand-in has the functions that our adapter calls, with the same arguments and
results as those of the package, and refuses others.
"""

import importlib
import sys
import types

import numpy as np
import pytest

from embodied.envs.registry import TaskError
from embodied.testing import check_env

RESET = {"action": 0, "reset": True}


def act(action):
    return {"action": action, "reset": False}


def install(monkeypatch, suite, **modules):
    """Import our adapter with stand-ins in place of the packages it needs."""
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name.replace("__", "."), module)
    monkeypatch.delitem(sys.modules, f"embodied.envs.{suite}", raising=False)
    return importlib.import_module(f"embodied.envs.{suite}")


class Gym3:
    """procgen.ProcgenGym3Env: starts the next episode by itself, ignores resets."""

    made: list = []  # noqa: RUF012 - arguments of all instances

    def __init__(self, num, env_name, rand_seed, **options):
        assert num == 1
        assert set(options) == {
            *("num_levels", "start_level", "distribution_mode", "num_threads")
        }
        self.made.append((env_name, rand_seed))
        self.count, self.total, self.reward = 0, 0, 0.0

    def observe(self):
        image = np.full((1, 64, 64, 3), self.total, np.uint8)
        first = np.array([self.count == 0])
        return np.array([self.reward], np.float32), {"rgb": image}, first

    def act(self, action):
        assert action.shape == (1,)
        assert 0 <= action[0] < 15
        self.count, self.total = (self.count + 1) % 5, (self.total + 1) % 256
        self.reward = 10.0 if self.count == 0 else 0.0

    def get_info(self):
        return [{"prev_level_complete": 1, "prev_level_seed": 0, "level_seed": 0}]

    def close(self):
        pass


@pytest.fixture
def procgen(monkeypatch):
    Gym3.made.clear()
    module = types.SimpleNamespace(ProcgenGym3Env=Gym3)
    yield install(monkeypatch, "procgen", procgen=module)
    sys.modules.pop("embodied.envs.procgen")


def test_procgen_contract(procgen):
    assert check_env(lambda: procgen.Procgen("coinrun")) == 49


@pytest.mark.parametrize("size", [(64, 64), (96, 96), (48, 32)])
@pytest.mark.parametrize("interpolation", ["area", "bilinear"])
def test_procgen_resizes_its_image(procgen, size, interpolation):
    env = procgen.Procgen("maze", size=size, interpolation=interpolation)
    obs = [env.step(RESET), env.step(act(1))]
    assert env.obs_space["image"].shape == (*size, 3)
    assert [o["image"].shape for o in obs] == 2 * [(*size, 3)]
    assert [set(o["image"].flatten().tolist()) for o in obs] == [{0}, {1}]


def test_procgen_shows_no_image_of_the_next_episode(procgen):
    env = procgen.Procgen("maze")
    obs = [env.step(RESET), *(env.step(act(1)) for _ in range(6))]
    shown = [int(o["image"][0, 0, 0]) for o in obs]
    assert shown == [0, 1, 2, 3, 4, 4, 5]
    assert [bool(o["is_last"]) for o in obs] == [*5 * [False], True, False]
    assert [bool(o["is_first"]) for o in obs] == [True, *5 * [False], True]
    assert obs[5]["reward"] == 10
    assert obs[5]["log/level_complete"] == 1
    assert len(Gym3.made) == 1


def test_procgen_is_made_anew_for_a_reset_within_an_episode(procgen):
    env = procgen.Procgen("maze")
    env.step(RESET)
    env.step(act(1))
    obs = env.step(RESET)
    assert obs["is_first"]
    assert len(Gym3.made) == 2
    assert Gym3.made[0] != Gym3.made[1]


class Lab:
    """deepmind_lab.Lab: has no observations after the end of an episode."""

    def __init__(self, level, observations, config, renderer):
        assert level.startswith("contributed/dmlab30/")
        assert all(isinstance(value, str) for value in config.values())
        assert renderer in ("software", "hardware")
        self.names = observations
        self.shape = (int(config["height"]), int(config["width"]), 3)
        self.frames, self.seeds, self.actions = None, [], []

    def reset(self, episode=-1, seed=None):
        self.frames = 0
        self.seeds.append(seed)

    def is_running(self):
        return self.frames is not None and self.frames < 40

    def observations(self):
        assert self.is_running(), "Environment in wrong status."
        image = np.full(self.shape, self.frames, np.uint8)
        values = {"RGB_INTERLEAVED": image, "INSTR": "Pick the red ball"}
        return {name: values[name] for name in self.names}

    def step(self, action, num_steps=1):
        assert action.dtype == np.intc
        assert action.shape == (7,)
        self.actions.append(tuple(action.tolist()))
        self.frames += num_steps
        return 1.5

    def close(self):
        pass


@pytest.fixture
def dmlab(monkeypatch):
    module = types.SimpleNamespace(Lab=Lab)
    yield install(monkeypatch, "dmlab", deepmind_lab=module)
    sys.modules.pop("embodied.envs.dmlab")


@pytest.mark.parametrize("name", ["explore_goal_locations_small", "language_answer"])
def test_dmlab_contract(dmlab, name):
    assert check_env(lambda: dmlab.DMLab(name, size=(32, 48))) > 20


def test_dmlab_holds_actions_for_four_frames_and_repeats_the_last_image(dmlab):
    env = dmlab.DMLab("explore_goal_locations_small")
    obs = [env.step(RESET), *(env.step(act(7)) for _ in range(10))]
    shown = [int(o["image"][0, 0, 0]) for o in obs]
    assert shown == [0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 36]
    assert obs[-1]["is_last"]
    assert obs[-1]["reward"] == 1.5
    assert env._env.actions[0] == (20, 0, 0, 1, 0, 0, 0)
    env.step(RESET)
    assert len(set(env._env.seeds)) == 2


def test_dmlab_instructions_are_the_same_numbers_in_every_process(dmlab):
    obs = dmlab.DMLab("language_answer").step(RESET)
    assert obs["instruction"][:4].tolist() == [924, 79, 456, 380]
    assert not obs["instruction"][4:].any()


class MineRL:
    """The environment of a MineRL 0.4 specification, as it answers after `make`."""

    def __init__(self):
        self.items = {}
        self.life, self.count, self.actions = 20.0, 0, []

    def obs(self):
        from embodied.envs.minecraft import ITEMS

        return {
            "pov": np.full((64, 64, 3), self.count % 256, np.uint8),
            "inventory": {key: np.array(self.items.get(key, 0)) for key in ITEMS},
            "equipped_items": {"mainhand": {"type": "iron_axe", "damage": 0}},
            "life_stats": {"life": self.life, "food": 10.0, "air": 300.0, "score": 0},
        }

    def seed(self, seed):
        self.first_seed = seed

    def reset(self):
        self.items, self.life, self.count, self.actions = {}, 20.0, 0, []
        return self.obs()

    def step(self, action):
        from embodied.envs.minecraft import CHOICES, KEYS

        assert set(action) == {*KEYS, *CHOICES, "camera"}
        assert action["camera"].shape == (2,)
        self.actions.append(action)
        self.count += 1
        if action["attack"]:
            self.items["log"] = self.items.get("log", 0) + 1
        if action["craft"] == "planks":
            self.items["planks"] = 4
        return self.obs(), 0.0, self.life <= 0, {}

    def close(self):
        pass


@pytest.fixture
def minecraft():
    from embodied.envs import minecraft

    return minecraft


def test_minecraft_contract(minecraft):
    assert check_env(lambda: minecraft.MinecraftEnv(MineRL(), length=20)) > 10


def number(minecraft, name):
    return list(minecraft.ACTIONS).index(name)


def test_minecraft_has_one_task(minecraft):
    with pytest.raises(TaskError, match="choose minecraft_diamond"):
        minecraft.make("iron")


def test_minecraft_has_25_actions_and_12_milestones(minecraft):
    env = minecraft.MinecraftEnv(MineRL())
    assert env.act_space["action"].high == 25
    assert len([key for key in env.obs_space if key.startswith("log/")]) == 12


def test_minecraft_rewards_milestones_once_and_hearts(minecraft):
    inner = MineRL()
    env = minecraft.MinecraftEnv(inner)
    env.step(RESET)
    attack, planks = (number(minecraft, key) for key in ("attack", "craft_planks"))
    rewards = [float(env.step(act(a))["reward"]) for a in (attack, attack, planks)]
    assert rewards == [1, 0, 1]
    inner.life = 16.0
    obs = env.step(act(0))
    assert np.isclose(obs["reward"], -0.02)
    assert np.isclose(obs["health"], 0.8)
    inner.life = 0.0
    obs = env.step(act(0))
    assert obs["is_last"]
    assert obs["is_terminal"]


def test_minecraft_keeps_attacking_until_the_hands_do_something_else(minecraft):
    inner = MineRL()
    env = minecraft.MinecraftEnv(inner, sticky_attack=3)
    env.step(RESET)
    names = ["attack", *4 * ["turn_left"], "attack", "craft_stick", "forward"]
    for name in names:
        env.step(act(number(minecraft, name)))
    assert [a["attack"] for a in inner.actions] == [1, 1, 1, 1, 0, 1, 0, 0]


def test_minecraft_looks_neither_straight_up_nor_down(minecraft):
    inner = MineRL()
    env = minecraft.MinecraftEnv(inner)
    env.step(RESET)
    for _ in range(10):
        env.step(act(number(minecraft, "turn_up")))
    assert sum(a["camera"][0] for a in inner.actions) == -60


def test_minecraft_describes_its_world_to_minerl(minecraft, monkeypatch):
    """With the classes that MineRL 0.4.4 names, each as a record of its arguments."""
    used = {}

    class Handlers:
        def __getattr__(self, name):
            return lambda *args, **kwargs: used.setdefault(name, (args, kwargs))

    class ObtainDiamond:
        def __init__(self, dense, *args, resolution, **kwargs):
            self.resolution = resolution

        def make(self):
            self.create_observables()
            self.create_agent_start()
            self.create_agent_handlers()
            self.create_server_quit_producers()
            return MineRL()

    specs = types.SimpleNamespace(obtain_specs=types.SimpleNamespace())
    specs.obtain_specs.ObtainDiamond = ObtainDiamond
    hero = types.SimpleNamespace(handlers=Handlers())
    install(
        monkeypatch,
        "minecraft_spec",
        minerl=types.ModuleType("minerl"),
        minerl__herobraine=types.ModuleType("minerl.herobraine"),
        minerl__herobraine__env_specs=specs,
        minerl__herobraine__hero=hero,
    )
    env = minecraft.make("diamond", seed=3, size=(64, 64))
    assert check_env(lambda: env, steps=40) == 0
    assert used["AgentStartBreakSpeedMultiplier"] == ((100.0,), {})
    assert used["POVObservation"] == (((64, 64),), {})
    assert "diamond" in used["FlatInventoryObservation"][0][0]
    sys.modules.pop("embodied.envs.minecraft_spec")
