"""Numerics of `embodied.jax` against golden numbers, jitted and not."""

from __future__ import annotations

import pathlib
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import distributions as dists
from embodied.jax import nets, normalizers, numerics, optimizer

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
pytestmark = pytest.mark.golden


def load(name: str) -> dict:
    with np.load(GOLDEN / f"{name}.npz") as data:
        return {
            k: v if v.shape or v.dtype.kind != "f" else float(v)
            for k, v in data.items()
        }


def close(actual, desired, tol=1e-5):
    np.testing.assert_allclose(actual, desired, rtol=tol, atol=tol)


@pytest.fixture(params=["jit", "plain"])
def run(request):
    """Evaluate `fn(*arrays)` compiled or op by op."""
    return jax.jit if request.param == "jit" else lambda fn: fn


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


def test_symlog(run):
    g = load("symlog")
    close(run(numerics.symlog)(g["x"]), g["symlog"])
    close(run(numerics.symexp)(g["symexp_in"]), g["symexp"])


def test_twohot(run):
    g = load("twohot")
    close(dists.symexp_bins(255), g["bins"])
    close(
        run(lambda x, t: dists.TwoHot(x).loss(t))(g["logits"], g["target"]), g["loss"]
    )
    close(run(lambda x: dists.TwoHot(x).pred())(g["logits"]), g["pred"])


def test_zero_twohot_predicts_exactly_zero(run):
    pred = run(lambda x: dists.TwoHot(x).pred())(np.zeros((3, 255), np.float32))
    np.testing.assert_array_equal(pred, 0.0)


def test_onehot_unimix(run):
    g = load("onehot_unimix")

    def fn(logits, other, event):
        one, two = (dists.OneHot(x, g["unimix"]) for x in (logits, other))
        return one.kl(two), one.entropy(), one.logp(event)

    kl, entropy, logp = run(fn)(g["logits"], g["other"], g["event"])
    close(kl, g["kl"])
    close(entropy, g["entropy"])
    close(logp, g["logp"])


def test_categorical(run):
    g = load("categorical")

    def fn(logits, event):
        dist = dists.Categorical(logits)
        return dist.logp(event), dist.entropy()

    logp, entropy = run(fn)(g["logits"], g["event"].astype(np.int32))
    close(logp, g["logp"])
    close(entropy, g["entropy"])


def test_bounded_normal(run):
    g = load("bounded_normal")

    def fn(mean, std, event):
        dist = dists.BoundedNormal(mean, std, g["minstd"], g["maxstd"], dims=1)
        return dist.stddev, dist.pred(), dist.logp(event), dist.entropy()

    outs = run(fn)(g["mean_preact"], g["std_preact"], g["event"])
    for name, value in zip(("stddev", "pred", "logp", "entropy"), outs, strict=True):
        close(value, g[name])


def test_binary(run):
    g = load("binary")
    close(run(lambda x, t: dists.Binary(x).loss(t))(g["logit"], g["target"]), g["loss"])
    close(run(lambda x: dists.Binary(x).prob1())(g["logit"]), g["prob1"])


def test_lambda_return(run):
    g = load("lambda_return")
    fn = partial(numerics.replay_return, disc=g["disc"], lam=g["lam"])
    close(run(fn)(g["last"], g["term"], g["rew"], g["boot"]), g["ret"])


def test_percentile_normalizer(run):
    g = load("percentile_normalizer")
    fn = partial(normalizers.update_range, rate=g["rate"], perclo=5.0, perchi=95.0)
    state = normalizers.init_range()
    for x, (offset, scale) in zip(g["x"], g["offset_scale"], strict=True):
        state = run(fn)(state, x)
        close(state.lo, offset)
        close(state.scale(g["limit"]), scale)


def test_rms_norm(run):
    g = load("rmsnorm")
    close(run(partial(nets.rms_norm, eps=g["eps"]))(g["x"], g["scale"]), g["y"])


def test_block_linear(run):
    g = load("block_linear")
    close(run(nets.block_linear)(g["x"], g["kernel"], g["bias"]), g["y"])


def test_optimizer(run):
    g = load("optimizer")
    opt = optimizer.laprop(
        g["lr"], g["agc"], g["eps"], g["beta1"], g["beta2"], int(g["warmup"])
    )
    params = {"w": jnp.asarray(g["w0"]), "b": jnp.asarray(g["b0"])}
    state = opt.init(params)

    def step(params, state, grads):
        updates, state = opt.update(grads, state, params)
        return jax.tree.map(jnp.add, params, updates), state

    for i in range(6):
        grads = {"w": jnp.asarray(g["grad_w"][i]), "b": jnp.asarray(g["grad_b"][i])}
        params, state = run(step)(params, state, grads)
        close(params["w"], g["w"][i])
        np.testing.assert_allclose(params["b"], g["b"][i], rtol=1e-5, atol=1e-12)
