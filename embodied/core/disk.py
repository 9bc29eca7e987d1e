"""A full disk: which file system has no room, and waiting until it has."""

from __future__ import annotations

import errno
import os
import pathlib
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

import elements

T = TypeVar("T")
FULL = (errno.ENOSPC, errno.EDQUOT)
POLL = 1.0  # Seconds between attempts.


class DiskFullError(OSError):
    """What has no room, the file system, and the space needed."""

    def __str__(self) -> str:
        return str(self.strerror)


def is_full(error: BaseException) -> bool:
    """Whether an error means that there is no room on a disk.

    Libraries may only pass the text on that the system has for it.
    """
    texts = [os.strerror(code) for code in FULL]
    return any(
        getattr(each, "errno", None) in FULL or any(text in str(each) for text in texts)
        for each in _chain(error)
    )


def full_error(path: str | os.PathLike, needed: int, what: str) -> DiskFullError:
    """The error for something that has no room at a path."""
    found = _existing(pathlib.Path(path).absolute())
    mount = next(each for each in (found, *found.parents) if each.is_mount())
    stat = os.statvfs(found)
    return DiskFullError(
        errno.ENOSPC,
        f"no room for {what}: it needs {needed:,} bytes in {path}, the file system "
        f"{mount} has {stat.f_bavail * stat.f_frsize:,} left; free disk space",
    )


def require(directory: str | os.PathLike, nbytes: int, what: str) -> None:
    """Raise unless so many bytes can be written now, whatever limits them."""
    try:
        with tempfile.TemporaryFile(dir=_existing(pathlib.Path(directory))) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, nbytes)
    except OSError as error:
        if not is_full(error):
            raise
        raise full_error(directory, nbytes, what) from error


class Room:
    """Repeats what fails on a full disk until there is room, and says so once."""

    def __init__(self, who: str):
        self._who = who
        self._lacking = False
        self._over = threading.Event()

    @property
    def lacking(self) -> bool:
        """Whether the last attempt found no room."""
        return self._lacking

    def retry(self, call: Callable[[], T]) -> T:
        """What a call returns; waits for room unless `give_up` was called."""
        while True:
            try:
                result = call()
            except OSError as error:
                if not is_full(error) or self._over.is_set():
                    raise
                self.lack(error)
                self._over.wait(POLL)
            else:
                self.found()
                return result

    def lack(self, error: BaseException) -> None:
        """Report that there is no room, unless that is known."""
        if not self._lacking:
            self._lacking = True
            text = f"The {self._who} waits: {error}. It continues by itself then."
            elements.print(text, color="yellow", flush=True)

    def found(self) -> None:
        """Report that there is room again, if there was none."""
        if self._lacking:
            self._lacking = False
            elements.print(f"The {self._who} has disk space again.", flush=True)

    def give_up(self, now: bool = True) -> None:
        """Whether to raise at once instead of waiting, as the run ends."""
        (self._over.set if now else self._over.clear)()


def _existing(path: pathlib.Path) -> pathlib.Path:
    """The path, or the closest directory above it that exists."""
    return next(each for each in (path, *path.parents) if each.exists())


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
