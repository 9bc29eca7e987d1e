"""The agent through its public interface."""

from __future__ import annotations

import re
import threading

import jax
import numpy as np
import pytest
from elements import Space

from dreamerv3.agent import Agent
from dreamerv3.model.networks import build
from embodied.core.checkpoint import CheckpointError
from embodied.jax import orbax_tree
from embodied.jax import params as tools

NAMES = ("dyn", "enc", "dec", "rew", "con", "pol", "val")
COUNTS = {
    "size1m": (381_120, 42_592, 150_151, 57_663, 41_153, 50_641, 66_111),
    "size12m": (6_046_464, 431_872, 2_139_127, 721_407, 656_129, 792_337, 853_503),
}


@pytest.fixture(autouse=True)
def strict():
    with jax.numpy_dtype_promotion("strict"):
        yield


@pytest.fixture(scope="module")
def trained(kit):
    """An agent after two updates."""
    agent = kit.agent()
    carry = agent.init_train(kit.batch_size)
    for seed in range(2):
        carry, _, _ = agent.train(carry, kit.batch(agent, seed))
    return agent


def spaces(kit):
    obs = {k: v for k, v in kit.full_obs_space.items() if k not in kit.flags}
    act = {k: v for k, v in kit.act_space.items() if k != "reset"}
    return {k: v for k, v in obs.items() if not k.startswith("log/")}, act


@pytest.mark.parametrize("preset", ["size1m", "size12m"])
def test_parameter_counts(kit, preset):
    config = kit.load_config(preset)
    nets = build(np.random.default_rng(0), *spaces(kit), config, "float32")
    for name, count in zip(NAMES, COUNTS[preset], strict=True):
        assert tools.count(getattr(nets, name)) == count, name
    assert tools.count(nets) == sum(COUNTS[preset])


def test_describes_parameters(kit):
    assert re.search(r"total +[\d,]+", kit.agent().describe())


def test_policy_outputs(kit, trained):
    carry = trained.init_policy(3)
    carry, acts, outs = trained.policy(carry, kit.obs(3, first=True))
    assert acts["act_disc"].shape == (3,)
    assert acts["act_disc"].dtype == np.int32
    assert ((acts["act_disc"] >= 0) & (acts["act_disc"] < 5)).all()
    assert acts["act_cont"].shape == (3, 6)
    assert set(outs) == set(trained.ext_space)
    for key, space in trained.ext_space.items():
        assert outs[key].shape == (3, *space.shape), key
        assert outs[key].dtype == space.dtype, key


def test_carry_unpacks_as_the_seeds_say(kit, trained):
    size = kit.batch_size
    data, obs = kit.batch(trained), kit.obs(size, first=True)
    carries = [
        trained.init_policy(size),
        trained.init_train(size),
        trained.init_report(size),
        trained.policy(trained.init_policy(size), obs)[0],
        trained.train(trained.init_train(size), data)[0],
        trained.report(trained.init_report(size), data)[0],
    ]
    for carry in carries:
        enc_carry, dyn_carry, dec_carry, prevact = carry
        assert carry._fields == ("enc_carry", "dyn_carry", "dec_carry", "prevact")
        assert enc_carry == dec_carry == ()
        assert dyn_carry.deter.shape == (size, 32)
        assert {k: v.shape for k, v in prevact.items()} == {
            "act_disc": (size,),
            "act_cont": (size, 6),
        }
    np.testing.assert_array_equal(prevact["act_disc"], data["act_disc"][:, -1])


def test_a_carry_may_be_a_plain_tuple(kit, trained):
    """As scripts that unpacked one write it."""
    size = kit.batch_size
    _, dyn_carry, _, prevact = trained.init_report(size)
    carry, _ = trained.report(({}, dyn_carry, {}, prevact), kit.batch(trained))
    _, dyn_carry, _, prevact = trained.init_policy(size)
    obs = kit.obs(size, first=True)
    policy_carry, _, _ = trained.policy(({}, dyn_carry, {}, prevact), obs)
    assert type(carry) is type(policy_carry) is type(trained.init_train(size))


def test_a_carry_holds_the_actions_that_were_taken(kit, trained):
    carry, acts, _ = trained.policy(trained.init_policy(3), kit.obs(3, first=True))
    jax.tree.map(np.testing.assert_array_equal, carry.prevact, acts)


def test_train_outputs(kit, trained):
    data = kit.batch(trained)
    _, outs, metrics = trained.train(trained.init_train(kit.batch_size), data)
    np.testing.assert_array_equal(outs["replay"]["stepid"], data["stepid"][:, 1:])
    assert outs["replay"]["dyn/deter"].shape == (kit.batch_size, kit.length, 32)
    assert all(np.isfinite(np.asarray(v)).all() for v in metrics.values())
    losses = {"dyn", "rep", "rew", "con", "policy", "value", "repval"}
    losses |= {"image", "vector", "token", "total"}
    assert {k[5:] for k in metrics if k.startswith("loss/")} == losses


def test_learns_to_reconstruct(kit):
    agent = kit.agent(**{"agent.opt.lr": 1e-2, "agent.opt.warmup": 0})
    carry, data = agent.init_train(kit.batch_size), kit.batch(agent)
    losses = []
    for _ in range(30):
        _, _, metrics = agent.train(carry, data)
        losses.append(float(metrics["loss/vector"]))
    assert losses[-1] < 0.7 * losses[0]


def test_runs_are_reproducible(kit):
    def run():
        agent = kit.agent(seed=3)
        carry, acting = agent.init_train(kit.batch_size), agent.init_policy(2)
        actions = []
        for step in range(3):
            acting, acts, _ = agent.policy(acting, kit.obs(2, step, step == 0))
            carry, _, _ = agent.train(carry, kit.batch(agent, step))
            actions.append(acts)
        return agent.save(), actions

    (one, acts1), (two, acts2) = run(), run()
    for key in one:
        np.testing.assert_array_equal(one[key], two[key], err_msg=key)
    jax.tree.map(np.testing.assert_array_equal, acts1, acts2)


def test_seeds_differ(kit, trained):
    one, two = kit.agent(seed=1).save(), kit.agent(seed=2).save()
    key = "params/enc/mlp/layers/0/linear/kernel"
    assert (one[key] != two[key]).any()


def test_save_load_is_the_identity(kit, trained, tmp_path):
    orbax_tree.write(tmp_path / "ckpt", trained.save())
    other = kit.agent()
    other.load(orbax_tree.read(tmp_path / "ckpt"))
    saved = trained.save()
    loaded = other.save()
    assert set(saved) == set(loaded)
    for key in saved:
        np.testing.assert_array_equal(saved[key], loaded[key], err_msg=key)
    data = kit.batch(trained, 7)
    carry = trained.init_train(kit.batch_size)
    one = {k: np.asarray(v) for k, v in other.train(carry, data)[2].items()}
    trained_metrics = trained.train(carry, data)[2]
    for key, value in trained_metrics.items():
        np.testing.assert_array_equal(one[key], value, err_msg=key)


def test_partial_load(kit, trained):
    other = kit.agent(seed=5)
    before, saved = other.save(), trained.save()
    other.load(saved, regex="enc/|val/")
    after = other.save()
    for key in after:
        taken = key.startswith(("params/enc/", "params/val/", "slow/"))
        np.testing.assert_array_equal(
            after[key], saved[key] if taken else before[key], err_msg=key
        )
    with pytest.raises(CheckpointError, match="No parameter path matches 'nothing'"):
        other.load(saved, regex="nothing")
    wrong = {**saved, "params/enc/mlp/layers/0/norm/scale": np.zeros(3, np.float32)}
    with pytest.raises(CheckpointError, match=r"enc/mlp/layers/0/norm/scale: \(3,\)"):
        other.load(wrong)


def test_load_reaches_the_policy(kit, trained):
    other = kit.agent(seed=5)
    other.load(trained.save())
    for one, two in zip(
        other.runner.newest(True), trained.runner.newest(True), strict=True
    ):
        np.testing.assert_array_equal(one, two)


def test_greedy_evaluation(kit):
    agent = kit.agent(**{"agent.eval_mode": "greedy"})
    obs, carry = kit.obs(2, first=True), agent.init_policy(2)
    sampled = [agent.policy(carry, obs, "train")[1]["act_cont"] for _ in range(2)]
    assert (sampled[0] != sampled[1]).any()
    means = np.concatenate(
        [agent.policy(carry, obs, "eval")[1]["act_cont"] for _ in range(2)]
    )
    assert np.abs(means).max() < 0.2  # The untrained head is close to zero.


def test_finite_check_names_the_key(kit, trained):
    obs = kit.obs(3)
    obs["vector"][1, 0] = np.nan
    with pytest.raises(ValueError, match=r"observation 'vector' .* rows \[1\]"):
        trained.policy(trained.init_policy(3), obs)
    data = kit.batch(trained)
    data["reward"][2] = np.inf
    with pytest.raises(ValueError, match=r"batch 'reward' .* rows \[2\]"):
        trained.prepare(data)
    with pytest.raises(KeyError, match="vector"):
        trained.policy(trained.init_policy(3), {"image": obs["image"]})


def test_stream(kit, trained):
    source = iter([kit.batch(trained, 1), kit.batch(trained, 2)])
    direct = [dict(trained.prepare(kit.batch(trained, seed))) for seed in (1, 2)]
    for depth, stream in enumerate(
        [source, iter([kit.batch(trained, s) for s in (1, 2)])]
    ):
        items = list(_stream(trained, stream, depth))
        for one, two in zip(items, direct, strict=True):
            jax.tree.map(np.testing.assert_array_equal, dict(one), two)


def _stream(agent, source, depth):
    from embodied.jax.batches import device_stream

    assert list(agent.stream(iter([]))) == []
    return device_stream(source, agent.prepare, depth)


def test_slots_match_the_functional_policy(kit):
    agent = kit.agent(**{"agent.eval_mode": "greedy"})
    # Without noise in the latents both must agree: compare the deterministic state.
    slots, carry = agent.slots(2), agent.init_policy(2)
    obs = kit.obs(2, first=True)
    _, outs = slots.act(["a", "b"], obs, "eval")
    _, _, want = agent.policy(carry, obs, "eval")
    np.testing.assert_allclose(outs["dyn/deter"], want["dyn/deter"], atol=1e-6)


def test_slots_come_and_go(kit, trained):
    slots = trained.slots(2, sizes=(4,))
    slots.act(["a"], kit.obs(1))
    held = jax.tree.map(lambda x: np.asarray(x[slots.rows["a"]]), slots.table)
    slots.act(["b", "c", "d"], kit.obs(3))  # Doubles the table.
    assert (len(slots), slots.capacity) == (4, 4)
    after = jax.tree.map(lambda x: np.asarray(x[slots.rows["a"]]), slots.table)
    jax.tree.map(np.testing.assert_array_equal, held, after)
    slots.free(["a", "b", "unknown"])
    assert len(slots) == 2
    assert "a" not in slots
    slots.act(["e", "f"], kit.obs(2))
    assert slots.capacity == 4
    with pytest.raises(ValueError, match="2 observations"):
        slots.act(["e"], kit.obs(2))


def test_a_freed_row_starts_from_zero(kit, trained):
    fresh, used = trained.slots(1), trained.slots(1)
    used.act(["old"], kit.obs(1, 1))
    used.free(["old"])
    obs = kit.obs(1, 2)
    one, two = fresh.act(["new"], obs), used.act(["new"], obs)
    np.testing.assert_allclose(one[1]["dyn/deter"], two[1]["dyn/deter"], atol=1e-6)


def test_acting_while_learning(kit):
    """The policy's parameters survive the donation of the learner's."""
    agent = kit.agent()
    slots, carry = agent.slots(4), agent.init_train(kit.batch_size)
    data = kit.batch(agent)
    errors, stop = [], threading.Event()

    def actor():
        try:
            while not stop.is_set():
                slots.act(["a", "b"], kit.obs(2))
                agent.policy(agent.init_policy(1), kit.obs(1))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=actor)
    thread.start()
    for _ in range(20):
        carry, _, _ = agent.train(carry, data)
    stop.set()
    thread.join(60)
    assert not errors
    newest = agent.runner.newest(wait=True)
    for one, two in zip(
        newest, jax.tree.leaves(agent.model.actor(agent.state)), strict=True
    ):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "kind",
    [
        "vector",
        pytest.param("image", marks=pytest.mark.slow),
        pytest.param("token", marks=pytest.mark.slow),
    ],
)
def test_single_kinds_of_observations(kit, kind):
    keys = {"image": Space(np.uint8, (8, 8, 1)), "vector": Space(np.float32, (2, 2))}
    keys["token"] = Space(np.int32, (2,), 0, 3)
    obs_space = kit.flags | {kind: keys[kind]}
    act_space = {"action": Space(np.int32, (2,), 0, 4)}
    agent = kit.agent(obs_space, act_space, replay_context=0)
    assert agent.ext_space == {}
    obs = kit.obs(2, obs_space=obs_space)
    _, acts, _ = agent.policy(agent.init_policy(2), obs)
    assert acts["action"].shape == (2, 2)
    data = kit.batch(agent, 0, obs_space, act_space)
    _, outs, _ = agent.train(agent.init_train(kit.batch_size), data)
    assert outs == {}  # Nothing to write back.


def test_clear_errors_for_spaces(kit):
    bad = {
        "cannot be halved": {"image": Space(np.uint8, (84, 84, 3))},
        "same height": {
            "a": Space(np.uint8, (64, 64, 3)),
            "b": Space(np.uint8, (32, 32, 3)),
        },
        "at most two dimensions": {"x": Space(np.float32, (2, 2, 2))},
        "give it bounds": {"x": Space(np.int32, (), 0, 2**20)},
        "nothing to observe": {},
    }
    for message, extra in bad.items():
        with pytest.raises(ValueError, match=message):
            Agent(kit.flags | extra, kit.act_space, kit.config())


@pytest.mark.parametrize(
    "preset", ["size25m", "size50m", "size100m", "size200m", "size400m"]
)
def test_presets_build(kit, preset, monkeypatch):
    """Shapes of the large presets fit together; the values are not drawn."""
    from embodied.jax import nets

    def empty(rng, shape, outscale=1.0):
        return np.broadcast_to(np.float32(0), shape)

    monkeypatch.setattr(nets, "truncated_normal", empty)
    config = kit.load_config(preset)
    nets_ = build(np.random.default_rng(0), *spaces(kit), config, "bfloat16")
    millions = tools.count(nets_) / 1e6
    assert 0.7 < millions / int(preset[4:-1]) < 1.3


def test_another_optimiser_is_told_apart_from_another_size(kit):
    agent = kit.agent()
    saved = agent.save()
    path = next(path for path in saved if path.startswith("opt/"))
    del saved[path]
    with pytest.raises(CheckpointError, match="from_checkpoint"):
        agent.load(saved)
    saved.pop(next(path for path in saved if path.startswith("params/")))
    with pytest.raises(CheckpointError, match="Take the sizes"):
        agent.load(saved)
