"""Converts values of other libraries' spaces to ours and back.

A codec stands for one space of an environment: it has the keys and spaces the agent
sees, encodes an observation into values of these keys, and decodes an action from them.
"""

from __future__ import annotations

import abc
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import elements
import numpy as np

from embodied.core import arrays, base, env_rules

MIN_SIDE = 16  # Pixels; smaller arrays of bytes are numbers rather than images.
MAX_CHANNELS = 16
MAX_CLASSES = 65536  # Of a discrete value; the agent sees it one-hot.
MAX_LEVELS = 64  # Of an integer with bounds; with more it is a number.
MAX_PARTS = 64  # Keys into which choices of different sizes are split.


class UnsupportedSpaceError(ValueError):
    """A space that has no counterpart here; the message names its key."""

    def __init__(self, message: str, remedy: str):
        super().__init__(message)
        self.remedy = remedy


class Codec(abc.ABC):
    """One space of an environment, or a group of them."""

    spaces: base.Spaces  # What the agent sees of it, by key.
    notes: Sequence[str] = ()  # What a person should know of the conversion.

    @abc.abstractmethod
    def encode(self, value: Any) -> dict[str, np.ndarray]:
        """The agent's view of a value."""

    @abc.abstractmethod
    def decode(self, values: Mapping[str, Any]) -> Any:
        """The value that the agent's view stands for."""

    @abc.abstractmethod
    def check(self, value: Any, what: str) -> Iterator[env_rules.Fault]:
        """What is wrong with a value by the environment's own space."""


class Leaf(Codec):
    """One array; `own` is the environment's space of it."""

    def __init__(self, key: str, own: elements.Space):
        self.key, self.own = key, own

    def encode(self, value: Any) -> dict[str, np.ndarray]:
        return {self.key: self._encode(arrays.as_array(value))}

    def decode(self, values: Mapping[str, Any]) -> Any:
        value = self._decode(arrays.as_array(values[self.key]))
        return arrays.cast(value, self.own.dtype)

    def check(self, value: Any, what: str) -> Iterator[env_rules.Fault]:
        name = f"{what} '{self.key}'"
        return env_rules.value_faults(value, self.own, name, bounded=False)

    @abc.abstractmethod
    def _encode(self, value: np.ndarray) -> np.ndarray:
        pass

    @abc.abstractmethod
    def _decode(self, value: np.ndarray) -> np.ndarray:
        pass


class Numbers(Leaf):
    """Numbers as float32; observations are unbounded, since bounds are often wrong."""

    def __init__(self, key: str, own: elements.Space, action: bool = False):
        super().__init__(key, own)
        self._flat = len(own.shape) > 2
        shape = (math.prod(own.shape),) if self._flat else own.shape
        low, high = _bounds(own)
        self._low, self._high = low, high
        limits = (low.reshape(shape), high.reshape(shape)) if action else (None, None)
        self.spaces = {key: elements.Space(np.float32, shape, *limits)}
        if action and not (np.isfinite(low) & np.isfinite(high)).all():
            note = f"action '{key}' has no bounds: the agent acts within -1 and 1"
            self.notes = [f"{note}; give its Box bounds to use more of it"]

    def _encode(self, value: np.ndarray) -> np.ndarray:
        value = value.astype(np.float32)
        return value.ravel() if self._flat else value

    def _decode(self, value: np.ndarray) -> np.ndarray:
        value = value.reshape(self.own.shape)
        return arrays.namespace(value).clip(value, self._low, self._high)


class Choices(Leaf):
    """Integers with a few classes each, counted from 0."""

    def __init__(self, key: str, own: elements.Space, start: Any = 0, classes: int = 2):
        super().__init__(key, own)
        self._start, self._classes = start, classes
        # An agent has to have two choices, even where they do the same.
        self.spaces = {key: elements.Space(np.int32, own.shape, 0, max(2, classes))}

    def decode(self, values: Mapping[str, Any]) -> Any:
        return super().decode(values)[()]  # A number can be a key, an array cannot.

    def _encode(self, value: np.ndarray) -> np.ndarray:
        return arrays.cast(arrays.cast(value, np.int64) - self._start, np.int32)

    def _decode(self, value: np.ndarray) -> np.ndarray:
        value = arrays.namespace(value).minimum(value, self._classes - 1)
        return arrays.as_array(arrays.cast(value, np.int64) + self._start)


class Image(Leaf):
    """Images of any layout and range as bytes [height, width, channels]."""

    def __init__(self, key: str, own: elements.Space):
        super().__init__(key, own)
        self._axes = _axes(own.shape)
        sides = [[own.shape[axis] for axis in group] for group in self._axes]
        self._shape = tuple(math.prod(group) for group in sides)
        self._low, self._high = float(np.min(own.low)), float(np.max(own.high))
        self.spaces = {key: elements.Space(np.uint8, self._shape)}
        self.notes = []
        if self._shape != own.shape:
            self.notes = [
                f"image '{key}' of shape {own.shape} is rearranged to {self._shape}; "
                "give [height, width, channels] if that is not what it means"
            ]
        if own.dtype != np.uint8:
            self.notes += [
                f"image '{key}' of {own.dtype} from {self._low:g} to {self._high:g} "
                "is turned into bytes; give uint8 from 0 to 255 to save the time"
            ]

    def _encode(self, value: np.ndarray) -> np.ndarray:
        if value.shape != self.own.shape:
            return value  # The check of values names the key.
        if self.own.dtype != np.uint8:
            value = (value - self._low) * (255 / (self._high - self._low))
            value = arrays.namespace(value).clip(value + 0.5, 0, 255).astype(np.uint8)
        order = [axis for group in self._axes for axis in group]
        return value.transpose(order).reshape(self._shape).copy()  # In order in memory.

    def _decode(self, value: np.ndarray) -> np.ndarray:
        raise AssertionError("images are observed, not done")


class Group(Codec):
    """Several codecs; `pick` takes a value apart and `build` puts it together."""

    def __init__(
        self,
        children: Mapping[Any, Codec],
        build: Callable[[dict[Any, Any]], Any],
        pick: Callable[[Any, Any], Any] = operator.getitem,
    ):
        self._children, self._pick, self._build = dict(children), pick, build
        parts = list(self._children.values())
        self.spaces = {k: v for part in parts for k, v in part.spaces.items()}
        self.notes = [note for part in parts for note in part.notes]
        if len(self.spaces) != sum(len(part.spaces) for part in parts):
            names = [key for part in parts for key in part.spaces]
            double = sorted({key for key in names if names.count(key) > 1})
            message = f"two of its spaces would be called {double}"
            raise UnsupportedSpaceError(message, "rename one of them")

    def encode(self, value: Any) -> dict[str, np.ndarray]:
        parts = [c.encode(self._pick(value, k)) for k, c in self._children.items()]
        return {k: v for part in parts for k, v in part.items()}

    def decode(self, values: Mapping[str, Any]) -> Any:
        return self._build({k: c.decode(values) for k, c in self._children.items()})

    def check(self, value: Any, what: str) -> Iterator[env_rules.Fault]:
        named = all(isinstance(key, str) for key in self._children)
        if not isinstance(value, Mapping if named else Mapping | list | tuple):
            kind = "dictionary" if named else "tuple"
            keys = ", ".join(f"'{key}'" for key in self.spaces)
            wrong = f"{what} with {keys} is not a {kind}"
            remedy = f"return a {kind}, as the space says"
            found = type(value).__name__
            yield env_rules.Fault(env_rules.VALUES, wrong, found, remedy)
            return
        there = value if isinstance(value, Mapping) else dict(enumerate(value))
        parts: dict[str, Any] = {}  # As the agent names them.
        for key in there:
            child = self._children.get(key)
            parts |= child.spaces if child else {str(key): None}
        yield from env_rules.missing_faults(parts, self.spaces, what)
        for key, child in self._children.items():
            if key in there:
                yield from child.check(there[key], what)


class Split(Group):
    """An array of which each element is a choice with a key of its own."""

    def __init__(self, key: str, own: elements.Space, children: Mapping[int, Codec]):
        super().__init__(children, self._join, self._part)
        self.key, self.own = key, own

    def check(self, value: Any, what: str) -> Iterator[env_rules.Fault]:
        return env_rules.value_faults(value, self.own, f"{what} '{self.key}'")

    def _part(self, value: Any, index: int) -> Any:
        return arrays.as_array(value).reshape(-1)[index]

    def _join(self, values: dict[int, Any]) -> Any:
        flat = to_list(values)
        joined = arrays.namespace(flat[0]).stack(flat).reshape(self.own.shape)
        return arrays.cast(joined, self.own.dtype)


def to_tuple(parts: dict[int, Any]) -> tuple:
    """Numbered parts in order."""
    return tuple(parts[index] for index in range(len(parts)))


def to_list(parts: dict[int, Any]) -> list:
    """Numbered parts in order."""
    return list(to_tuple(parts))


class Namer:
    """Keys for the parts of an observation or action.

    Parts of the outermost dictionary keep their names, deeper ones are joined by
    slashes, and a name that is taken gets the root before it.
    """

    def __init__(self, root: str, taken: Sequence[str] = ()):
        self.root = root
        self._taken = {*base.RESERVED, *taken}

    def join(self, key: str, child: Any) -> str:
        top = key == self.root and isinstance(child, str)
        return self.safe(child if top else f"{key}/{child}")

    def safe(self, key: str) -> str:
        """The key, or one under the root where it would mean something else."""
        bad = key in self._taken or base.is_logged(key) or not key
        return f"{self.root}/{key}" if bad else key


def box(dtype: Any, shape: Sequence[int], low: Any, high: Any) -> elements.Space:
    """A space from inclusive bounds; integer spaces exclude their upper end."""
    dtype, shape = np.dtype(dtype), tuple(shape)
    if dtype.kind in "iu":
        # The largest number has no successor: then it is left out of the bounds.
        high = np.where(high < np.iinfo(dtype).max, np.asarray(high) + 1, high)
        return elements.Space(dtype, shape, np.asarray(low, dtype), high.astype(dtype))
    return elements.Space(dtype, shape, low, high)


def leaf(key: str, own: elements.Space, action: bool, limit: int = MAX_LEVELS) -> Codec:
    """The codec of an array; integers with up to `limit` values are choices."""
    kind = own.dtype.kind
    if kind not in "biuf":
        remedy = "wrap the environment to give numbers instead"
        raise UnsupportedSpaceError(f"'{key}' holds {own.dtype}, not numbers", remedy)
    if not action and _looks_like_image(own):
        return Image(key, own)
    if kind == "f":
        return Numbers(key, own, action)
    low, counts = _levels(own)
    few = (counts <= limit).all() and len(own.shape) <= 2
    if few and len(np.unique(counts)) == 1:
        start = low if low.any() else 0
        return Choices(key, own, start, int(counts.flat[0]))
    if (counts <= limit).all() and counts.size <= MAX_PARTS:
        return _split(key, own, low, counts)
    if action:
        message = f"action '{key}' is a whole number from {own.low} to {own.high - 1}"
        raise UnsupportedSpaceError(message, "use Discrete, or a Box of float32")
    return Numbers(key, own)


def _split(key: str, own: elements.Space, low: np.ndarray, counts: np.ndarray) -> Codec:
    """One key per element, because the number of classes differs between them."""

    children = {}
    for index, (start, count) in enumerate(zip(low.flat, counts.flat, strict=True)):
        part = elements.Space(own.dtype, (), int(start), int(start + count))
        name = f"{key}/{index}"
        children[index] = Choices(name, part, int(start), int(count))
    return Split(key, own, children)


def _bounds(own: elements.Space) -> tuple[np.ndarray, np.ndarray]:
    """Inclusive bounds as float32, infinite where they do not fit into one."""
    low, high = np.asarray(own.low, np.float64), np.asarray(own.high, np.float64)
    if own.discrete:
        high = high - 1
    limit = float(np.finfo(np.float32).max) / 2
    low = np.where(low < -limit, -np.inf, low).astype(np.float32)
    high = np.where(high > limit, np.inf, high).astype(np.float32)
    return np.broadcast_to(low, own.shape), np.broadcast_to(high, own.shape)


def _levels(own: elements.Space) -> tuple[np.ndarray, np.ndarray]:
    """The lowest value of each element and how many values it has."""
    if own.dtype == bool:
        return np.zeros(own.shape, np.int64), np.full(own.shape, 2)
    low = np.broadcast_to(np.asarray(own.low, np.int64), own.shape)
    counts = np.asarray(own.high, np.float64) - np.asarray(own.low, np.float64)
    if own.dtype == np.uint8 and np.max(own.high) == 255:
        counts = counts + 1  # The space cannot say 256.
    return low, np.broadcast_to(counts, own.shape)


def _looks_like_image(own: elements.Space) -> bool:
    axes = _axes(own.shape)
    if not axes or own.dtype == bool:
        return False
    if own.dtype == np.uint8:
        return True
    finite = np.isfinite(own.low).all() and np.isfinite(own.high).all()
    same = finite and np.ptp(own.low) == 0 and np.ptp(own.high) == 0
    return own.dtype.kind == "f" and len(own.shape) > 2 and bool(same)


def _axes(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Which axes are height, width and channels; empty if it is no image."""
    layouts: dict[int, list[tuple[tuple[int, ...], ...]]] = {
        2: [((0,), (1,), ())],
        3: [((0,), (1,), (2,)), ((1,), (2,), (0,))],
        4: [((1,), (2,), (0, 3)), ((2,), (3,), (0, 1))],  # Stacks of frames.
    }
    for axes in layouts.get(len(shape), []):
        rows, columns, channels = ([shape[i] for i in group] for group in axes)
        large = rows[0] >= MIN_SIDE and columns[0] >= MIN_SIDE
        if large and math.prod(channels) <= MAX_CHANNELS:
            return axes
    return ()
