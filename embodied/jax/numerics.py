"""Pure functions of arrays: squashing, returns, percentiles and their checks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def check_rank(name: str, x: Array, rank: int) -> None:
    """Raise unless `x` has `rank` dimensions."""
    if x.ndim != rank:
        raise ValueError(f"{name} has shape {x.shape}; expected rank {rank}.")


def check_float(name: str, x: Array) -> None:
    """Raise unless `x` has a floating point dtype."""
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise TypeError(f"{name} has dtype {x.dtype}; expected a float.")


def check_same(**arrays: Array) -> None:
    """Raise unless all arrays have the same shape."""
    if len({x.shape for x in arrays.values()}) > 1:
        shapes = {name: x.shape for name, x in arrays.items()}
        raise ValueError(f"Shapes differ: {shapes}.")


def symlog(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """symlog(x) = sign(x) ln(|x| + 1)."""
    check_float("x", x)
    return jnp.sign(x) * jnp.log1p(jnp.abs(x))


def symexp(x: Float[Array, "*S"]) -> Float[Array, "*S"]:
    """symexp(x) = sign(x) (exp(|x|) - 1), the inverse of symlog."""
    check_float("x", x)
    return jnp.sign(x) * jnp.expm1(jnp.abs(x))


def _backward(
    reward: Float[Array, "B T"], decay: Float[Array, "B T"], last: Float[Array, " B"]
) -> Float[Array, "B T"]:
    """R_t = reward_t + decay_t R_{t+1} with R_T = last."""

    def step(ret: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
        r_t, d_t = inputs
        ret = r_t + d_t * ret
        return ret, ret

    # Unrolled as far as imagination goes by default.
    _, ret = jax.lax.scan(step, last, (reward.T, decay.T), reverse=True, unroll=15)
    return ret.T


def lambda_return(
    r_t: Float[Array, "B T"],
    c_t: Float[Array, "B T"],
    v_t: Float[Array, "B T"],
    lam: float,
) -> Float[Array, "B T-1"]:
    """λ-return of an imagined sequence; `c_t` holds the discount.

    R_t = r_{t+1} + c_{t+1} ((1 - λ) v_{t+1} + λ R_{t+1}),  R_T = v_T
    """
    check_rank("r_t", r_t, 2)
    check_same(r_t=r_t, c_t=c_t, v_t=v_t)
    r_t, c_t, v_t = r_t[:, 1:], c_t[:, 1:], v_t[:, 1:]
    return _backward(r_t + c_t * (1 - lam) * v_t, c_t * lam, v_t[:, -1])


def replay_return(
    last: Bool[Array, "B T"],
    term: Bool[Array, "B T"],
    r_t: Float[Array, "B T"],
    boot: Float[Array, "B T"],
    disc: float,
    lam: float,
) -> Float[Array, "B T-1"]:
    """λ-return of a replayed sequence, bootstrapped from `boot` at every step.

    R_t = r_{t+1} + live_{t+1} ((1 - cont_{t+1}) boot_{t+1} + cont_{t+1} R_{t+1})
    live = (1 - term) disc,  cont = (1 - last) λ,  R_T = boot_T
    """
    check_rank("r_t", r_t, 2)
    check_same(last=last, term=term, r_t=r_t, boot=boot)
    live = (1 - term.astype(r_t.dtype))[:, 1:] * disc
    cont = (1 - last.astype(r_t.dtype))[:, 1:] * lam
    r_t, boot = r_t[:, 1:], boot[:, 1:]
    return _backward(r_t + live * (1 - cont) * boot, live * cont, boot[:, -1])


def percentiles(
    x: Float[Array, "*S"], lo: float, hi: float
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The `lo`-th and `hi`-th percentile of all elements, linearly interpolated."""
    check_float("x", x)
    low, high = jnp.percentile(x.reshape(-1), jnp.array([lo, hi], jnp.float32))
    return low, high
