"""The scan with gradients of kernels found at once, against that of JAX."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from embodied.jax import nets
from embodied.jax.kernels import scan


class Layers(eqx.Module):
    """One layer of each kind, and one that the step leaves out."""

    first: nets.Layer
    block: nets.BlockLayer
    last: nets.BlockLinear
    unused: nets.Linear


def make(dtype):
    rng = np.random.default_rng(0)
    shared = nets.BlockLinear(rng, 8, 8, 2, dtype, shared=6)
    return Layers(
        nets.Layer(rng, 8 + 3, 6, dtype),
        nets.BlockLayer(shared, nets.Norm(8)),
        nets.BlockLinear(rng, 8, 8, 2, dtype),
        nets.Linear(rng, 3, 3, dtype=dtype),
    )


def step(layers, carry, given):
    x, keep = given
    carry = carry * keep.astype(jnp.float32)[:, None]
    wide = layers.first(jnp.concatenate([carry, x], -1))
    hidden = layers.block(nets.to_blocks(carry, 2), wide)
    gate = nets.from_blocks(layers.last.blocks(hidden)).astype(jnp.float32)
    carry = 0.5 * carry + jnp.tanh(gate)
    return carry, (carry, jnp.sin(gate))


def outcome(form, dtype, unroll):
    rng = np.random.default_rng(1)
    start = jnp.asarray(rng.normal(size=(4, 8)), jnp.float32)
    x = jnp.asarray(rng.normal(size=(5, 4, 3)), jnp.float32)
    keep = jnp.asarray(rng.random((5, 4)) < 0.7)

    def loss(layers, start, x):
        outs = form(step, layers, start, (x, keep), unroll)
        weights = [jnp.cos(jnp.arange(y.size, dtype=jnp.float32)) for y in outs]
        parts = [y.reshape(-1) @ w for y, w in zip(outs, weights, strict=True)]
        return sum(parts), outs

    grad = jax.jit(jax.grad(loss, (0, 1, 2), has_aux=True))
    return grad(make(dtype), start, x)


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-5), ("bfloat16", 0.05)])
@pytest.mark.parametrize("unroll", [1, 2])
def test_values_and_gradients(dtype, close, unroll):
    with jax.numpy_dtype_promotion("strict"):
        fast = outcome(scan.scan, dtype, unroll)
        plain = outcome(scan.plain_scan, dtype, unroll)
    assert jax.tree.structure(fast) == jax.tree.structure(plain)
    for one, two in zip(jax.tree.leaves(fast), jax.tree.leaves(plain), strict=True):
        assert one.dtype == two.dtype
        scale = float(np.abs(np.float32(two)).max()) + 1
        np.testing.assert_allclose(one, two, rtol=close, atol=close * scale)


def test_no_kernel_gradient_inside_the_loop():
    """The backward pass carries nothing as large as a kernel from step to step."""

    def loss(layers):
        inputs = jnp.ones((5, 4, 3)), jnp.ones((5, 4), bool)
        return scan.scan(step, layers, jnp.ones((4, 8)), inputs, 1)[0].sum()

    program = jax.make_jaxpr(jax.grad(loss))(make("float32"))
    loops = [eqn for eqn in program.eqns if eqn.primitive.name == "scan"]
    assert loops
    for loop in loops:
        consts, carried = loop.params["num_consts"], loop.params["num_carry"]
        shapes = [v.aval.shape for v in loop.invars[consts : consts + carried]]
        assert all(4 in shape for shape in shapes), shapes


def test_arranged_layers_compute_the_same():
    layers = make("float32")
    carry, given = jnp.ones((4, 8)), (jnp.ones((4, 3)), jnp.ones(4, bool))
    one = step(layers, carry, given)
    two = step(scan.arranged(layers), carry, given)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-6, 1e-6), one, two)
