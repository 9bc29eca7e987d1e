"""The world of the Minecraft suite, described to MineRL 0.4."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from minerl.herobraine.env_specs import obtain_specs
from minerl.herobraine.hero import handlers


class Diamond(obtain_specs.ObtainDiamond):
    """Like MineRL's own task, with the state of the body observed and quick hands.

    Blocks break as many times faster as `break_speed` says, since an agent that acts
    at random would otherwise never break any. Episodes do not end with the diamond.
    """

    def __init__(
        self,
        resolution: tuple[int, ...],
        break_speed: float,
        items: Sequence[str],
        tools: Sequence[str],
    ):
        self._break_speed = break_speed
        self._items, self._tools = list(items), list(tools)
        super().__init__(dense=False, resolution=resolution)
        self.name = "DreamerDiamond-v0"

    def create_observables(self) -> list[Any]:
        return [
            handlers.POVObservation(self.resolution),
            handlers.FlatInventoryObservation(self._items),
            handlers.EquippedItemObservation(
                items=self._tools, _default="air", _other="other"
            ),
            handlers.ObservationFromLifeStats(),
        ]

    def create_agent_start(self) -> list[Any]:
        return [handlers.AgentStartBreakSpeedMultiplier(self._break_speed)]

    def create_agent_handlers(self) -> list[Any]:
        return []

    def create_server_quit_producers(self) -> list[Any]:
        return [handlers.ServerQuitWhenAnyAgentFinishes()]


def create(
    resolution: tuple[int, ...],
    break_speed: float,
    items: Sequence[str],
    tools: Sequence[str],
) -> Any:
    """A MineRL environment with the interface of Gym before version 0.26."""
    return Diamond(resolution, break_speed, items, tools).make()
