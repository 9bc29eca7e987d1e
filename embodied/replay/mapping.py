"""Memory-mapped files without a file descriptor each, as numpy byte arrays."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

PAGE = mmap.PAGESIZE
MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED = 0, 1, 3, 4
MS_SYNC = 4 if os.uname().sysname == "Linux" else 0x10

# The `mmap` module of Python keeps a descriptor open for each mapping, and a replay of
# millions of steps maps more files than the usual limit of open ones. Calls through
# ctypes also release the interpreter lock while the kernel works.
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_INT = ctypes.c_int
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    _INT,
    _INT,
    _INT,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_libc.msync.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A shared, writable mapping of a whole file.

    It is unmapped when the last array that `np.asarray(mapping)` led to is gone, so
    whoever still reads a deleted file reads valid memory.
    """

    _munmap = staticmethod(_libc.munmap)  # Still there at interpreter exit.

    def __init__(self, fd: int, nbytes: int):
        self.nbytes = nbytes
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        self._address = _libc.mmap(None, nbytes, prot, mmap.MAP_SHARED, fd, 0)
        if self._address == _FAILED:
            self._address = None
            raise _last_error("mmap")

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": "|u1",
            "shape": (self.nbytes,),
            "data": (self._address, False),
        }

    def read_ahead(self, on: bool) -> None:
        """Whether touching a page makes the kernel read those after it."""
        _libc.madvise(self._address, self.nbytes, MADV_NORMAL if on else MADV_RANDOM)

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Start to read a part from disk if it is not in memory."""
        begin = offset // PAGE * PAGE
        address = self._address + begin
        _libc.madvise(address, offset + nbytes - begin, MADV_WILLNEED)

    def release(self) -> None:
        """Drop the pages from this process; the kernel keeps their content."""
        _libc.madvise(self._address, self.nbytes, MADV_DONTNEED)

    def sync(self) -> None:
        """Return once the content is on disk."""
        if _libc.msync(self._address, self.nbytes, MS_SYNC):
            raise _last_error("msync")

    def __del__(self) -> None:
        if getattr(self, "_address", None) is not None:
            self._munmap(self._address, self.nbytes)


def open_mapping(path: Path, nbytes: int) -> Mapping:
    """Map an existing file of at least `nbytes` bytes."""
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Mapping(fd, nbytes)
    finally:
        os.close(fd)


def allocate(fd: int, nbytes: int) -> None:
    """Reserve the disk space, so that a full disk shows here and not as a SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
    else:
        os.ftruncate(fd, nbytes)


def memory(nbytes: int) -> np.ndarray:
    """Plain zeroed memory, for a replay without a directory."""
    return np.zeros(nbytes, np.uint8)


def _last_error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
