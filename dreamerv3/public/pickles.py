"""Reads pickles of numbers, strings, containers and NumPy arrays; executes nothing.

A pickle is a program that may call whatever it names. Here it can name only the parts
of NumPy arrays of numbers, and gets a stand-in for each of them, so that NumPy never
sees arguments that were not checked.
"""

from __future__ import annotations

import os
import pathlib
import pickle
import pickletools
import re
import reprlib
from typing import Any, BinaryIO

import numpy as np

from embodied.core.checkpoint import CheckpointError

NUMBERS = re.compile(r"[fiu][1248]|b1")  # Codes of plain dtypes.
BYTE_ORDERS = "<>=|"
# Opcodes that leave what `ALLOWED` names, and what others leave if it may be a tuple.
CALLS = ("GLOBAL", "STACK_GLOBAL", "REDUCE", "NEWOBJ")
UNKNOWN: tuple[list[Any], ...] = (
    [],
    [pickletools.pytuple],
    [pickletools.anyobject],
)
NAME, REASON = 80, 200  # Characters of a pickle that are quoted in messages.


class RejectedError(Exception):
    """A pickle holds or names something other than plain data."""


def read(path: pathlib.Path) -> Any:
    """The tree in a pickle file, with read-only arrays."""
    try:
        with path.open("rb") as file:
            _check_program(file)
            return _finish(_Unpickler(file).load(), {})
    except RejectedError as error:
        raise CheckpointError(
            f"{path} {error}, and was not executed: give a checkpoint of the public "
            "DreamerV3, which has only NumPy arrays, dicts, strings and numbers"
        ) from None
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
    except Exception as error:  # A damaged pickle fails in many ways.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:REASON]
        raise CheckpointError(
            f"{path} is truncated or damaged ({reason}): copy it again, or give the "
            "folder of another checkpoint"
        ) from error


def _check_program(file: BinaryIO) -> None:
    """Reject what would keep the unpickler busy for long, or fill the memory.

    It allocates memory for all memo slots up to the largest one. It hashes the keys of
    dicts, which takes exponential time for tuples that hold the same tuple repeatedly.
    """
    size = os.fstat(file.fileno()).st_size
    slots: dict[int, bool] = {}  # Memo slots, and whether they may hold a tuple.
    is_tuple = False  # What the previous opcode left on the stack, as far as is known.
    for opcode, slot, _ in pickletools.genops(file):
        match opcode.name:
            case "FRAME":
                continue  # May be anywhere.
            case "PUT" | "LONG_BINPUT" if (slot or 0) > size:
                raise RejectedError(f"has {size} bytes and a memo of {slot} slots")
            case "PUT" | "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                slots[len(slots) if slot is None else int(slot)] = is_tuple
            case "DUP":
                raise RejectedError("repeats a value by DUP, as Python never does")
            case "GET" | "BINGET" | "LONG_BINGET" if slots.get(int(slot or 0)):
                raise RejectedError("has the same tuple in several places")
        left = opcode.stack_after[-1:]
        is_tuple = opcode.name not in CALLS and left in UNKNOWN
    file.seek(0)


# All stand-ins are classes with a `__setstate__`: a pickle could set attributes of
# functions and of other classes.
class _Dtype:
    """Stands for `numpy.dtype`: numbers in either byte order."""

    def __init__(self, code: str, align: bool = False, copy: bool = False):
        del align, copy
        if not isinstance(code, str) or not NUMBERS.fullmatch(code):
            raise RejectedError(f"has an array of {reprlib.repr(code)}")
        self.value = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order, rest = state[1], state[2:5]  # The others are of structured types.
        if order not in BYTE_ORDERS or rest != (None, None, None):
            raise RejectedError("has an array of a structured type")
        self.value = self.value.newbyteorder(order)


class _Array:
    """Stands for `numpy.ndarray`."""

    value: Any

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, content = state
        numbers = _numbers(content, dtype)
        self.value = numbers.reshape(shape, order="F" if is_fortran else "C")


class _Reconstructed(_Array):
    """An array whose shape, type and content follow."""

    def __init__(self, kind: type, shape: Any, code: Any):
        del kind, shape, code


class _FromBuffer(_Array):
    """An array that was pickled as a buffer."""

    def __init__(self, content: Any, dtype: _Dtype, shape: Any, order: Any):
        self.__setstate__((1, shape, dtype, order == "F", content))


class _Scalar(_Array):
    """A NumPy scalar, which becomes a plain number."""

    def __init__(self, dtype: _Dtype, content: Any):
        (self.value,) = _numbers(content, dtype).tolist()


def _numbers(content: Any, dtype: _Dtype) -> np.ndarray:
    """The numbers in some bytes; given an integer, `bytes` would allocate that many."""
    if not isinstance(content, bytes | bytearray):
        raise RejectedError(f"has an array made of {type(content).__name__}")
    return np.frombuffer(bytes(content), dtype.value)


# Modules are called numpy._core since NumPy 2, and numpy.core before.
ALLOWED = {
    "numpy.ndarray": _Array,
    "numpy.dtype": _Dtype,
    "numpy._core.multiarray._reconstruct": _Reconstructed,
    "numpy._core.multiarray.scalar": _Scalar,
    "numpy._core.numeric._frombuffer": _FromBuffer,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        full = re.sub(r"^numpy\.core\b", "numpy._core", f"{module}.{name}")
        if full not in ALLOWED:
            raise RejectedError(f"asks for {f'{module}.{name}'!r:.{NAME}}")
        return ALLOWED[full]

    def persistent_load(self, pid: Any) -> Any:
        raise RejectedError(f"asks for the external object {reprlib.repr(pid)}")


def _finish(node: Any, done: dict[int, Any]) -> Any:
    """The tree with arrays for their stand-ins; raises if it has anything else.

    `done` has the containers so far by identity: those that occur more than once are
    shared, as a few nested ones could otherwise fill the memory.
    """
    if id(node) in done:
        return done[id(node)]
    match node:
        case _Array():
            return node.value
        case dict():
            items = node.items()
            result: Any = {_finish(k, done): _finish(v, done) for k, v in items}
        case list() | tuple():
            result = type(node)(_finish(each, done) for each in node)
        case None | bool() | int() | float() | str() | bytes():
            return node
        case _:
            raise RejectedError(f"has a {type(node).__name__.strip('_').lower()}")
    done[id(node)] = result
    return result
