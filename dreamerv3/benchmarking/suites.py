"""What `dreamerv3 benchmark SUITE` runs: blocks of settings, tasks and a budget."""

from __future__ import annotations

from typing import NamedTuple

from dreamerv3.settings import config
from dreamerv3.settings.config import Blocks, ConfigError, Problem
from dreamerv3.viewing import published


class Suite(NamedTuple):
    """Tasks that are run with the same settings."""

    configs: tuple[str, ...]  # Blocks of settings.
    tasks: tuple[str, ...]
    budget: int  # Agent steps times action repeat; 0 takes run.steps of the blocks.


# Tasks of a suite that has published curves are those of the curves.
PUBLISHED = {
    "dmc_proprio_2023": ("dmc_proprio_2023", 500_000),
    "dmc_proprio": ("dmc_proprio_2023", 500_000),
    "dmc_vision_nature": ("dmc_vision_nature", 1_000_000),
    "dmc_vision": ("dmc_vision_nature", 1_000_000),
    "atari100k": ("atari100k_nature", 400_000),
    "atari100k_2023": ("atari100k_2023", 400_000),
}
OWN = {
    "small": Suite(
        ("track",),
        (
            "gymnasium_CartPole-v1",
            "gymnasium_Pendulum-v1",
            "minigrid_DoorKey-5x5-v0",
        ),
        20_000,
    ),
    "builtin": Suite(("demo",), ("bounce_16", "track_7"), 0),
}


def find(name: str, blocks: Blocks) -> Suite:
    """A suite by name; a block of settings is one as well, with its own task."""
    if name in OWN:
        return OWN[name]
    if name in PUBLISHED:
        curves, budget = PUBLISHED[name]
        known = {each.name: each for each in published.load()}
        return Suite((name,), tuple(known[curves].tasks), budget)
    if name in blocks.presets:
        task = blocks.presets[name].get("task", blocks.defaults["task"])
        return Suite((name,), (str(task),), 0)
    names = [*PUBLISHED, *OWN]
    near = config.nearest(name, [*names, *blocks.presets])
    remedy = f"did you mean {' or '.join(near)}? " if near else ""
    remedy += f"suites: {', '.join(names)}, or a block of settings"
    raise ConfigError([Problem("suite", name, "there is no such suite", remedy)])
