"""The report: open-loop predictions as videos and error curves, gradient norms."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, UInt8

from dreamerv3.model import imagination
from dreamerv3.model.latents import Latent
from dreamerv3.model.networks import Networks
from embodied.jax.distributions import MSE, Categorical, Distribution
from embodied.jax.numerics import symlog

SEQUENCES = 6  # At most this many next to each other.
BORDER = 2  # Pixels around each sequence.
PAUSE = 10  # Times the last frame is repeated, so that the end of a loop is seen.
GREEN, RED = (0, 255, 0), (255, 0, 0)
Metrics = dict[str, Array]


def open_loop(
    params: Networks,
    start: Latent,
    obs: Mapping[str, Array],
    prevact: Float[Array, "B T A"],
    noise: Float[Array, "B T S"],
) -> dict[str, Distribution]:
    """Predictions [B, T, ...]: the first half observed, the rest imagined."""
    half = prevact.shape[1] // 2
    tokens = params.enc({k: v[:, :half] for k, v in obs.items()})
    seen, _ = params.dyn.observe(
        start, tokens, prevact[:, :half], obs["is_first"][:, :half], noise[:, :half]
    )
    last = Latent(seen.deter[:, -1], seen.stoch[:, -1])
    later = (jnp.swapaxes(x[:, half:], 0, 1) for x in (noise, prevact))
    dreamt = imagination.replay_actions(params, last, *later)
    deter = jnp.concatenate([seen.deter, dreamt.deter], 1)
    stoch = jnp.concatenate([seen.stoch, dreamt.stoch], 1)
    return params.dec(deter, stoch)


def summarize(
    dists: Mapping[str, Distribution], obs: Mapping[str, Array], observed: int
) -> Metrics:
    """A video per image, and for other keys a curve [T] of the error and its means."""
    metrics: Metrics = {}
    for key, dist in sorted(dists.items()):
        if isinstance(dist, MSE):
            seen = jnp.arange(obs[key].shape[1]) < observed
            metrics[f"openloop/{key}"] = video(obs[key], dist.pred(), seen)
            truth = obs[key].astype(jnp.float32) / 255
            error = jnp.abs(dist.pred() - truth).mean((0, 2, 3, 4))
        else:
            error = error_curve(dist, obs[key])
            metrics[f"openloop_curve/{key}"] = error
        metrics[f"openloop_error/{key}_observed"] = error[:observed].mean()
        metrics[f"openloop_error/{key}_imagined"] = error[observed:].mean()
    return metrics


def gradient_norms(losses: Callable[[Networks], Metrics], params: Networks) -> Metrics:
    """Norm of the gradient of each loss."""
    values, pullback = jax.vjp(losses, params)
    norms = {}
    for name in values:
        one = {k: jnp.float32(k == name) for k in values}
        norms[f"gradnorm/{name}"] = optax.tree.norm(pullback(one)[0])
    return norms


def error_curve(dist: Distribution, truth: Array) -> Float[Array, " T"]:
    """Mean absolute error in symlog space, or share of wrong classes, per step."""
    if isinstance(dist, Categorical):
        error = (dist.pred() != truth.astype(jnp.int32)).astype(jnp.float32)
    else:
        error = jnp.abs(dist.pred() - symlog(truth.astype(jnp.float32)))
    return error.reshape((*error.shape[:2], -1)).mean((0, 2))


def video(
    truth: UInt8[Array, "B T H W C"],
    pred: Float[Array, "B T H W C"],
    observed: Bool[Array, " T"],
) -> UInt8[Array, "T2 H2 W2 3"]:
    """Rows truth, prediction and (pred - truth + 255) / 2, sequences side by side.

    The border of each sequence is green while it is observed and red afterwards.
    """
    real = truth.astype(jnp.float32) / 255
    rows = jnp.concatenate([real, pred, (pred - real + 1) / 2], 2)
    frames = (jnp.clip(colored(rows), 0, 1) * 255).astype(jnp.uint8)
    edge = ((0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER), (0, 0))
    inside = jnp.pad(jnp.ones(frames.shape[2:4], bool), BORDER)
    colors = jnp.where(
        observed[:, None], np.array(GREEN, np.uint8), np.array(RED, np.uint8)
    )
    frames = jnp.where(
        inside[None, None, :, :, None],
        jnp.pad(frames, edge),
        colors[None, :, None, None, :],
    )
    pause = ((0, 0), (0, PAUSE), (0, 0), (0, 0), (0, 0))
    frames = jnp.pad(frames, pause, mode="edge")
    batch, steps, height, width, channels = frames.shape
    frames = jnp.moveaxis(frames, 0, 2)
    return frames.reshape(steps, height, batch * width, channels)


def colored(image: Float[Array, "*B C"]) -> Float[Array, "*B 3"]:
    """Three channels: as they are, or the mean of any other number of them."""
    if image.shape[-1] == 3:
        return image
    gray = image.mean(-1, keepdims=True)
    return jnp.broadcast_to(gray, (*image.shape[:-1], 3))
