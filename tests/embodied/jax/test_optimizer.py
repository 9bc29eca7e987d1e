"""The optimiser treats each tensor by itself, however it arranges them."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from embodied.jax import optimizer

SHAPES = {
    "bias": (7,),
    "kernel": (30, 40),
    "square": (32, 32),  # Just a row.
    "conv": (3, 3, 5, 8),
    "one": (),
}
# Of the gradients; some are clipped.
SCALES = {"bias": 1e-3, "kernel": 10.0, "square": 1e-2, "conv": 1.0, "one": 5.0}
OPTIONS = {"lr": 0.1, "agc": 0.3, "eps": 1e-20, "beta1": 0.9, "beta2": 0.99}


def update_alone(param, grads):
    """LaProp with adaptive clipping of one tensor in float64, update by update."""
    param, mu, nu = np.asarray(param, np.float64), 0.0, 0.0
    for step, grad in enumerate(np.asarray(grads, np.float64), 1):
        bound = OPTIONS["agc"] * max(1e-3, np.linalg.norm(param))
        grad = grad * min(1.0, bound / max(np.linalg.norm(grad), 1e-30))
        nu = OPTIONS["beta2"] * nu + (1 - OPTIONS["beta2"]) * grad**2
        scaled = grad / (np.sqrt(nu / (1 - OPTIONS["beta2"] ** step)) + OPTIONS["eps"])
        mu = OPTIONS["beta1"] * mu + (1 - OPTIONS["beta1"]) * scaled
        param = param - OPTIONS["lr"] * mu / (1 - OPTIONS["beta1"] ** step)
    return param


@pytest.mark.parametrize("largest", [-1, 100, 400, 2000])
def test_tensors_are_clipped_and_updated_one_by_one(monkeypatch, largest):
    """With none, some and all of them in rows; some fill a row, some do not."""
    monkeypatch.setattr(optimizer, "MAX_PACKED", largest)
    rng = np.random.default_rng(0)
    params = {k: rng.normal(size=v).astype(np.float32) for k, v in SHAPES.items()}
    grads = {
        k: SCALES[k] * rng.normal(size=(3, *v)).astype(np.float32)
        for k, v in SHAPES.items()
    }
    opt = optimizer.laprop(**OPTIONS, warmup=0)
    state, now = opt.init(params), params
    update = jax.jit(opt.update)
    for step in range(3):
        before = now
        updates, state = update({k: v[step] for k, v in grads.items()}, state, now)
        now = optax.apply_updates(now, updates)
    for key in SHAPES:
        expected = update_alone(params[key], grads[key])
        np.testing.assert_allclose(now[key], expected, rtol=1e-4, atol=1e-5)
    last = {k: v[-1] for k, v in grads.items()}
    for total, tree in ((state[0].grads, last), (state[0].params, before)):
        flat = np.concatenate([np.ravel(x) for x in tree.values()])
        np.testing.assert_allclose(total, np.linalg.norm(flat), rtol=1e-5)


def test_a_gradient_of_zero_stays_zero():
    params = {"bias": jnp.ones(5)}
    opt = optimizer.laprop(**OPTIONS, warmup=0)
    updates, _ = opt.update({"bias": jnp.zeros(5)}, opt.init(params), params)
    np.testing.assert_array_equal(updates["bias"], np.zeros(5))


def test_an_overflow_stays_in_its_tensor():
    params = {k: jnp.ones(v) for k, v in SHAPES.items()}
    grads = {k: jnp.full(v, 1e-3) for k, v in SHAPES.items()}
    opt = optimizer.laprop(**OPTIONS, warmup=0)
    state = opt.init(params)
    expected, _ = opt.update(grads, state, params)
    grads["kernel"] *= 1e25  # Its square is too large for a float32.
    updates, (clip, *_) = opt.update(grads, state, params)
    for key in set(SHAPES) - {"kernel"}:
        np.testing.assert_array_equal(updates[key], expected[key])
    np.testing.assert_array_equal(updates["kernel"], np.zeros(SHAPES["kernel"]))
    assert np.isinf(clip.grads)
