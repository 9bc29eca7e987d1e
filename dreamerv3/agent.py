"""The DreamerV3 agent: world model, actor and critic behind the `Agent` contract."""

from __future__ import annotations

from collections.abc import Mapping

from elements import Space

from dreamerv3.model.learning import Dreamer
from dreamerv3.settings.schema import AgentSettings
from embodied import public_names
from embodied.core import base
from embodied.jax import agent, devices, params

public_names.extend(__name__)


class Agent(agent.Agent):
    """DreamerV3 for any mix of image, vector and discrete spaces."""

    def __init__(
        self,
        obs_space: Mapping[str, Space],
        act_space: Mapping[str, Space],
        config: AgentSettings,
    ):
        devices.setup(config.jax)
        dtype = devices.compute_dtype(config.jax.compute_dtype)
        self.obs_space, self.act_space = dict(obs_space), dict(act_space)
        seen = {k: v for k, v in obs_space.items() if not k.startswith(base.LOG_PREFIX)}
        actions = {k: v for k, v in act_space.items() if k != base.RESET}
        super().__init__(Dreamer(seen, actions, config, dtype), config)
        self.dtype = dtype

    def describe(self) -> str:
        """Number of parameters of each module."""
        table = params.describe(self.state.params)
        return f"Parameters ({self.dtype} compute):\n{table}"
