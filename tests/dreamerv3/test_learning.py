"""Properties of the loss and the update that must hold by design."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3.model import imagination, latents, rssm
from dreamerv3.model.latents import Latent, zeros
from dreamerv3.model.rssm import RSSM, feature
from embodied.jax import noise
from embodied.jax.kernels.scan import plain_scan
from embodied.jax.numerics import lambda_return


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def agent(kit):
    return kit.agent()


def device_batch(kit, agent, seed=0):
    data = dict(agent.prepare(kit.batch(agent, seed)))
    data.pop("stepid")
    return data


def small_rssm(**kwargs):
    options = {"deter": 16, "hidden": 8, "stoch": 3, "classes": 4, "blocks": 4}
    options |= kwargs
    return RSSM(np.random.default_rng(0), 5, 2, **options)


def rssm_inputs(net, batch=2, steps=5, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.normal(size=(batch, steps, 5)).astype(np.float32)
    action = rng.normal(size=(batch, steps, 2)).astype(np.float32)
    reset = rng.random((batch, steps)) < 0.3
    u = rng.random((batch, steps, net.stoch)).astype(np.float32)
    return tokens, action, reset, u


def test_lambda_one_is_the_discounted_return():
    rng = np.random.default_rng(0)
    rew, con, val = rng.random((3, 4, 7)).astype(np.float32)
    ret = np.asarray(lambda_return(rew, con, val, 1.0))
    want = val[:, -1]
    for t in range(5, -1, -1):
        want = rew[:, t + 1] + con[:, t + 1] * want
        np.testing.assert_allclose(ret[:, t], want, rtol=1e-5)


def test_heads_start_at_exactly_zero(kit, agent):
    feat = np.random.default_rng(0).normal(size=(5, 32 + 16)).astype(np.float32)
    state = agent.state
    for head in (state.params.rew, state.params.val, state.slow):
        pred = jax.jit(lambda head, x: head(x).pred())(head, feat)
        np.testing.assert_array_equal(pred, 0.0)


@pytest.mark.parametrize("layers", [1, 2])
def test_scan_has_the_gradient_of_autodiff(layers, monkeypatch):
    net = small_rssm(dynlayers=layers, obslayers=layers)
    inputs = rssm_inputs(net)
    start = Latent(jnp.ones((2, 16)) * 0.1, jnp.full((2, 3, 4), 0.25))

    def loss(net, start, tokens, action):
        outs = net.observe(start, tokens, action, *inputs[2:])
        return sum(
            (x * jnp.cos(jnp.arange(x.size, dtype=jnp.float32)).reshape(x.shape)).sum()
            for x in jax.tree.leaves(outs)
        )

    args = (net, start, *inputs[:2])
    fast = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))(*args)
    monkeypatch.setattr(rssm, "scan", plain_scan)
    plain = jax.jit(jax.value_and_grad(loss, (0, 1, 2, 3)))(*args)
    for one, two in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


def test_scan_equals_single_steps():
    net = small_rssm()
    tokens, action, reset, u = rssm_inputs(net)
    latent, logit = net.observe(zeros(net, 2), tokens, action, reset, u)
    state = zeros(net, 2)
    for t in range(5):
        state, one = net.observe_step(
            state, tokens[:, t], action[:, t], reset[:, t], u[:, t]
        )
        np.testing.assert_allclose(latent.deter[:, t], state.deter, atol=1e-5)
        np.testing.assert_allclose(logit[:, t], one, atol=1e-5)


def test_reset_equals_a_fresh_start_with_no_previous_action():
    net = small_rssm()
    tokens, action, _, u = (x[:, 0] for x in rssm_inputs(net))
    used = Latent(jnp.ones((2, 16)), jnp.ones((2, 3, 4)))
    reset, keep = np.ones(2, bool), np.zeros(2, bool)
    one, logit1 = net.observe_step(used, tokens, action, reset, u)
    two, logit2 = net.observe_step(zeros(net, 2), tokens, 0 * action, keep, u)
    np.testing.assert_allclose(one.deter, two.deter, atol=1e-6)
    np.testing.assert_allclose(logit1, logit2, atol=1e-6)


def test_replay_context_reproduces_the_uninterrupted_rollout(kit, agent):
    """Chunks that start from stored latents give the latents of one long sequence."""
    model, params = agent.model, agent.state.params
    data = {k: np.asarray(v) for k, v in device_batch(kit, agent).items()}
    u = np.random.default_rng(0).random((4, 7, 4)).astype(np.float32)

    def observe(data, start, u):
        seq = model.sequence(start, data)
        tokens = params.enc(seq.obs)
        return params.dyn.observe(
            seq.start, tokens, seq.prevact, seq.obs["is_first"], u
        )

    whole, _ = observe(data, agent.init_train(4), u[:, 1:])
    cut = 3  # The second chunk's context is step `cut - 1` of the trained ones.
    later = {k: v[:, cut:] if v.ndim > 1 else v for k, v in data.items()}
    later["dyn/deter"] = np.asarray(whole.deter)[:, cut - 1 :]
    later["dyn/stoch"] = np.asarray(whole.stoch.argmax(-1).astype(np.uint8))[
        :, cut - 1 :
    ]
    rest, _ = observe(later, agent.init_train(4), u[:, 1 + cut :])
    np.testing.assert_allclose(rest.deter, whole.deter[:, cut:], atol=1e-5)
    # A later chunk of a sequence starts from the carry instead.
    carry = model.last(
        model.sequence(
            agent.init_train(4),
            {k: v[:, : cut + 1] if v.ndim > 1 else v for k, v in data.items()},
        ),
        type("Aux", (), {"latent": jax.tree.map(lambda x: x[:, :cut], whole)}),
    )
    later["dyn/deter"] = np.full_like(later["dyn/deter"], 9.0)
    later["consec"] = np.ones(4, np.int32)
    again, _ = observe(later, carry, u[:, 1 + cut :])
    np.testing.assert_allclose(again.deter, whole.deter[:, cut:], atol=1e-5)


def test_permuted_sequences_give_permuted_outputs(kit):
    order = np.array([2, 0, 3, 1])
    outs = []
    for perm in (np.arange(4), order):
        agent = kit.agent()
        data = {k: v[perm] for k, v in kit.batch(agent).items()}
        carry, out, metrics = agent.train(agent.init_train(4), data)
        outs.append((jax.device_get(carry), jax.device_get(out["replay"]), metrics))
    (carry1, replay1, mets1), (carry2, replay2, mets2) = outs
    for key in replay1:
        np.testing.assert_allclose(replay1[key][order], replay2[key], atol=1e-5)
    for one, two in zip(jax.tree.leaves(carry1), jax.tree.leaves(carry2), strict=True):
        np.testing.assert_allclose(one[order], two, atol=1e-5)
    for key in mets1:
        np.testing.assert_allclose(mets1[key], mets2[key], 1e-4, 1e-4, err_msg=key)


def test_slow_critic_and_normaliser_move_at_their_rates(kit):
    agent = kit.agent()
    before = agent.save()
    agent.train(agent.init_train(4), kit.batch(agent))  # Warm-up: a step of size 0.
    agent.train(agent.init_train(4), kit.batch(agent))
    mid = agent.save()
    agent.train(agent.init_train(4), kit.batch(agent))
    after = agent.save()
    for key in (k for k in after if k.startswith("slow/")):
        fast = after["params/val/" + key[5:]]
        want = 0.98 * mid[key] + 0.02 * fast
        np.testing.assert_allclose(after[key], want, rtol=1e-5, atol=1e-9)
    assert before["norm/lo"] == before["norm/hi"] == 0
    assert int(after["step"]) == 3


def test_normaliser_rate():
    from embodied.jax.normalizers import Range, update_range

    x = np.linspace(0, 100, 1001, dtype=np.float32)
    new = update_range(Range(jnp.float32(1), jnp.float32(2)), x, 0.01, 5.0, 95.0)
    np.testing.assert_allclose([new.lo, new.hi], [0.99 + 0.05, 1.98 + 0.95], rtol=1e-5)


@pytest.fixture(scope="module")
def gradients(kit):
    """The gradient of each behaviour loss at a state where none vanishes."""
    agent = kit.agent()
    model, state = agent.model, agent.state
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: x + 0.1 * rng.normal(size=x.shape).astype(np.float32), state.params
    )
    data = device_batch(kit, agent)
    seq = model.sequence(agent.init_train(4), data)
    key = noise.make_key(0)

    def one(params, name):
        _, latent, _ = model.world_loss(params, seq, data["rows"], key)
        args = (params, state, seq, latent, data["rows"], key)
        return model.behavior_loss(*args)[0][name].mean()

    grad = jax.jit(jax.grad(one), static_argnums=1)
    return {name: grad(params, name) for name in ("policy", "value", "repval")}


def magnitude(tree):
    return max(float(np.abs(x).max()) for x in jax.tree.leaves(tree))


def test_repval_reaches_the_world_model(gradients):
    grads = gradients["repval"]
    assert magnitude(grads.enc) > 0
    assert magnitude(grads.dyn) > 0
    assert magnitude(grads.val) > 0
    assert magnitude((grads.pol, grads.rew, grads.con, grads.dec)) == 0


def test_policy_and_imagined_value_do_not(gradients):
    for name, head in (("policy", "pol"), ("value", "val")):
        grads = gradients[name]
        assert magnitude(getattr(grads, head)) > 0
        others = {"enc", "dyn", "dec", "rew", "con", "pol", "val"} - {head}
        assert magnitude([getattr(grads, other) for other in others]) == 0, name


def test_imagination_follows_its_own_actions(kit, agent):
    """Replaying the imagined actions with the same noise gives the same latents."""
    params, model = agent.state.params, agent.model
    rng = np.random.default_rng(0)
    u = rng.random((3, 5, 4 + model.action_size)).astype(np.float32)
    deter = rng.normal(size=(5, 32)).astype(np.float32)
    stored = {latents.DETER: deter, latents.STOCH: np.zeros((5, 4), np.uint8)}
    start = latents.unpack(stored, 4)
    feats, actions = imagination.imagine(params, start, u, model.actions)
    assert feats.shape == (4, 5, 48)
    from embodied.jax import inputs

    embed = inputs.flatten(actions, model.actions)
    replayed = imagination.replay_actions(params, start, u[..., :4], embed)
    np.testing.assert_allclose(
        jnp.swapaxes(feature(replayed), 0, 1), feats[1:], atol=1e-5
    )


def test_noise_is_uniform_and_belongs_to_the_row():
    key = noise.make_key(1)
    rows = np.arange(64, dtype=np.uint32)
    u = np.asarray(noise.uniform(key, rows, (32, 33)))
    assert 0 < u.min() < 1e-3
    assert 1 - 1e-3 < u.max() < 1
    counts = np.histogram(u, 64, (0, 1))[0]
    assert np.abs(counts - u.size / 64).max() < 6 * np.sqrt(u.size / 64)
    np.testing.assert_array_equal(u[[5, 3]], noise.uniform(key, rows[[5, 3]], (32, 33)))
    other = np.asarray(noise.uniform(noise.fold(key, 1), rows, (32, 33)))
    flat = np.corrcoef(u.ravel(), other.ravel())[0, 1]
    assert abs(flat) < 5 / np.sqrt(u.size)
    shifted = np.corrcoef(u[:-1].ravel(), u[1:].ravel())[0, 1]
    assert abs(shifted) < 5 / np.sqrt(u.size)
