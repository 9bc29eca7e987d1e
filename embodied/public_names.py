"""Names that scripts for the public DreamerV3 implementation import.

Names that have moved are aliases; names without a counterpart fail to import, with one
line that says what to use instead. `extend` adds them to a module of this project, and
`Finder` creates the modules that have no file.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

# Public module and name to ours, as `module:name` or as a module.
ALIASES = {
    "embodied": {
        "Wrapper": "embodied.core.wrappers:Wrapper",
        "clock": "embodied.core.clock",
        "limiters": "embodied.core.limiters",
        "selectors": "embodied.core.selectors",
        "wrappers": "embodied.core.wrappers",
    },
    "embodied.core": {
        "Agent": "embodied.core.base:Agent",
        "Driver": "embodied.core.driver:Driver",
        "Env": "embodied.core.base:Env",
        "RandomAgent": "embodied.core.random_agent:RandomAgent",
        "Replay": "embodied.replay:Replay",
        "Wrapper": "embodied.core.wrappers:Wrapper",
        "clock": "embodied.core.clock",
        "streams": "embodied.core.streams",
        "wrappers": "embodied.core.wrappers",
    },
    "embodied.core.limiters": {
        "SamplesPerInsert": "embodied.replay.limiter:SamplesPerInsert"
    },
    "embodied.core.random": {"RandomAgent": "embodied.core.random_agent:RandomAgent"},
    "embodied.core.replay": {"Replay": "embodied.replay:Replay"},
    "embodied.core.selectors": {
        "Mixture": "embodied.replay.selectors:Mixture",
        "Prioritized": "embodied.replay.selectors:Prioritized",
        "Recency": "embodied.replay.selectors:Recency",
        "Uniform": "embodied.replay.selectors:Uniform",
    },
    "embodied.envs.dmc": {"DMC": "embodied.envs.dmc:make"},
    "embodied.envs.from_dm": {"FromDM": "embodied.envs.adapters:FromDM"},
    "embodied.envs.from_gym": {"FromGym": "embodied.envs.adapters:FromGym"},
    "embodied.envs.minecraft": {"Minecraft": "embodied.envs.minecraft:make"},
    "embodied.envs.procgen": {"ProcGen": "embodied.envs.procgen:Procgen"},
    "embodied.jax": {
        "Agent": "embodied.jax.agent:Agent",
        "nets": "embodied.jax.nets",
    },
}

CLOCK = "use embodied.core.clock.Seconds(every), which is called without a step"
TREE = "use embodied.replay.sumtree.SumTree"
HEADS = "networks are Equinox modules here: see embodied/jax/heads.py"
NETS = "networks are Equinox modules here: see embodied/jax/nets.py"
LOSSES = "losses are pure functions of arrays here: see dreamerv3/model/losses.py"

# Public module and name to what to use instead.
HINTS = {
    "embodied": {"GlobalClock": CLOCK, "LocalClock": CLOCK},
    "embodied.core": {"GlobalClock": CLOCK, "LocalClock": CLOCK},
    "embodied.core.clock": {
        "GlobalClock": CLOCK,
        "LocalClock": CLOCK,
        "setup": "clocks need no set-up here; leave it out",
    },
    "embodied.core.limiters": {
        "wait": "SamplesPerInsert.insert and .sample block until allowed"
    },
    "embodied.core.selectors": {
        "Fifo": "Replay(online=True) serves each fresh sequence once",
        "SampleTree": TREE,
        "SampleTreeEntry": TREE,
        "SampleTreeNode": TREE,
    },
    "embodied.core.wrappers": {
        "AddObs": "write a Wrapper that extends obs_space and the result of step",
        "BackwardReturn": "returns are computed from replayed sequences by the agent",
        "DiscretizeAction": "write a Wrapper with a discrete act_space, or let the "
        "agent act continuously",
    },
    "embodied.jax": {
        "DictHead": HEADS,
        "Head": HEADS,
        "MLPHead": HEADS,
        "LayerScan": NETS,
        "Normalize": "use embodied.jax.normalizers",
        "Optimizer": "use embodied.jax.optimizer.laprop",
        "SlowModel": "use embodied.jax.normalizers.moving_average",
    },
    "embodied.jax.agent": {
        "Options": "the group jax of dreamerv3/configs.yaml has the options",
        "init": "Agent(…) initialises its parameters; see embodied.jax.agent.Model",
    },
    "embodied.jax.heads": {"MLPHead": "use Head or DictHead"},
    "embodied.jax.nets": {
        **dict.fromkeys(("symexp", "symlog"), "use embodied.jax.numerics"),
        **dict.fromkeys(
            (
                *("Attention", "Conv2D", "Conv3D", "DictConcat", "DictEmbed", "Embed"),
                *("GRU", "Initializer", "Transformer", "act", "available", "cast"),
                *("dropout", "ensure_dtypes", "ensure_dtypes_bwd", "ensure_dtypes_fwd"),
                *("init", "mask", "rms", "rope", "where"),
            ),
            NETS,
        ),
    },
    "dreamerv3.agent": {
        "imag_loss": LOSSES,
        "lambda_return": "use embodied.jax.numerics.lambda_return",
        "repl_loss": LOSSES,
    },
}

# Public modules without a counterpart to what to use instead.
GONE = {
    "embodied.core.chunk": "Replay writes its files; see embodied/replay/chunk.py",
    "embodied.envs.loconav_quadruped": "use embodied.envs.loconav.LocoNav, whose "
    "walkers are those of dm_control",
    "embodied.envs.minecraft_flat": "use embodied.envs.make('minecraft_diamond')",
    "embodied.jax.internal": "see embodied/jax/devices.py and embodied/jax/sharding.py",
    "embodied.jax.opt": "use embodied.jax.optimizer",
    "embodied.jax.outs": "use embodied.jax.distributions",
    "embodied.jax.transform": "see embodied/jax/sharding.py",
    "embodied.jax.utils": "use embodied.jax.normalizers",
}


def extend(module: str) -> None:
    """Add the public names that a module lacks.

    A `__getattr__` in its source would hide misspelt names from type checkers.
    """
    vars(sys.modules[module])["__getattr__"] = _resolver(module)


def _resolver(module: str) -> Callable[[str], Any]:
    def resolve(name: str) -> Any:
        if name in HINTS.get(module, {}):
            # `from module import name` would hide the text of an AttributeError.
            raise ImportError(f"there is no {module}.{name}: {HINTS[module][name]}")
        if f"{module}.{name}" in (*ALIASES, *GONE):  # Not imported so far.
            return importlib.import_module(f"{module}.{name}")
        if name not in ALIASES.get(module, {}):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        target, _, attribute = ALIASES[module][name].partition(":")
        found = importlib.import_module(target)
        return getattr(found, attribute) if attribute else found

    return resolve


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Creates public modules that have no file here; the last of all finders."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a public module; raises if it has no counterpart."""
        if fullname in GONE:
            raise ImportError(f"there is no {fullname}: {GONE[fullname]}")
        if fullname not in ALIASES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def exec_module(self, module: ModuleType) -> None:
        """Add the names of the table."""
        extend(module.__name__)


def install() -> None:
    """Make public modules importable; repeated calls do nothing."""
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        sys.meta_path.append(Finder())
