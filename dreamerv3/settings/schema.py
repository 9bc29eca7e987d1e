"""Types of all settings, so that mypy rejects a misspelt read.

At run time settings are an `elements.Config`, as users make and pass it. These classes
only say what is in it, and `configs.yaml` has meanings and defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from embodied.jax import settings
from embodied.jax.settings import JaxSettings
from embodied.run.settings import RaySettings, RunBlock

Options = Mapping[str, Any]  # Arguments of a constructor or function.


class Block(Protocol):
    """Settings that are read by name and also handed on as a mapping."""

    def keys(self) -> Iterable[str]: ...
    def __getitem__(self, key: str, /) -> Any: ...


class RSSMSettings(Block, Protocol):
    """Sizes of the world model."""

    deter: int
    hidden: int
    stoch: int
    classes: int
    blocks: int
    unimix: float
    imglayers: int
    obslayers: int
    dynlayers: int
    free_nats: float
    unroll: int


class EncSettings(Protocol):
    """The encoders."""

    simple: Options


class DynSettings(Protocol):
    """The world models."""

    rssm: RSSMSettings


class DecSettings(Protocol):
    """The decoders."""

    simple: Options


class HeadSettings(Protocol):
    """A head on the latents."""

    layers: int
    units: int
    outscale: float


class TwoHotSettings(HeadSettings, Protocol):
    """A head that predicts a number by classes."""

    bins: int


class PolicySettings(HeadSettings, Protocol):
    """The policy head."""

    minstd: float
    maxstd: float
    unimix: float


class SlowSettings(Protocol):
    """A moving average of parameters."""

    rate: float
    every: int


class ModelSettings(Protocol):
    """What the model reads of the block `agent`."""

    imag_length: int
    imag_starts: int
    horizon: int
    report_gradnorms: bool
    enc: EncSettings
    dyn: DynSettings
    dec: DecSettings
    rewhead: TwoHotSettings
    conhead: HeadSettings
    policy: PolicySettings
    value: TwoHotSettings
    slowvalue: SlowSettings
    retnorm: Options
    loss_scales: Mapping[str, float]
    imag_loss: Options
    repl_loss: Options
    opt: Options


class AgentBlock(ModelSettings, Block, Protocol):
    """The block `agent`."""

    eval_mode: str
    finite_check: bool


class AgentSettings(ModelSettings, settings.AgentSettings, Protocol):
    """What `Agent` takes: the block `agent` and what stands beside it."""

    replay_context: int


class ReplaySettings(Protocol):
    """The block `replay`."""

    size: int
    online: bool
    chunksize: int
    compress: bool
    source: str
    memory: int
    fracs: Mapping[str, float]
    priority: Options
    recency: Options


class LoggerSettings(Protocol):
    """The block `logger`."""

    outputs: Sequence[str]
    filter: str
    live: str
    fps: int
    report: bool
    wandb: Options
    mlflow: Options
    expa: Options


class Settings(Block, Protocol):
    """All settings."""

    script: str
    task: str
    logdir: str
    seed: int
    method: str
    replica: int
    random_agent: bool
    consec_train: int
    consec_report: int
    launcher: str
    batch_size: int
    batch_length: int
    report_length: int
    replay_context: int
    run: RunBlock
    ray: RaySettings
    env: Mapping[str, Options]
    replay: ReplaySettings
    logger: LoggerSettings
    jax: JaxSettings
    agent: AgentBlock

    @property
    def flat(self) -> dict[str, Any]:
        """Values by dotted key."""

    def update(self, **changes: Any) -> Settings:
        """The same with other values."""
