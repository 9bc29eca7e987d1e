"""Mapped files without a file descriptor each, and memory, as numpy byte arrays."""

from __future__ import annotations

import collections
import ctypes
import mmap
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

PAGE = mmap.PAGESIZE
MADV_NORMAL, MADV_RANDOM, MADV_WILLNEED, MADV_DONTNEED = 0, 1, 3, 4
MADV_NOHUGEPAGE, MADV_POPULATE_WRITE = 15, 23  # Of Linux; others refuse them.
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
Unmap = Callable[[int, int], Any]  # Gets the address and the number of bytes.


class _Region:
    """Mapped bytes.

    They are unmapped when the last array that `np.asarray(mapping)` led to is gone, so
    readers of a deleted file still read valid memory.
    """

    def __init__(self, fd: int, nbytes: int, flags: int, unmap: Unmap = _libc.munmap):
        self.nbytes = nbytes
        self.unmap = unmap
        prot = mmap.PROT_READ | mmap.PROT_WRITE
        self._address = _libc.mmap(None, nbytes, prot, flags, fd, 0)
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

    def advise(self, advice: int, offset: int, nbytes: int) -> None:
        """Advise the kernel about a range; a hint only."""
        begin = offset // PAGE * PAGE
        _libc.madvise(self._address + begin, offset + nbytes - begin, advice)

    def __del__(self) -> None:
        if getattr(self, "_address", None) is not None:
            self.unmap(self._address, self.nbytes)


class Mapping(_Region):
    """A shared, writable mapping of a whole file."""

    def __init__(self, fd: int, nbytes: int, unmap: Unmap):
        super().__init__(fd, nbytes, mmap.MAP_SHARED, unmap)

    def read_ahead(self, on: bool) -> None:
        """Whether touching a page makes the kernel read those after it."""
        _libc.madvise(self._address, self.nbytes, MADV_NORMAL if on else MADV_RANDOM)

    def prefetch(self, offset: int, nbytes: int) -> None:
        """Start to read a part from disk if it is not in memory."""
        self.advise(MADV_WILLNEED, offset, nbytes)

    def release(self) -> None:
        """Drop the pages from this process; the kernel keeps their content."""
        _libc.madvise(self._address, self.nbytes, MADV_DONTNEED)

    def sync(self) -> None:
        """Return once the content is on disk."""
        if _libc.msync(self._address, self.nbytes, MS_SYNC):
            raise _last_error("msync")


class _Pages(_Region):
    """Anonymous memory, zero at first.

    In small pages: under memory ballooning, huge pages come from memory that the host
    must provide again, at a tenth of the speed.
    """

    def __init__(self, nbytes: int):
        super().__init__(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        _libc.madvise(self._address, nbytes, MADV_NOHUGEPAGE)


class Memory:
    """Bytes without a file; their pages return to a pool at the end.

    They return when the last array derived from `np.asarray(memory)` is freed, so pages
    are never reused under a live array. Reused pages keep their old contents.
    """

    def __init__(self, nbytes: int, pool: MemoryPool):
        self._pool = pool
        self._pages, self._fresh = pool.take(nbytes)
        self.__array_interface__ = self._pages.__array_interface__

    def populate(self, offset: int, nbytes: int) -> None:
        """Make the pages of a part at once, cheaper than a fault for each of them."""
        if self._fresh:
            self._pages.advise(MADV_POPULATE_WRITE, offset, nbytes)

    def __del__(self) -> None:
        if hasattr(self, "_pages"):
            self._pool.give(self._pages)


class MemoryPool:
    """Keeps up to `keep` dropped memories for new ones, which then need no zeros.

    Lock-free, since memory may be returned by a destructor at any point.
    """

    def __init__(self, keep: int = 32):
        self._free: collections.deque[_Pages] = collections.deque(maxlen=keep)

    def take(self, nbytes: int) -> tuple[_Pages, bool]:
        """Memory, and whether it is fresh: zero and without pages."""
        for _ in range(len(self._free)):
            try:
                pages = self._free.pop()
            except IndexError:  # Another thread was faster.
                break
            if pages.nbytes == nbytes:
                return pages, False
            self._free.appendleft(pages)  # The first to be dropped if there are many.
        return _Pages(nbytes), True

    def give(self, pages: _Pages) -> None:
        """Take back memory that is no longer read."""
        self._free.append(pages)


class Unmapper:
    """Unmaps files in a thread of its own.

    Unmapping a deleted file frees its pages, which takes a tenth of the time that it
    took to fill them; the thread that drops the last reference should not wait for it.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, int] | None] = queue.SimpleQueue()
        self._closed = False
        self._munmap = _libc.munmap  # Still there at interpreter exit.
        self._thread = threading.Thread(target=self._run, daemon=True, name="unmap")
        self._thread.start()

    def __call__(self, address: int, nbytes: int) -> None:
        """Unmap soon. Takes no lock, since destructors run at arbitrary points."""
        if self._closed:
            self._munmap(address, nbytes)
        else:
            self._queue.put((address, nbytes))

    def close(self) -> None:
        """Finish the queue. Later calls unmap synchronously."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (region := self._queue.get()) is not None:
            self._munmap(*region)


def allocate(fd: int, nbytes: int) -> None:
    """Reserve the disk space, so that a full disk shows here and not as a SIGBUS."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, nbytes)
    else:
        os.ftruncate(fd, nbytes)


def _last_error(what: str) -> OSError:
    code = ctypes.get_errno()
    return OSError(code, f"{what}: {os.strerror(code)}")
