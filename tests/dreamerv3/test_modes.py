"""Ways to run the agent: op by op, in bfloat16, and in every size."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dreamerv3.model.learning import Dreamer
from embodied.jax import nets, noise

PRESETS = [f"size{n}m" for n in (1, 12, 25, 50, 100, 200, 400)]


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


def losses(metrics):
    return {k: float(v) for k, v in metrics.items() if k.startswith("loss/")}


@pytest.fixture(scope="module")
def vectors(kit):
    """Spaces without images, which are slow op by op."""
    return {k: v for k, v in kit.obs_space.items() if k != "image"}


@pytest.mark.slow
def test_without_compilation(kit, vectors):
    """`jax.jit=False` gives the same numbers, one operation at a time."""
    results = []
    for jit in (True, False):
        agent = kit.agent(vectors, **{"jax.jit": jit, "agent.eval_mode": "greedy"})
        data = kit.batch(agent, 0, vectors)
        carry, acting = agent.init_train(kit.batch_size), agent.init_policy(2)
        obs = kit.obs(2, first=True, obs_space=vectors)
        _, acts, outs = agent.policy(acting, obs, "eval")
        _, replay, metrics = agent.train(carry, data)
        seen = losses(metrics)
        reported = losses(agent.report(carry, data)[1])
        deter = np.asarray(replay["replay"]["dyn/deter"])
        results.append((acts, outs, seen, reported, deter, agent.save()))
        slots, _ = agent.slots(2).act(["a", "b"], obs)
        assert slots["act_cont"].shape == (2, 6)
    for one, two in zip(
        jax.tree.leaves(results[0]), jax.tree.leaves(results[1]), strict=True
    ):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_bfloat16(kit):
    """Losses stay close, parameters and statistics stay float32."""
    options = {"agent.eval_mode": "greedy"}
    wide = kit.agent(**options)
    agent = kit.agent(**options, **{"jax.compute_dtype": "bfloat16"})
    data, seen = kit.batch(agent), []
    args = train_arguments(agent, data)
    assert "bf16" in jax.jit(agent.model.train).lower(*args).as_text()
    for one in (wide, agent):
        seen.append(losses(one.train(one.init_train(kit.batch_size), data)[2]))
    for key, value in seen[0].items():
        np.testing.assert_allclose(seen[1][key], value, 0.05, 0.05, err_msg=key)
    for leaf in jax.tree.leaves(agent.state):
        assert leaf.dtype in (jnp.float32, jnp.int32)
    obs = kit.obs(3, first=True)
    acts = [
        a.policy(a.init_policy(3), obs, "eval")[1]["act_cont"] for a in (wide, agent)
    ]
    assert np.isfinite(acts[1]).all()
    assert acts[1].dtype == np.float32
    np.testing.assert_allclose(acts[0], acts[1], atol=0.05)
    _, metrics = agent.report(agent.init_report(kit.batch_size), data)
    assert all(np.isfinite(v).all() for v in metrics.values())


def train_arguments(agent, data):
    device = {k: v for k, v in agent.prepare(data).items() if k != "stepid"}
    return agent.state, agent.init_train(len(data["reward"])), device, agent.key


def shapes(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("preset", PRESETS)
def test_every_size_can_be_traced(kit, preset, dtype, monkeypatch):
    """The train step, the policy and the report of every size lower to a program."""

    def empty(rng, shape, outscale=1.0):
        return np.broadcast_to(np.float32(0), shape)

    monkeypatch.setattr(nets, "truncated_normal", empty)
    obs_space = {k: v for k, v in kit.full_obs_space.items() if k[:4] != "log/"}
    act_space = {k: v for k, v in kit.act_space.items() if k != "reset"}
    model = Dreamer(obs_space, act_space, kit.load_config(preset), dtype)
    batch, steps = 2, 4 + model.context
    state, carry = (shapes(x) for x in (model.init(0), model.carry(batch)))
    key = noise.make_key(0)
    spaces = {**obs_space, **act_space, **model.ext_space}
    data = {
        k: jax.ShapeDtypeStruct((batch, steps, *v.shape), v.dtype)
        for k, v in spaces.items()
    }
    obs = {
        k: jax.ShapeDtypeStruct((batch, *obs_space[k].shape), obs_space[k].dtype)
        for k in model.policy_keys
    }
    data |= {"rows": jax.ShapeDtypeStruct((batch,), np.uint32)}
    data |= {"consec": jax.ShapeDtypeStruct((batch,), np.int32)}
    jax.jit(model.train).lower(state, carry, data, key)
    jax.jit(model.report).lower(state, carry, data, key)
    actor = jax.eval_shape(model.actor, state)
    act = jax.jit(model.policy, static_argnums=4)
    act.lower(actor, carry, obs, key, False)
