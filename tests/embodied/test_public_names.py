"""Names that scripts for the public implementation import: there, or a line on them."""

import ast
import importlib
import pathlib
import re
import subprocess
import sys

import elements
import gymnasium
import numpy as np
import pytest

import embodied
from embodied import public_names
from embodied.envs.dummy import Dummy
from embodied.testing import check_env

# Public names by module.
PUBLIC = {
    "embodied": "envs jax run Agent Env GlobalClock LocalClock Driver RandomAgent "
    "Replay Wrapper clock limiters selectors streams wrappers",
    "embodied.core": "Agent Env GlobalClock LocalClock Driver RandomAgent Replay "
    "Wrapper clock limiters selectors streams wrappers",
    "embodied.core.base": "Agent Env Stream",
    "embodied.core.chunk": "Chunk",
    "embodied.core.clock": "setup GlobalClock LocalClock",
    "embodied.core.driver": "Driver",
    "embodied.core.limiters": "wait SamplesPerInsert",
    "embodied.core.random": "RandomAgent",
    "embodied.core.replay": "Replay",
    "embodied.core.selectors": "Fifo Uniform Recency Prioritized Mixture SampleTree "
    "SampleTreeNode SampleTreeEntry",
    "embodied.core.streams": "Stateless Prefetch Consec Zip Map Mixer",
    "embodied.core.wrappers": "Wrapper TimeLimit ActionRepeat ClipAction "
    "NormalizeAction UnifyDtypes CheckSpaces DiscretizeAction ResizeImage "
    "BackwardReturn AddObs RestartOnException",
    "embodied.envs.atari": "Atari",
    "embodied.envs.bsuite": "BSuite",
    "embodied.envs.crafter": "Crafter",
    "embodied.envs.dmc": "DMC",
    "embodied.envs.dmlab": "DMLab",
    "embodied.envs.dummy": "Dummy",
    "embodied.envs.from_dm": "FromDM",
    "embodied.envs.from_gym": "FromGym",
    "embodied.envs.loconav": "LocoNav",
    "embodied.envs.loconav_quadruped": "Quadruped QuadrupedObservables",
    "embodied.envs.minecraft": "Minecraft",
    "embodied.envs.minecraft_flat": "Wood Climb Diamond CollectReward HealthReward "
    "MinecraftBase MineRLEnv BreakSpeedMultiplier",
    "embodied.envs.pinpad": "PinPad",
    "embodied.envs.procgen": "ProcGen",
    "embodied.jax": "Agent DictHead Head MLPHead LayerScan Normalize SlowModel "
    "Optimizer nets outs opt",
    "embodied.jax.agent": "Options Agent init",
    "embodied.jax.heads": "MLPHead DictHead Head",
    "embodied.jax.internal": "setup get_named_axes get_data_axes fetch_async "
    "is_multihost device_put local_sharding to_local to_global move mesh "
    "grouped_ckpt_fns ckpt_fn",
    "embodied.jax.nets": "cast act init dropout symlog symexp where mask available "
    "ensure_dtypes ensure_dtypes_fwd ensure_dtypes_bwd rms rope Initializer Embed "
    "Linear BlockLinear Conv2D Conv3D Norm Attention DictConcat DictEmbed MLP "
    "Transformer GRU",
    "embodied.jax.opt": "Optimizer clip_by_agc scale_by_rms scale_by_momentum",
    "embodied.jax.outs": "Output Agg Frozen Concat MSE Huber Normal Binary "
    "Categorical OneHot TwoHot",
    "embodied.jax.transform": "init apply create_layer_callback resolve_rules "
    "print_grouping",
    "embodied.jax.utils": "Normalize SlowModel LayerScan layer_scan",
    "embodied.run": "eval_only train train_eval parallel",
    "embodied.run.eval_only": "eval_only",
    "embodied.run.parallel": "combined parallel_agent parallel_actor parallel_learner "
    "parallel_replay parallel_logger parallel_env parallel_envs",
    "embodied.run.train": "train",
    "embodied.run.train_eval": "train_eval",
    "dreamerv3.agent": "Agent imag_loss repl_loss lambda_return",
    "dreamerv3.main": "main make_agent make_logger make_replay make_env wrap_env "
    "make_stream",
    "dreamerv3.rssm": "RSSM Encoder Decoder",
}
ROOT = pathlib.Path(__file__).parents[2]
NAMES = [(module, name) for module in PUBLIC for name in PUBLIC[module].split()]


def source_of(module):
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_defined(module, name):
    """Whether the source of a module has a name; its packages need not be installed."""
    body = ast.parse(source_of(module).read_text()).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    names = {getattr(node, "name", "") for node in body}
    return name in names | {a.name for node in imports for a in node.names}


@pytest.mark.parametrize(("module", "name"), NAMES, ids=".".join)
def test_a_name_is_there_or_its_replacement_is_named(module, name):
    gone = public_names.GONE.get(module) or public_names.GONE.get(f"{module}.{name}")
    hint = public_names.HINTS.get(module, {}).get(name, gone)
    statement = f"from {module} import {name}"
    if hint:
        with pytest.raises(ImportError, match=f"^there is no {module}.*: ") as caught:
            exec(statement, {})
        assert str(caught.value).endswith(f": {hint}")
        return
    try:
        exec(statement, {})
    except ModuleNotFoundError as error:
        if error.name.startswith(("embodied", "dreamerv3")):
            raise
        alias = public_names.ALIASES.get(module, {}).get(name, name)
        assert is_defined(module, alias.rpartition(":")[2])


ATTRIBUTES = """
import embodied, embodied.jax, dreamerv3
for name in {names}:
    try:
        print(eval(name).__name__)
    except ImportError as error:
        print(error)
"""


@pytest.mark.process
def test_modules_are_attributes_of_their_packages():
    """As they are in the public code, whose packages import their modules."""
    absent = ("embodied.envs.procgen", "embodied")  # The package; no attribute.
    names = [n for n in (*public_names.ALIASES, *public_names.GONE) if n not in absent]
    command = [sys.executable, "-c", ATTRIBUTES.format(names=names)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    lines = run.stdout.splitlines()
    assert len(lines) == len(names), run.stderr
    for name, line in zip(names, lines, strict=True):
        hint = public_names.GONE.get(name)
        assert line == (f"there is no {name}: {hint}" if hint else name)


@pytest.mark.parametrize(
    "hint",
    sorted(
        {
            *(hint for names in public_names.HINTS.values() for hint in names.values()),
            *public_names.GONE.values(),
        }
    ),
)
def test_what_a_hint_names_exists(hint):
    for path in re.findall(r"\b(?:embodied|dreamerv3)/[\w/]+\.(?:py|yaml)", hint):
        assert (ROOT / path).exists()
    for dotted in re.findall(r"\bembodied\.[\w.]*\w", hint):
        module, _, name = dotted.rpartition(".")
        assert source_of(dotted).exists() or is_defined(module, name)


def test_names_that_were_never_there_fail_as_usual():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        embodied.nonsense  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("embodied.core.nonsense")
    assert not hasattr(importlib.import_module("embodied.core.selectors"), "x")


def test_modules_under_public_names_are_ours():
    from embodied.core import wrappers
    from embodied.replay import selectors

    assert embodied.wrappers is wrappers
    assert embodied.selectors.Uniform is selectors.Uniform
    assert embodied.Wrapper is wrappers.Wrapper


class Vector(gymnasium.Env):
    """One number, counted up to the end."""

    observation_space = gymnasium.spaces.Box(0, 9, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, length=3):
        self.length = length

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        obs = np.array([self.count], np.float32)
        return obs, 1.0, self.count == self.length, False, {}


def test_from_gym_names_the_only_observation_and_action():
    from embodied.envs.from_gym import FromGym

    env = FromGym(Vector(), obs_key="vector", act_key="choice")
    assert set(env.obs_space) - set(embodied.special_spaces()) == {"vector"}
    assert set(env.act_space) == {"choice", "reset"}
    assert check_env(lambda: FromGym(Vector(), "vector", "choice")) > 0
    with pytest.raises(TypeError, match="length"):
        FromGym(Vector(), length=4)


def test_from_gym_takes_an_id_with_arguments():
    from embodied.envs.from_gym import FromGym

    gymnasium.register("PublicNames-v0", entry_point=Vector)
    try:
        env = FromGym("PublicNames-v0", obs_key="vector", length=1)
    finally:
        gymnasium.registry.pop("PublicNames-v0")
    env.step({"action": 0, "reset": np.array(True)})
    assert env.step({"action": 0, "reset": np.array(False)})["is_last"]


def test_from_dm_names_the_only_observation():
    dm_env = pytest.importorskip("dm_env")
    from embodied.envs.from_dm import FromDM

    class Constant(dm_env.Environment):
        def reset(self):
            return dm_env.restart(np.zeros(2, np.float32))

        def step(self, action):
            return dm_env.termination(1.0, np.zeros(2, np.float32))

        def observation_spec(self):
            return dm_env.specs.Array((2,), np.float32)

        def action_spec(self):
            return dm_env.specs.DiscreteArray(3)

    assert "observation" in FromDM(Constant()).obs_space
    assert check_env(lambda: FromDM(Constant(), "observation", "choice")) > 0


def test_a_public_wrap_env_takes_the_settings():
    from dreamerv3 import main

    env = main.wrap_env(Dummy("cont"), elements.Config())
    assert check_env(lambda: main.wrap_env(Dummy("cont"), elements.Config())) > 0
    assert env.act_space["act_cont"].high.max() == 1
