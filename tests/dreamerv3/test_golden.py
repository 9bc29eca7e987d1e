"""Modules and losses of DreamerV3 against golden numbers, jitted and not."""

from __future__ import annotations

import pathlib

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from elements import Space

from dreamerv3.model import decoder, losses, rssm
from dreamerv3.model.encoder import Encoder
from dreamerv3.model.latents import Latent
from embodied.jax import distributions as dists
from embodied.jax import inputs
from embodied.jax.normalizers import init_range

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
pytestmark = pytest.mark.golden
SPACES = {
    "image": Space(np.uint8, (64, 64, 3)),
    "vector": Space(np.float32, (7,)),
    "token": Space(np.int32, (), 0, 5),
}


def load(name: str) -> dict:
    with np.load(GOLDEN / f"{name}.npz") as data:
        return dict(data.items())


def close(actual, desired, tol=1e-5):
    np.testing.assert_allclose(actual, desired, rtol=tol, atol=tol)


def fill(module, params: dict):
    """Replace parameters by attribute path, for example `mlp.layers[0].norm.scale`."""
    for path, value in params.items():
        where = eval(f"lambda m: m.{path}")
        assert where(module).shape == value.shape, (path, where(module).shape)
        module = eqx.tree_at(where, module, jnp.asarray(value))
    return module


def layer(g: dict, name: str, path: str, norm: str | None = None) -> dict:
    """Golden parameters of a linear map and its norm under our paths."""
    kernel, bias = g[f"param:{name}/kernel"], g[f"param:{name}/bias"]
    linear = f"{path}.linear" if norm else path
    result = {f"{linear}.kernel": kernel, f"{linear}.bias": bias}
    if norm:
        result[f"{path}.norm.scale"] = g[f"param:{norm}/scale"]
    return result


@pytest.fixture(params=["jit", "plain"])
def run(request):
    """Evaluate `fn(*arrays)` compiled or op by op."""
    return jax.jit if request.param == "jit" else lambda fn: fn


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


def make_rssm(g: dict) -> rssm.RSSM:
    net = rssm.RSSM(
        np.random.default_rng(0),
        10,
        4,
        deter=16,
        hidden=8,
        stoch=3,
        classes=4,
        blocks=4,
    )
    params = {}
    for i in range(3):
        params |= layer(g, f"dyn/dynin{i}", f"dynin[{i}]", f"dyn/dynin{i}norm")
    params |= layer(g, "dyn/dynhid0", "dynhid[0]", "dyn/dynhid0norm")
    params |= layer(g, "dyn/dyngru", "dyngru")
    params |= layer(g, "dyn/obs0", "obs.layers[0]", "dyn/obs0norm")
    params |= layer(g, "dyn/obslogit", "obslogit")
    for i in range(2):
        params |= layer(g, f"dyn/prior{i}", f"prior.layers[{i}]", f"dyn/prior{i}norm")
    params |= layer(g, "dyn/priorlogit", "priorlogit")
    assert len(params) == sum(k.startswith("param:") for k in g)
    return fill(net, params)


def test_rssm_step(run):
    g = load("rssm_step")
    net = make_rssm(g)

    def fn(net, deter, stoch, action, reset, tokens):
        action = jax.nn.one_hot(action, 4, dtype=jnp.float32)
        noise = jnp.full(stoch.shape[:-1], 0.5)
        start = Latent(deter, stoch)
        latent, logit = net.observe_step(start, tokens, action, reset, noise)
        return latent.deter, net.prior_logit(latent.deter), logit

    outs = run(fn)(
        net, *(g[k] for k in ("deter", "stoch", "action", "reset", "tokens"))
    )
    for key, value in zip(
        ("next_deter", "prior_logits", "posterior_logits"), outs, strict=True
    ):
        close(value, g[key])


def test_kl_losses(run):
    g = load("kl_losses")
    unimix, free = float(g["unimix"]), float(g["free_nats"])

    def fn(posterior, prior):
        return losses.kl_losses(posterior, prior, unimix, free)

    out = run(fn)(g["posterior_logits"], g["prior_logits"])
    close(out.dyn, g["dyn"])
    close(out.rep, g["dyn"])
    close(out.raw, g["raw_kl"])


def test_encoder(run):
    g = load("encoder")
    net = Encoder(np.random.default_rng(0), SPACES, depth=2, layers=2, units=6)
    params = {}
    for i in range(2):
        params |= layer(g, f"enc/mlp{i}", f"mlp.layers[{i}]", f"enc/mlp{i}norm")
    for i in range(4):
        params |= layer(g, f"enc/cnn{i}", f"convs[{i}]")
        params[f"norms[{i}].scale"] = g[f"param:enc/cnn{i}norm/scale"]
    net = fill(net, params)
    obs = {k: g[f"obs:{k}"] for k in SPACES}
    tokens = run(lambda net, obs: net(obs))(net, obs)
    close(tokens, g["tokens"])
    assert tokens.shape[-1] == net.size


def test_decoder(run):
    g = load("decoder")
    net = decoder.Decoder(
        np.random.default_rng(0), SPACES, 16, 12, depth=2, layers=2, units=6
    )
    params = {}
    for i in range(2):
        params |= layer(
            g, f"dec/mlp/linear{i}", f"vec.mlp.layers[{i}]", f"dec/mlp/norm{i}"
        )
    params |= layer(g, "dec/vec/vector/pred", "vec.outs['vector'].linears[0]")
    params |= layer(g, "dec/vec/token/logits", "vec.outs['token'].linears[0]")
    params |= layer(g, "dec/sp0", "canvas.deter")
    params |= layer(g, "dec/sp1", "canvas.stoch", "dec/sp1norm")
    params |= layer(g, "dec/sp2", "canvas.project")
    params["canvas.norm.scale"] = g["param:dec/spnorm/scale"]
    for i, j in enumerate((2, 1, 0)):
        params |= layer(g, f"dec/conv{j}", f"convs[{i}]")
        params[f"norms[{i}].scale"] = g[f"param:dec/conv{j}norm/scale"]
    params |= layer(g, "dec/imgout", "imgout")
    assert len(params) == sum(k.startswith("param:") for k in g)
    net = fill(net, params)
    obs = {k: g[f"obs:{k}"] for k in SPACES}

    def fn(net, deter, stoch, obs):
        out = net(deter, stoch)
        return out, decoder.losses(out, obs)

    out, loss = run(fn)(net, g["deter"], g["stoch"], obs)
    close(out["image"].pred(), g["image_pred"])
    close(out["vector"].pred(), g["vector_pred"])
    close(out["token"].log_probs, jax.nn.log_softmax(g["token_logits"]))
    for key in SPACES:
        close(loss[key], g[f"{key}_loss"])


def test_imagination_loss(run):
    g = load("imagination_loss")

    def fn(value, slow, policy, action, reward, cont):
        dist = dists.Categorical(policy[:-1])
        seq = losses.Imagined(
            reward,
            cont,
            dists.TwoHot(value),
            dists.TwoHot(slow),
            dist.logp(action[:-1]),
            {"action": dist.entropy()},
        )
        options = {k: float(g[k]) for k in ("lam", "actent", "slowreg")}
        return losses.imag_loss(seq, init_range(), **options)

    names = ("value_logits", "slow_value_logits", "policy_logits")
    names += ("action", "reward", "cont")
    out = run(fn)(*(np.swapaxes(g[k], 0, 1) for k in names))  # Time comes first.
    close(out.policy.T, g["policy_loss"])
    close(out.value.T, g["value_loss"])
    close(out.ret.T, g["ret"])
    metrics = {k[7:]: v for k, v in g.items() if k.startswith("metric:")}
    assert set(metrics) == set(out.metrics)
    # Values of either sign cancel in their mean, which float32 knows to a millionth
    # of their size: in float64 it is 7.82454, while the golden has 7.82437.
    atol = {"val": 1e-6 * np.abs(g["ret"]).mean()}
    for key, value in metrics.items():
        np.testing.assert_allclose(
            out.metrics[key], value, 1e-5, atol.get(key, 1e-5), err_msg=key
        )


def test_replay_value_loss(run):
    g = load("replay_value_loss")

    def fn(last, term, reward, boot, value, slow):
        return losses.replay_loss(
            last,
            term,
            reward,
            boot,
            dists.TwoHot(value),
            dists.TwoHot(slow),
            int(g["horizon"]),
            float(g["lam"]),
            float(g["slowreg"]),
        )

    names = ("last", "term", "reward", "boot", "value_logits", "slow_value_logits")
    out = run(fn)(*(g[k] for k in names))
    close(out.loss, g["loss"])
    close(out.ret, g["ret"])


def test_stages_of_other_image_sizes():
    sizes = {(64, 64): 4, (32, 32): 3, (96, 96): 4, (128, 128): 4, (256, 256): 4}
    sizes |= {(512, 512): 5, (16, 16): 2, (64, 128): 4, (8, 8): 1}
    for (height, width), count in sizes.items():
        assert inputs.stage_count(height, width, 4) == count, (height, width)
    for height, width in ((84, 84), (4, 4), (65, 65), (16, 256)):
        with pytest.raises(ValueError, match=f"{height}x{width} pixels"):
            inputs.stage_count(height, width, 4)
