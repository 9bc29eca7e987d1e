"""Programs for CUDA and TPU, lowered on this machine, have no kernel for CPUs."""

import re

import jax
import numpy as np
import pytest
from jax import export

from embodied.jax.kernels import dispatch

pytestmark = pytest.mark.compile
# Targets that XLA itself resolves on every platform.
PORTABLE = {"Sharding", "annotate_device_placement"}
FORMS = ("plain", "fast")


@pytest.fixture
def used(monkeypatch):
    """Kernels and the forms in which they were traced."""
    found = set()
    call = dispatch.Kernel.__call__

    def record(self, *args, **kwargs):
        found.add((self.__name__, FORMS[dispatch.on_one_cpu()]))
        return call(self, *args, **kwargs)

    monkeypatch.setattr(dispatch.Kernel, "__call__", record)
    return found


@pytest.fixture(scope="module")
def agent(kit):
    return kit.agent(**{"jax.compute_dtype": "bfloat16"})


def train_step(agent, kit):
    data = kit.batch(agent)
    args = (agent.state, agent.init_train(kit.batch_size), agent.prepare(data))
    args = (*args[:2], {k: v for k, v in args[2].items() if k != "stepid"}, agent.key)
    return agent.model.train, args


def policy_step(agent, kit):
    obs, _ = agent.runner.inputs(kit.obs(kit.batch_size))
    params = agent.model.actor(agent.state)
    key = np.asarray(agent.runner.key)

    def policy(params, carry, obs, key):
        return agent.model.policy(params, carry, obs, key, False)

    return policy, (params, agent.init_policy(kit.batch_size), obs, key)


STEPS = {"train": train_step, "policy": policy_step}


def lower(fn, args, platforms):
    """The program as text; leaves of the trees are the arguments."""
    leaves, structure = jax.tree.flatten(args)

    def flat(*leaves):
        return jax.tree.leaves(fn(*jax.tree.unflatten(structure, leaves)))

    return export.export(jax.jit(flat), platforms=platforms)(*leaves).mlir_module()


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("step", STEPS)
def test_no_kernel_for_cpus_in_programs_for_accelerators(
    agent, kit, used, step, platform
):
    fn, args = STEPS[step](agent, kit)
    used.clear()
    with dispatch.lowering_for([platform]):
        text = lower(fn, args, [platform])
    assert len(used) >= 3, used
    assert {form for _, form in used} == {"plain"}
    targets = set(re.findall(r"custom_call @([\w.]+)", text))
    assert targets <= PORTABLE, targets


def test_programs_for_this_cpu_have_them(agent, kit, used):
    """Otherwise the other test could not fail."""
    if jax.device_count() > 1:  # Not at import: it would start JAX before its flags.
        pytest.skip("Needs a single device.")
    fn, args = STEPS["policy"](agent, kit)
    used.clear()
    with dispatch.lowering_for(["cpu"]):
        lower(fn, args, ["cpu"])
    assert {form for _, form in used} == {"fast"}


def test_what_was_traced_for_the_cpu_is_not_reused(agent, kit, used):
    fn, args = STEPS["policy"](agent, kit)
    used.clear()
    lower(fn, args, ["cpu"])
    here = {name for name, _ in used}
    used.clear()
    with dispatch.lowering_for(["cuda"]):
        lower(fn, args, ["cuda"])
    assert here <= {name for name, form in used if form == "plain"}
    used.clear()
    lower(fn, args, ["cpu"])
    assert here == {name for name, form in used if form == "fast"}
