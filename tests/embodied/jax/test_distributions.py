"""Sampling: frequencies, gradients and bounds."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import distributions as dists


def test_choose_has_the_right_frequencies():
    probs = np.array([0.1, 0.0, 0.6, 0.3], np.float32)
    u = (np.arange(10000, dtype=np.float32) + 0.5) / 10000
    index = dists.choose(jnp.broadcast_to(probs, (10000, 4)), u)
    np.testing.assert_allclose(np.bincount(index, minlength=4) / 1e4, probs, atol=1e-3)


def test_samples_are_one_hot_with_straight_through_gradients():
    logits = jnp.asarray(np.random.default_rng(0).normal(size=(5, 3, 4)), jnp.float32)
    u = jnp.full((5, 3), 0.3)
    sample = dists.OneHot(logits, 0.01).sample(u)
    np.testing.assert_array_equal(np.sort(sample, -1)[..., -1], 1)
    np.testing.assert_array_equal(sample.sum(-1), 1)
    weight = jnp.arange(4, dtype=jnp.float32)
    through = jax.grad(lambda x: (dists.OneHot(x, 0.01).sample(u) * weight).sum())(
        logits
    )
    direct = jax.grad(lambda x: (dists.OneHot(x, 0.01).probs * weight).sum())(logits)
    np.testing.assert_allclose(through, direct, atol=1e-6)


def test_a_uniform_share_keeps_every_action_possible():
    logits = jnp.array([50.0, 0.0, 0.0, 0.0])
    plain, mixed = dists.Categorical(logits), dists.Categorical(logits, unimix=0.01)
    assert plain.probs[1] < 1e-6
    np.testing.assert_allclose(mixed.probs, [0.9925, 0.0025, 0.0025, 0.0025], rtol=1e-5)
    np.testing.assert_allclose(mixed.logp(1), np.log(0.0025), rtol=1e-5)
    u = (np.arange(10000, dtype=np.float32) + 0.5) / 10000
    many = dists.Categorical(jnp.broadcast_to(logits, (10000, 4)), unimix=0.01)
    counts = np.bincount(many.sample(u), minlength=4)
    np.testing.assert_allclose(counts / 1e4, mixed.probs, atol=1e-3)


def test_normal_samples_are_finite_at_the_ends_of_the_noise():
    dist = dists.BoundedNormal(jnp.zeros(2), jnp.zeros(2), 0.1, 1.0)
    sample = dist.sample(jnp.array([2**-24, 1 - 2**-24], jnp.float32))
    assert np.isfinite(sample).all()
    assert sample[0] < -3 < 3 < sample[1]


def test_twohot_encodes_linearly_in_raw_space():
    dist = dists.TwoHot(jnp.zeros((4, 255)))
    target = jnp.array([0.0, 0.5, -1234.5, 1e9], jnp.float32)
    weights = np.asarray(dist.encode(target), np.float64)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
    assert ((weights > 0).sum(-1) <= 2).all()
    bins = dists.symexp_bins(255).astype(np.float64)
    np.testing.assert_allclose((weights * bins).sum(-1)[:3], target[:3], rtol=1e-5)
    np.testing.assert_allclose(weights[3, -1], 1)


def test_even_number_of_bins_is_refused():
    with pytest.raises(ValueError, match="odd"):
        dists.symexp_bins(254)
    with pytest.raises(ValueError, match="odd"):
        dists.TwoHot(jnp.zeros((3, 254))).pred()


@pytest.mark.golden
@pytest.mark.parametrize("scale", [1e-3, 1.0, 10.0])
def test_bins_of_equal_logits_cancel_exactly(scale):
    """As those of a critic that has learned little, whose outermost bins are 5e8."""
    half = np.random.default_rng(0).normal(0, scale, (64, 127)).astype(np.float32)
    middle = np.zeros((64, 1), np.float32)
    logits = np.concatenate([half, middle, half[:, ::-1]], -1)

    def pred(logits):
        return dists.TwoHot(logits).pred()

    assert not np.asarray(jax.jit(pred)(logits)).any()
    probs = np.asarray(dists.softmax(jnp.asarray(logits)))
    grads = jax.grad(lambda x: pred(x).sum())(logits)
    expected = probs * dists.symexp_bins(255)
    np.testing.assert_allclose(grads, expected, rtol=1e-4, atol=1e-6 * expected.max())
