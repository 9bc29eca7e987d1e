"""The recurrence of the RSSM as pure functions, and its scan with a fast gradient.

Each linear map of a step is `input @ kernel + shift`: everything that does not depend
on the recurrent state (biases, projections of tokens and actions) is computed for all
time steps at once and enters as `shift`. In the backward pass the cotangents of the
shifts come out of the scan stacked over time, so the gradient of each kernel is one
large matrix product instead of an accumulation at every step. Scales of norms are given
once per sequence and their gradients summed after the scan, so that devices which share
a batch need not talk to each other at every step. What the backward pass multiplies by
is transposed once, before the scan: on CPU a product of few rows with a matrix that is
stored the other way round takes up to eight times as long.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from embodied.jax.distributions import OneHot
from embodied.jax.nets import NORM_EPS, rms_norm
from embodied.jax.products import kernel_grad
from embodied.jax.rows import row_sum, spread_rows


class Latent(NamedTuple):
    """Recurrent state of the world model."""

    deter: Float[Array, "*B D"]
    stoch: Float[Array, "*B S C"]  # One-hot over the last dimension.


class Core(NamedTuple):
    """One array per linear map of the recurrence: kernels, shifts or inputs.

    G groups of K = D/G units.
    """

    deter: Array  # Kernel [D, U].
    stoch: Array  # Kernel [S·C, U].
    mixed: Array  # Kernel [2·U, D]: the two above to the hidden layer.
    block: Array | None  # Kernel [G, K, K]: deter to the same; no own shift.
    more: tuple[Array, ...]  # Kernels [G, K, K] of further hidden layers.
    gates: Array  # Kernel [G, K, 3·K].


class Posterior(NamedTuple):
    """One array per linear map of the posterior: kernels, shifts or inputs."""

    deter: Array  # Kernel [D, U]; the shift holds the projected tokens.
    more: tuple[Array, ...]  # Kernels [U, U].
    logit: Array  # Kernel [U, S·C].


class CoreScales(NamedTuple):
    """Scales of the norms in the recurrence, perhaps one for each sequence."""

    deter: Float[Array, "*B U"]
    stoch: Float[Array, "*B U"]
    hidden: tuple[Float[Array, "*B D"], ...]


class Scales(NamedTuple):
    """Scales of all norms in a step."""

    core: CoreScales
    posterior: tuple[Float[Array, "*B U"], ...]


class Inputs(NamedTuple):
    """What a step is given, [T, B, ...] in a scan."""

    core: Core  # Shifts.
    posterior: Posterior  # Shifts.
    keep: Float[Array, "*B 1"]  # 0 where an episode starts, else 1.
    noise: Float[Array, "*B S"]


class Static(NamedTuple):
    """Constants of a step."""

    stoch: int
    classes: int
    groups: int
    unimix: float
    unroll: int


class Transposed(NamedTuple):
    """A kernel for a scan: what its backward pass multiplies by is there already.

    Only for `rollout`, which finds the gradients of kernels itself: here they are zero.
    """

    kernel: Float[Array, "*G I O"]
    transpose: Float[Array, "*G O I"]


@jax.custom_vjp
def _multiply(x: Float[Array, "*G B I"], pair: Transposed) -> Float[Array, "*G B O"]:
    return jnp.matmul(x, pair.kernel)


def _multiply_forward(x: Array, pair: Transposed) -> tuple[Array, Array]:
    return jnp.matmul(x, pair.kernel), pair.transpose


def _multiply_backward(transpose: Array, dy: Array) -> tuple[Array, None]:
    """The gradient of the input; `_backward` finds those of all kernels at once."""
    return jnp.matmul(dy, transpose), None


_multiply.defvjp(_multiply_forward, _multiply_backward)


def _transpose(kernel: Float[Array, "*G I O"]) -> Transposed:
    return Transposed(kernel, jnp.swapaxes(kernel, -1, -2))


def multiply(
    x: Float[Array, "*G B I"], kernel: Array | Transposed
) -> Float[Array, "*G B O"]:
    """The matrix product with a kernel."""
    return _multiply(x, kernel) if isinstance(kernel, Transposed) else x @ kernel


def activate(x: Float[Array, "*B D"], scale: Float[Array, "*B D"]) -> Array:
    """SiLU of the RMSNorm."""
    return jax.nn.silu(rms_norm(x, scale))


def core_step(
    groups: int, kernels: Core, scales: CoreScales, shifts: Core, latent: Latent
) -> tuple[Float[Array, "B D"], Core]:
    """Block GRU: the next deterministic state, and the inputs of all linear maps.

    deter' = u · tanh(r · cand) + (1 - u) · deter,  r = sigmoid(reset),
    u = sigmoid(update - 1)

    The hidden layers are laid out as [G, B, D/G], so the block-linear maps are
    plain batched matrix products.
    """
    dtype = shifts.deter.dtype
    deter = latent.deter.astype(dtype)
    stoch = latent.stoch.reshape(len(deter), -1).astype(dtype)
    x0 = activate(multiply(deter, kernels.deter) + shifts.deter, scales.deter)
    x1 = activate(multiply(stoch, kernels.stoch) + shifts.stoch, scales.stoch)
    mixed = jnp.concatenate([x0, x1], -1)
    assert kernels.block is not None
    state, hidden = to_groups(deter, groups), multiply(mixed, kernels.mixed)
    hidden = to_groups(hidden + shifts.mixed, groups) + multiply(state, kernels.block)
    hidden = activate_groups(hidden, scales.hidden[0])
    inners = []
    for kernel, scale, shift in zip(
        kernels.more, scales.hidden[1:], shifts.more, strict=True
    ):
        inners.append(hidden)
        hidden = multiply(hidden, kernel) + to_groups(shift, groups)
        hidden = activate_groups(hidden, scale)
    gates = multiply(hidden, kernels.gates) + to_groups(shifts.gates, groups)
    inputs = Core(deter, stoch, mixed, state, tuple(inners), hidden)
    return from_groups(_gru(gates, to_groups(latent.deter, groups))), inputs


def _gru(
    gates: Float[Array, "G B 3*K"], deter: Float[Array, "G B K"]
) -> Float[Array, "G B K"]:
    reset, cand, update = jnp.split(gates.astype(jnp.float32), 3, -1)
    cand = jnp.tanh(jax.nn.sigmoid(reset) * cand)
    update = jax.nn.sigmoid(update - 1)
    return update * cand + (1 - update) * deter


def to_groups(x: Float[Array, "*B D"], groups: int) -> Float[Array, "G B K"]:
    """Split features into groups, which become the first dimension."""
    if x.ndim == 1:
        return x.reshape(groups, 1, -1)
    return jnp.moveaxis(x.reshape(len(x), groups, -1), 1, 0)


def from_groups(x: Float[Array, "G B K"]) -> Float[Array, "B D"]:
    """The inverse of `to_groups`."""
    return jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1)


def activate_groups(
    x: Float[Array, "G B K"], scale: Float[Array, "*B D"]
) -> Float[Array, "G B K"]:
    """`activate` over all groups together."""
    wide = x.astype(jnp.float32)
    groups, _, size = x.shape
    power = row_sum(jnp.square(wide)).sum(0) / (groups * size)
    inverse = spread_rows(jax.lax.rsqrt(power + NORM_EPS), size)
    wide = wide * (inverse * to_groups(scale, groups))
    return jax.nn.silu(wide.astype(x.dtype))


def posterior_step(
    kernels: Posterior,
    scales: tuple[Array, ...],
    shifts: Posterior,
    deter: Float[Array, "*B D"],
) -> tuple[Float[Array, "*B L"], Posterior]:
    """Flat logits of the posterior, and the inputs of all linear maps."""
    deter = deter.astype(shifts.deter.dtype)
    x = activate(multiply(deter, kernels.deter) + shifts.deter, scales[0])
    inners = []
    for kernel, scale, shift in zip(kernels.more, scales[1:], shifts.more, strict=True):
        inners.append(x)
        x = activate(multiply(x, kernel) + shift, scale)
    logit = multiply(x, kernels.logit) + shifts.logit
    return logit.astype(jnp.float32), Posterior(deter, tuple(inners), x)


def observe_step(
    static: Static,
    kernels: tuple[Core, Posterior],
    scales: Scales,
    latent: Latent,
    given: Inputs,
) -> tuple[Latent, Array, tuple[Core, Posterior]]:
    """One step with an observation: next latent, posterior logits, map inputs."""
    keep = given.keep
    latent = Latent(latent.deter * keep, latent.stoch * keep[..., None])
    deter, core = core_step(static.groups, kernels[0], scales.core, given.core, latent)
    logit, posterior = posterior_step(
        kernels[1], scales.posterior, given.posterior, deter
    )
    logit = logit.reshape((*logit.shape[:-1], static.stoch, static.classes))
    stoch = OneHot(logit, static.unimix).sample(given.noise)
    return Latent(deter, stoch), logit, (core, posterior)


def _scan(
    static: Static, kernels: Any, scales: Scales, start: Latent, given: Inputs
) -> tuple[tuple[Latent, Array], Any]:
    """Latents and logits [T, B, ...], and as auxiliary output the map inputs."""

    def step(latent: Latent, given: Inputs) -> tuple[Latent, Any]:
        latent, logit, maps = observe_step(static, kernels, scales, latent, given)
        return latent, ((latent, logit), maps)

    return jax.lax.scan(step, start, given, unroll=static.unroll)[1]


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def rollout(
    static: Static,
    kernels: tuple[Core, Posterior],
    scales: Scales,
    start: Latent,
    given: Inputs,
) -> tuple[Latent, Array]:
    """Latents and posterior logits [T, B, ...] of an observed sequence."""
    return _scan(static, kernels, scales, start, given)[0]


def _forward(
    static: Static, kernels: Any, scales: Scales, start: Latent, given: Inputs
) -> tuple[Any, Any]:
    pairs = jax.tree.map(_transpose, kernels)
    batch = len(start.deter)
    rows = jax.tree.map(lambda x: jnp.broadcast_to(x, (batch, *x.shape)), scales)

    def run(scales: Scales, start: Latent, given: Inputs) -> Any:
        return _scan(static, pairs, scales, start, given)

    outs, pullback, maps = jax.vjp(run, rows, start, given, has_aux=True)
    return outs, (pullback, maps)


def _backward(static: Static, residuals: Any, cotangents: Any) -> Any:
    pullback, (core, post) = residuals
    rows, start, given = pullback(cotangents)
    scales = jax.tree.map(lambda x: x.sum(0), rows)
    dcore, dpost = given.core, given.posterior
    grouped = partial(_grouped, static.groups)
    kernels = (
        Core(
            deter=kernel_grad(core.deter, dcore.deter),
            stoch=kernel_grad(core.stoch, dcore.stoch),
            mixed=kernel_grad(core.mixed, dcore.mixed),
            block=grouped(core.block, dcore.mixed),
            more=tuple(map(grouped, core.more, dcore.more)),
            gates=grouped(core.gates, dcore.gates),
        ),
        Posterior(
            deter=kernel_grad(post.deter, dpost.deter),
            more=tuple(map(kernel_grad, post.more, dpost.more)),
            logit=kernel_grad(post.logit, dpost.logit),
        ),
    )
    return kernels, scales, start, given


def _grouped(
    groups: int, x: Float[Array, "T G B I/G"], dy: Float[Array, "T B O"]
) -> Float[Array, "G I/G O/G"]:
    """Gradient of a block kernel: Σ x_gᵀ dy_g over time and batch."""
    dy = dy.reshape((*dy.shape[:2], groups, -1))
    return jnp.einsum("tgbi,tbgo->gio", x, dy)


rollout.defvjp(_forward, _backward)
