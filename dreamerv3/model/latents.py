"""Latents of the world model, and the form in which the replay stores them; no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from elements import Space

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from dreamerv3.settings.schema import RSSMSettings

DETER, STOCH = "dyn/deter", "dyn/stoch"  # Keys of a stored step.


class Latent(NamedTuple):
    """Recurrent state of the world model."""

    deter: Float[Array, "*B D"]
    stoch: Float[Array, "*B S C"]  # One-hot over the last dimension.


def spaces(rssm: RSSMSettings) -> dict[str, Space]:
    """What is stored with each step, by the settings of an RSSM."""
    return {
        DETER: Space(np.float32, rssm.deter),
        STOCH: Space(_kind(rssm.classes), rssm.stoch, 0, rssm.classes),
    }


def zeros(rssm: RSSMSettings, batch: int) -> Latent:
    """The initial state, as numpy arrays."""
    deter = np.zeros((batch, rssm.deter), np.float32)
    stoch = np.zeros((batch, rssm.stoch, rssm.classes), np.float32)
    return Latent(deter, stoch)  # type: ignore[arg-type]


def pack(latent: Latent) -> dict[str, Array]:
    """Latents as they are stored: class numbers instead of one-hot vectors."""
    index = latent.stoch.argmax(-1).astype(_kind(latent.stoch.shape[-1]))
    return {DETER: latent.deter, STOCH: index}


def unpack(stored: Mapping[str, Array], classes: int) -> Latent:
    """The inverse of `pack`."""
    index = stored[STOCH][..., None].astype(np.int32)
    stoch = (index == np.arange(classes, dtype=np.int32)).astype(np.float32)
    return Latent(stored[DETER].astype(np.float32), stoch)


def _kind(classes: int) -> type[np.integer[Any]]:
    return np.uint8 if classes <= 256 else np.uint16
