"""Which form of a function runs: the plain one, or the one for XLA on a CPU."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Generic, ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")
# Whether programs are traced for another platform than that of this process.
_plain = contextvars.ContextVar("plain", default=False)


class Kernel(Generic[P, R]):
    """A plain function with a fast form that takes and returns the same."""

    def __init__(self, plain: Callable[P, R], fast: Callable[P, R]):
        functools.update_wrapper(self, plain)
        self.plain, self.fast = plain, fast

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return (self.fast if on_one_cpu() else self.plain)(*args, **kwargs)


def fast_on_cpu(
    fast: Callable[P, R],
) -> Callable[[Callable[P, R]], Kernel[P, R]]:
    """Decorate a plain function with the form that runs on a CPU instead."""

    def decorate(plain: Callable[P, R]) -> Kernel[P, R]:
        return Kernel(plain, fast)

    return decorate


@contextlib.contextmanager
def lowering_for(platforms: Sequence[str]) -> Iterator[None]:
    """Trace programs for platforms that need not be here: plain unless all are CPUs.

    What JAX has traced before is forgotten, since it does not know of this choice.
    """
    if set(platforms) == {"cpu"}:
        yield
        return
    token = _plain.set(True)
    jax.clear_caches()
    try:
        yield
    finally:
        _plain.reset(token)
        jax.clear_caches()


def on_one_cpu() -> bool:
    """Whether JAX runs on a CPU and no array is split over devices.

    Either there is only one device, or each has its own rows. The fast forms reshape
    and join arrays, which would move those that are split.
    """
    on_cpu = jax.default_backend() == "cpu" and not _plain.get()
    return on_cpu and (jax.device_count() == 1 or on_own_rows())


def on_own_rows() -> bool:
    """Whether this is traced for one device of several, in `sharding.by_rows`."""
    return jax.sharding.get_abstract_mesh().are_all_axes_manual
