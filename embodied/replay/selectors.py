"""How items are chosen: uniform, by recency, by priority, or a mixture of these."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np

from embodied.replay.sumtree import SumTree


class Selector(abc.ABC):
    """Chooses among the items with ids in [head, tail); larger ids are newer.

    The replay calls it under its lock, so that a selector need not be thread-safe, and
    hands it the random generator, so that one seed decides everything.
    """

    prioritized = False  # Whether `update` has an effect.

    @abc.abstractmethod
    def sample(
        self, rng: np.random.Generator, head: int, tail: int, amount: int
    ) -> np.ndarray:
        """Ids of `amount` items, drawn with replacement."""

    def change(self, head: int, tail: int) -> None:
        """Items were added up to `tail` and evicted up to `head`."""
        del head, tail

    def update(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of items; NaN stands for the initial priority."""
        del ids, priorities


def make_selector(
    fracs: Mapping[str, float],
    priority: Mapping[str, Any] | None = None,
    recency: Mapping[str, Any] | None = None,
) -> Selector:
    """The mixture of `uniform`, `priority` and `recency` that a configuration names."""
    selectors: dict[str, Selector] = {
        "uniform": Uniform(),
        "priority": Prioritized(**(priority or {})),
        "recency": Recency(**(recency or {})),
    }
    if unknown := set(fracs) - set(selectors):
        raise ValueError(f"unknown selectors {unknown}, there are {set(selectors)}")
    return Mixture({name: selectors[name] for name in fracs}, fracs)


class Uniform(Selector):
    """Draws all items with equal probability."""

    def sample(
        self, rng: np.random.Generator, head: int, tail: int, amount: int
    ) -> np.ndarray:
        """Ids of `amount` items, drawn with replacement."""
        return rng.integers(head, tail, amount)


class Recency(Selector):
    """Probability of an item falls with its age as `(1 + age) ** -exponent`.

    Age counts newer items. The power law is continuous and rounded down, which has a
    closed-form inverse: a draw costs the same for any number of items.
    """

    def __init__(self, exponent: float = 1.0):
        if exponent < 0:
            raise ValueError(f"recency exponent must not be negative, not {exponent}")
        self._exponent = exponent

    def sample(
        self, rng: np.random.Generator, head: int, tail: int, amount: int
    ) -> np.ndarray:
        """Ids of `amount` items, drawn with replacement."""
        uniform, count = rng.random(amount), tail - head
        power = 1.0 - self._exponent
        if abs(power) < 1e-6:
            edge = (count + 1.0) ** uniform
        else:
            edge = (1 + uniform * ((count + 1.0) ** power - 1)) ** (1 / power)
        age = np.clip((edge - 1).astype(np.int64), 0, count - 1)
        return tail - 1 - age


class Prioritized(Selector):
    """Probability of an item is its priority to a power.

    The priority of an item is the mean over its steps. `initial` is that of steps which
    were not updated yet; infinity stands for the highest seen so far. With
    `zero_on_sample` a sampled item is not sampled again until it is updated.
    """

    prioritized = True

    def __init__(
        self,
        exponent: float = 0.8,
        initial: float = np.inf,
        zero_on_sample: bool = False,
    ):
        if exponent < 0 or not initial > 0:
            raise ValueError(f"bad priority exponent {exponent} or initial {initial}")
        self._exponent = exponent
        self._initial = initial
        self._zero_on_sample = zero_on_sample
        self._highest = 0.0
        self._tree = SumTree(1024)
        self._head = self._tail = 1

    def sample(
        self, rng: np.random.Generator, head: int, tail: int, amount: int
    ) -> np.ndarray:
        """Ids of `amount` items, drawn with replacement."""
        if self._tree.total <= 0:
            return rng.integers(head, tail, amount)
        slots = self._tree.draw(rng.random(amount))
        ids = head + (slots - head) % self._tree.leaves
        if self._zero_on_sample:
            self._tree[slots] = 0.0
        return ids

    def change(self, head: int, tail: int) -> None:
        """Items were added up to `tail` and evicted up to `head`."""
        if tail - self._head > self._tree.leaves:
            ids = np.arange(self._head, self._tail)
            self._tree = self._tree.resized(2 * (tail - self._head), ids)
        new = np.arange(self._tail, tail)
        self._tree[new % self._tree.leaves] = self.initial**self._exponent
        old = np.arange(self._head, head)
        self._tree[old % self._tree.leaves] = 0.0
        self._head, self._tail = head, tail

    def update(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of items; NaN stands for the initial priority."""
        there = (ids >= self._head) & (ids < self._tail)
        ids, priorities = ids[there], priorities[there]
        if not ids.size:
            return
        if (priorities < 0).any() or np.isinf(priorities).any():
            raise ValueError("priorities must be finite and not negative")
        self._highest = np.fmax(self._highest, np.fmax.reduce(priorities))
        filled = np.where(np.isnan(priorities), self.initial, priorities)
        self._tree[ids % self._tree.leaves] = filled**self._exponent

    @property
    def initial(self) -> float:
        """Priority of steps that were not updated yet."""
        return self._initial if np.isfinite(self._initial) else self._highest or 1.0


class Mixture(Selector):
    """Each item of a batch is drawn by one of several selectors, by fractions."""

    def __init__(self, selectors: Mapping[str, Selector], fracs: Mapping[str, float]):
        if set(selectors) != set(fracs):
            raise ValueError(f"selectors {set(selectors)} but fractions {set(fracs)}")
        if any(x < 0 for x in fracs.values()) or abs(sum(fracs.values()) - 1) > 1e-6:
            raise ValueError(f"fractions must not be negative and sum to 1: {fracs}")
        used = [name for name in selectors if fracs[name] > 0]
        self._parts = [selectors[name] for name in used]
        self._fracs = np.array([fracs[name] for name in used])
        self.prioritized = any(part.prioritized for part in self._parts)

    def sample(
        self, rng: np.random.Generator, head: int, tail: int, amount: int
    ) -> np.ndarray:
        """Ids of `amount` items, drawn with replacement."""
        counts = rng.multinomial(amount, self._fracs / self._fracs.sum())
        drawn = [
            part.sample(rng, head, tail, int(count))
            for part, count in zip(self._parts, counts, strict=True)
            if count
        ]
        return rng.permutation(np.concatenate(drawn))

    def change(self, head: int, tail: int) -> None:
        """Items were added up to `tail` and evicted up to `head`."""
        for part in self._parts:
            part.change(head, tail)

    def update(self, ids: np.ndarray, priorities: np.ndarray) -> None:
        """Set the priorities of items; NaN stands for the initial priority."""
        for part in self._parts:
            part.update(ids, priorities)
