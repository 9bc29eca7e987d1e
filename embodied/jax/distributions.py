"""Distributions that heads return: `pred`, `sample`, `logp`, `entropy` and `loss`.

Samples are functions of uniform noise, so that all randomness of a sequence can be
drawn at once, outside of any loop over time. Everything here is float32.
"""

from __future__ import annotations

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .kernels.rows import log_softmax, logsumexp, softmax
from .numerics import check_float, symlog

Noise = Array  # Uniform in the open interval (0, 1).


def sum_event(x: Array, dims: int) -> Array:
    """Sum over the last `dims` dimensions."""
    return x.sum(tuple(range(-dims, 0))) if dims else x


def choose(probs: Float[Array, "*S C"], u: Float[Array, "*S"]) -> Int[Array, "*S"]:
    """Invert the cumulative distribution at `u`: count the bounds at or below it."""
    upper = jnp.asarray(np.triu(np.ones(2 * probs.shape[-1:], np.float32)))
    bounds = jnp.matmul(probs, upper, precision=jax.lax.Precision.HIGHEST)
    level = u[..., None] * bounds[..., -1:]
    return (level >= bounds[..., :-1]).sum(-1, dtype=jnp.int32)


class Distribution(eqx.Module):
    """What a head predicts. `loss` is the negative log-likelihood unless it says so."""

    @abc.abstractmethod
    def pred(self) -> Array:
        """The deterministic prediction."""

    @abc.abstractmethod
    def loss(self, target: Array) -> Array:
        """The training loss for a target, summed over the event dimensions."""


class Policy(Distribution):
    """A distribution that actions are drawn from."""

    @abc.abstractmethod
    def sample(self, u: Noise) -> Array:
        """A sample as a function of uniform noise of the event's shape."""

    @abc.abstractmethod
    def logp(self, event: Array) -> Array:
        """Log-probability of an event, summed over the event dimensions."""

    @abc.abstractmethod
    def entropy(self) -> Array:
        """Entropy, summed over the event dimensions."""

    def loss(self, target: Array) -> Array:
        return -self.logp(target)


def mixed_log_probs(logits: Array, unimix: float) -> tuple[Array, Array]:
    """log p and p of softmax(logits) with a share `unimix` of the uniform."""
    logits = logits.astype(jnp.float32)
    if not unimix:
        logp = log_softmax(logits)
        return logp, jnp.exp(logp)
    probs = (1 - unimix) * softmax(logits) + unimix / logits.shape[-1]
    return jnp.log(probs), probs


class Categorical(Policy):
    """Integers with probabilities softmax(logits), `dims` event dimensions."""

    log_probs: Float[Array, "*S C"]
    probs: Float[Array, "*S C"]
    dims: int = eqx.field(static=True)

    def __init__(self, logits: Array, dims: int = 0, unimix: float = 0.0):
        self.log_probs, self.probs = mixed_log_probs(logits, unimix)
        self.dims = dims

    def pred(self) -> Int[Array, "*S"]:
        return self.log_probs.argmax(-1).astype(jnp.int32)

    def sample(self, u: Noise) -> Int[Array, "*S"]:
        return choose(self.probs, u)

    def logp(self, event: Int[Array, "*S"]) -> Array:
        onehot = jax.nn.one_hot(event, self.probs.shape[-1], dtype=jnp.float32)
        return sum_event((onehot * self.log_probs).sum(-1), self.dims)

    def entropy(self) -> Array:
        return sum_event(-(self.probs * self.log_probs).sum(-1), self.dims)


class OneHot(Policy):
    """Latents [..., L, C] of one-hot vectors with straight-through gradients."""

    log_probs: Float[Array, "*S L C"]
    probs: Float[Array, "*S L C"]

    def __init__(self, logits: Float[Array, "*S L C"], unimix: float = 0.0):
        self.log_probs, self.probs = mixed_log_probs(logits, unimix)

    def pred(self) -> Float[Array, "*S L C"]:
        return self._onehot(self.probs.argmax(-1))

    def sample(self, u: Noise) -> Float[Array, "*S L C"]:
        return self._onehot(choose(jax.lax.stop_gradient(self.probs), u))

    def logp(self, event: Float[Array, "*S L C"]) -> Array:
        return (event * self.log_probs).sum((-2, -1))

    def entropy(self) -> Array:
        return -(self.probs * self.log_probs).sum((-2, -1))

    def kl(self, other: OneHot) -> Array:
        """KL(self ‖ other) = Σ p (ln p - ln q), summed over the latents."""
        return (self.probs * (self.log_probs - other.log_probs)).sum((-2, -1))

    def _onehot(self, index: Array) -> Array:
        onehot = jax.nn.one_hot(index, self.probs.shape[-1], dtype=jnp.float32)
        return onehot + (self.probs - jax.lax.stop_gradient(self.probs))


class BoundedNormal(Policy):
    """Normal with mean tanh(m) and stddev (hi - lo) sigmoid(s + 2) + lo."""

    mean: Float[Array, "*S"]
    stddev: Float[Array, "*S"]
    dims: int = eqx.field(static=True)

    def __init__(self, mean: Array, stddev: Array, lo: float, hi: float, dims: int = 0):
        self.mean = jnp.tanh(mean.astype(jnp.float32))
        self.stddev = (hi - lo) * jax.nn.sigmoid(stddev.astype(jnp.float32) + 2) + lo
        self.dims = dims

    def pred(self) -> Float[Array, "*S"]:
        return self.mean

    def sample(self, u: Noise) -> Float[Array, "*S"]:
        normal = np.sqrt(2).astype(np.float32) * jax.lax.erf_inv(2 * u - 1)
        return self.mean + self.stddev * normal

    def logp(self, event: Float[Array, "*S"]) -> Array:
        z = (event - self.mean) / self.stddev
        logp = -0.5 * z**2 - jnp.log(self.stddev) - float(0.5 * np.log(2 * np.pi))
        return sum_event(logp, self.dims)

    def entropy(self) -> Array:
        ent = jnp.log(self.stddev) + float(0.5 * np.log(2 * np.pi * np.e))
        return sum_event(ent, self.dims)


class Binary(Distribution):
    """A probability from a logit; targets may be soft."""

    logit: Float[Array, "*S"]

    def __init__(self, logit: Array):
        self.logit = logit.astype(jnp.float32)

    def pred(self) -> Array:
        return self.logit > 0

    def prob1(self) -> Float[Array, "*S"]:
        """The probability of 1."""
        return jax.nn.sigmoid(self.logit)

    def loss(self, target: Float[Array, "*S"]) -> Array:
        """-t ln p - (1 - t) ln(1 - p) = softplus(x) - t x for p = sigmoid(x)."""
        check_float("target", target)
        return jax.nn.softplus(self.logit) - target * self.logit


class SymlogMSE(Distribution):
    """Squared error in symlog space; `pred` is the raw, squashed network output."""

    mode: Float[Array, "*S"]
    dims: int = eqx.field(static=True)

    def __init__(self, mode: Array, dims: int = 0):
        self.mode = mode.astype(jnp.float32)
        self.dims = dims

    def pred(self) -> Float[Array, "*S"]:
        return self.mode

    def loss(self, target: Float[Array, "*S"]) -> Array:
        error = self.mode - symlog(target.astype(jnp.float32))
        return sum_event(jnp.square(error), self.dims)


class MSE(Distribution):
    """Squared error summed over the event dimensions."""

    mode: Float[Array, "*S"]
    dims: int = eqx.field(static=True)

    def __init__(self, mode: Array, dims: int = 0):
        self.mode = mode.astype(jnp.float32)
        self.dims = dims

    def pred(self) -> Float[Array, "*S"]:
        return self.mode

    def loss(self, target: Float[Array, "*S"]) -> Array:
        check_float("target", target)
        return sum_event(jnp.square(self.mode - target), self.dims)


def symexp_bins(count: int) -> np.ndarray:
    """`count` (odd) bins at symexp(linspace(-20, 20)), exactly symmetric around 0.

    Predictions are sums of terms that cancel to 1e-6 of their size, so how the bins
    are rounded shows in them: the grid is rounded as `jax.numpy.linspace` does it.
    """
    if count % 2 == 0 or count < 3:
        raise ValueError(f"The number of bins must be odd and above 1, got {count}.")
    size = count // 2
    share = np.arange(size + 1, dtype=np.float32) * (np.float32(1) / np.float32(size))
    half = np.float32(-20) * (np.float32(1) - share)
    half = np.sign(half) * np.expm1(np.abs(half))
    return np.concatenate([half, -half[:-1][::-1]]).astype(np.float32)


class TwoHot(Distribution):
    """Symexp-twohot: a softmax over exponentially spaced bins in raw space."""

    logits: Float[Array, "*S N"]

    def __init__(self, logits: Array):
        self.logits = logits.astype(jnp.float32)

    def pred(self) -> Float[Array, "*S"]:
        """Σ p·bin as Σ (p₋ - p₊)·bin₋ over pairs from the outside in.

        So uniform probabilities give exactly 0. A sum of two rounded products would
        not: compilers fuse one of them into the addition. For the same reason this sum
        is not folded, though it would be faster: meshes would round it differently.
        Bins of equal logits cancel exactly, too: XLA's vectorised exp may round equal
        numbers differently at the end of a row, and the outermost bins are 5e8.
        """
        bins = symexp_bins(self.logits.shape[-1])
        mid = len(bins) // 2
        pairs = _pair(softmax(self.logits), mid)
        equal = _pair(self.logits, mid) == 0
        pairs -= jax.lax.stop_gradient(jnp.where(equal, pairs, 0))
        return (pairs * bins[:mid]).sum(-1)

    def loss(self, target: Float[Array, "*S"]) -> Float[Array, "*S"]:
        """Cross-entropy with the two bins around the target, weighted linearly."""
        return self.cross_entropy(self.encode(target), 1.0)

    def cross_entropy(self, weights: Float[Array, "*S N"], total: float) -> Array:
        """-Σ w ln softmax(x) = (Σ w) logsumexp(x) - Σ w x, with `total` = Σ w."""
        return total * logsumexp(self.logits) - (weights * self.logits).sum(-1)

    def encode(self, target: Float[Array, "*S"]) -> Float[Array, "*S N"]:
        """Weights of the bins: the target interpolated between its two neighbours."""
        check_float("target", target)
        bins = symexp_bins(self.logits.shape[-1])
        target = jnp.clip(target, bins[0], bins[-1])[..., None]
        left = np.concatenate([2 * bins[:1], bins[:-1]])
        right = np.concatenate([bins[1:], 2 * bins[-1:]])
        rise = (target - left) * np.float32(1 / (bins - left))
        fall = (right - target) * np.float32(1 / (right - bins))
        return jnp.clip(jnp.minimum(rise, fall), 0, 1)


def _pair(values: Float[Array, "*S N"], mid: int) -> Float[Array, "*S M"]:
    """Differences of the values of each bin and its mirror image."""
    return values[..., :mid] - values[..., mid + 1 :][..., ::-1]
