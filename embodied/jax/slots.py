"""A table of policy latents on the device, one row per environment.

One compiled call gathers the rows of the environments at hand, steps the policy and
scatters the new latents back, so nothing is stacked on the host.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from embodied.core import base

Tree = Any


class Slots:
    """Acts for environments that come and go, by any hashable name.

    Batches are padded to one of the compiled `sizes`, by default powers of two. A new
    environment starts from a row of zeros; the table doubles when it is full.
    """

    def __init__(self, runner: Any, capacity: int = 64, sizes: Sequence[int] = ()):
        if capacity < 1:
            raise ValueError(f"The table needs at least one row, got {capacity}.")
        self.runner = runner
        self.sizes = sorted(sizes)
        self.lock = threading.Lock()
        self.capacity = capacity
        self.rows: dict[Hashable, int] = {}
        self.unused = list(range(capacity))[::-1]
        self.table = self._make(capacity)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: Hashable) -> bool:
        return name in self.rows

    def act(
        self, names: Sequence[Hashable], obs: base.Batch, mode: base.Mode = "train"
    ) -> tuple[base.Batch, base.Batch]:
        """Actions and outputs for one observation of each named environment."""
        inputs, size = self.runner.inputs(obs)
        if size != len(names) or len(set(names)) != size:
            raise ValueError(f"{size} observations for the environments {names}.")
        padded = self._padded(size)
        inputs = {k: _pad(v, padded) for k, v in inputs.items()}
        greedy = self.runner.greedy(mode)
        with self.lock:
            rows, fresh = self._allocate(names, padded)
            params = self.runner.newest(wait=False)
            rest = (rows, fresh, inputs, *self.runner.randomness())
            args = (params, self.table, *rest)
            fn = self.runner.function(
                self._step, args, (padded, self.capacity), greedy, donate_argnums=(1,)
            )
            self.table, actions, outs = fn(*args)
        return self.runner.outputs(actions, outs, size)

    def free(self, names: Iterable[Hashable]) -> None:
        """Forget environments that are gone; unknown names are ignored."""
        with self.lock:
            for name in names:
                if name in self.rows:
                    self.unused.append(self.rows.pop(name))

    def _allocate(
        self, names: Sequence[Hashable], padded: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The row of each environment and whether it is new; padding shares one."""
        fresh = [name not in self.rows for name in names]
        while sum(fresh) > len(self.unused):
            self._grow()
        for name, new in zip(names, fresh, strict=True):
            if new:
                self.rows[name] = self.unused.pop()
        rows = np.full(padded, self.capacity, np.int32)
        rows[: len(names)] = [self.rows[name] for name in names]
        return rows, np.array(fresh + [True] * (padded - len(names)))

    def _padded(self, size: int) -> int:
        fitting = [n for n in self.sizes if n >= size]
        return fitting[0] if fitting else 1 << (size - 1).bit_length()

    def _make(self, capacity: int) -> Tree:
        carry = self.runner.model.carry(capacity + 1)  # The last row is for padding.
        return jax.device_put(carry, self.runner.everywhere, may_alias=False)

    def _grow(self) -> None:
        old, self.capacity = self.capacity, 2 * self.capacity
        self.unused += list(range(old, self.capacity))[::-1]

        def copy(new: Any, table: Any) -> Any:
            return new.at[:old].set(table[:old])

        self.table = jax.tree.map(copy, self._make(self.capacity), self.table)

    def _step(
        self,
        params: Any,
        table: Tree,
        rows: Any,
        fresh: Any,
        obs: Any,
        key: Any,
        call: Any,
        greedy: bool,
    ) -> tuple[Tree, Tree, Tree]:
        def gather(x: Any) -> Any:
            mask = fresh.reshape((-1,) + (1,) * (x.ndim - 1))
            return jnp.where(mask, jnp.zeros((), x.dtype), x[rows])

        def scatter(x: Any, new: Any) -> Any:
            return x.at[rows].set(new)

        carry = jax.tree.map(gather, table)
        carry, actions, outs = self.runner._step(params, carry, obs, key, call, greedy)
        return jax.tree.map(scatter, table, carry), actions, outs


def _pad(x: np.ndarray, size: int) -> np.ndarray:
    """Repeat the first row up to `size` rows."""
    if len(x) == size:
        return x
    return np.concatenate([x, np.repeat(x[:1], size - len(x), 0)])
