"""`jax.lax.scan` of a step made of layers, with a faster gradient, on all back ends.

By itself the backward pass adds to the gradient of each kernel at every step. Here a
linear map adds a `shift` instead of its bias, which is an input of the scan. The
cotangents of shifts come out of the backward pass stacked over time, so the gradient of
a kernel is one large product after it. Norms have a scale for each row, summed after
the scan, so that devices which share a batch need not talk at every step. Kernels are
cast, split and transposed once, before the scan: on a CPU a product of few rows with a
matrix that is stored the other way round takes up to eight times as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..nets import BlockLinear, Linear, Norm, to_blocks
from .products import kernel_grad

Tree = Any
Step = Callable[[Any, Tree, Tree], tuple[Tree, Tree]]  # Layers, carry, input.
Unit = Linear | BlockLinear | Norm


def plain_scan(step: Step, layers: Any, start: Tree, inputs: Tree, unroll: int) -> Tree:
    """Outputs [T, B, ...] of `step(layers, carry, input)` from a start [B, ...].

    All parameters of `layers` belong to linear maps and norms, which a step calls at
    most once.
    """
    return jax.lax.scan(partial(step, layers), start, inputs, unroll=unroll)[1]


class Transposed(NamedTuple):
    """A kernel and what the backward pass multiplies by; it gets no gradient here."""

    kernel: Float[Array, "*G I O"]
    transpose: Float[Array, "*G O I"]


@jax.custom_vjp
def _multiply(x: Float[Array, "*G B I"], pair: Transposed) -> Float[Array, "*G B O"]:
    return jnp.matmul(x, pair.kernel)


def _multiply_forward(x: Array, pair: Transposed) -> tuple[Array, Array]:
    return jnp.matmul(x, pair.kernel), pair.transpose


def _multiply_backward(transpose: Array, dy: Array) -> tuple[Array, None]:
    return jnp.matmul(dy, transpose), None


_multiply.defvjp(_multiply_forward, _multiply_backward)


class Map(eqx.Module):
    """What stands for a linear map inside of a scan."""

    own: Array | Transposed
    shared: Array | Transposed | None  # Kernel of inputs that all blocks share.
    shift: Array  # The bias, or one for each row.
    note: Callable[[Array, Array | None], None] | None = eqx.field(
        default=None, static=True
    )

    def __call__(self, x: Float[Array, "B I"]) -> Float[Array, "B O"]:
        return self.blocks(x)

    def blocks(self, x: Array, shared: Array | None = None) -> Array:
        """`BlockLinear.blocks`; for a single block also `Linear`."""
        x = x.astype(self.shift.dtype)
        y = _product(x, self.own) + self.shift
        if shared is not None:
            shared = shared.astype(self.shift.dtype)
            y = y + to_blocks(_product(shared, self.shared), len(x))
        if self.note:
            self.note(x, shared)
        return y


def _product(x: Array, kernel: Array | Transposed | None) -> Array:
    assert kernel is not None
    return _multiply(x, kernel) if isinstance(kernel, Transposed) else x @ kernel


def arranged(layers: Any) -> Any:
    """The same layers with kernels cast and split, to be done once before a loop."""
    units, tree = jax.tree.flatten(layers, is_leaf=_is_unit)
    return jax.tree.unflatten(tree, [_arrange(unit) for unit in units])


def _is_unit(node: Any) -> bool:
    return isinstance(node, Unit)


def _arrange(unit: Any) -> Any:
    if isinstance(unit, Norm):
        return unit
    own, shared, bias = unit.split()
    return Map(own, shared, bias)


@partial(jax.custom_vjp, nondiff_argnums=(0, 4))
def scan(step: Step, layers: Any, start: Tree, inputs: Tree, unroll: int) -> Tree:
    """`plain_scan` with a faster gradient."""
    return plain_scan(step, arranged(layers), start, inputs, unroll)


def _forward(
    step: Step, layers: Any, start: Tree, inputs: Tree, unroll: int
) -> tuple[Tree, Any]:
    units, tree = jax.tree.flatten(layers, is_leaf=_is_unit)
    steps = len(jax.tree.leaves(inputs)[0])
    batch = len(jax.tree.leaves(start)[0])
    fixed = [_transpose(_arrange(unit)) for unit in units]

    def run(varied: list[Array], start: Tree, inputs: Tree) -> Tree:
        scales = {i: x for i, x in enumerate(varied) if isinstance(units[i], Norm)}
        shifts = {i: x for i, x in enumerate(varied) if i not in scales}

        def body(carry: Tree, given: Tree) -> tuple[Tree, Tree]:
            shifts, inputs = given
            notes: dict[int, tuple[Array, Array | None]] = {}
            layers = [
                _vary(unit, (shifts | scales)[i], partial(_note, notes, i))
                for i, unit in enumerate(fixed)
            ]
            carry, out = step(jax.tree.unflatten(tree, layers), carry, inputs)
            return carry, (out, notes)

        return jax.lax.scan(body, start, (shifts, inputs), unroll=unroll)[1]

    varied = [_rows(unit, steps, batch) for unit in fixed]
    outs, pullback, notes = jax.vjp(run, varied, start, inputs, has_aux=True)
    return outs, (pullback, notes, layers)


def _transpose(unit: Any) -> Any:
    """With the transposes of its kernels, none of which get a gradient."""
    if isinstance(unit, Norm):
        return unit
    own, shared = (
        None if x is None else Transposed(x, jnp.swapaxes(x, -1, -2))
        for x in (unit.own, unit.shared)
    )
    return Map(own, shared, unit.shift)  # type: ignore[arg-type]


def _rows(unit: Any, steps: int, batch: int) -> Array:
    """A scale for each row; a shift for each step and row."""
    if isinstance(unit, Norm):
        return jnp.broadcast_to(unit.scale, (batch, *unit.scale.shape))
    *groups, units = unit.shift.shape
    return jnp.broadcast_to(unit.shift, (steps, *groups[:-1], batch, units))


def _vary(unit: Any, value: Array, note: Any) -> Any:
    if isinstance(unit, Norm):
        return eqx.tree_at(lambda x: x.scale, unit, value)
    return Map(unit.own, unit.shared, value, note)


def _note(notes: dict[int, Any], i: int, x: Array, shared: Array | None) -> None:
    assert i not in notes, "A step may call a linear map only once."
    notes[i] = (x, shared)


def _backward(step: Step, unroll: int, residuals: Any, cotangents: Tree) -> Any:
    pullback, notes, layers = residuals
    varied, start, inputs = pullback(cotangents)
    units, tree = jax.tree.flatten(layers, is_leaf=_is_unit)
    grads = [_grad(x, notes.get(i), varied[i]) for i, x in enumerate(units)]
    return jax.tree.unflatten(tree, grads), start, inputs


def _grad(unit: Unit, note: tuple[Array, Array | None] | None, dy: Array) -> Unit:
    """The gradient of one layer, given the inputs and cotangents of all steps."""
    if isinstance(unit, Norm):
        return eqx.tree_at(lambda x: x.scale, unit, dy.sum(0))
    if note is None:
        return jax.tree.map(jnp.zeros_like, unit)
    x, shared = note
    if isinstance(unit, Linear):
        kernel = kernel_grad(x, dy)
    else:
        kernel = jnp.einsum("tgbi,tgbo->gio", x, dy)
    bias = dy.sum((0, -2)).reshape(-1)
    if shared is not None:
        flat = jnp.moveaxis(dy, 1, 2).reshape((*shared.shape[:2], -1))
        more = kernel_grad(shared, flat).reshape(shared.shape[-1], len(kernel), -1)
        kernel = jnp.concatenate([kernel, jnp.moveaxis(more, 1, 0)], 1)
    grads = kernel.astype(unit.kernel.dtype), bias.astype(unit.bias.dtype)
    return eqx.tree_at(lambda x: (x.kernel, x.bias), unit, grads)


scan.defvjp(_forward, _backward)
