"""Atomic file writes: a reader sees the old content or all of the new one.

A durable write returns once the content would survive a power failure. A process that
is killed while it writes leaves a hidden file that ends in `.tmp`. Reads of files that
others wrote are bounded: they neither block nor exceed a size.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pathlib
import secrets
import stat
from collections.abc import Callable, Iterator
from typing import BinaryIO

log = logging.getLogger(__name__)
TEMPORARY = ".tmp"
Path = str | os.PathLike[str]


def write_text(path: Path, text: str, durable: bool = False) -> None:
    """Replace a file by a text in UTF-8; makes missing directories."""
    write_bytes(path, text.encode(), durable)


def write_bytes(path: Path, content: bytes, durable: bool = False) -> None:
    """Replace a file; makes missing directories."""
    with replace(path, durable) as file:
        file.write(content)


def write_status(path: Path, text: str) -> None:
    """Replace a file that only informs: a failure is logged and not raised."""
    try:
        write_text(path, text)
    except OSError as error:
        log.warning("Cannot write %s: %s", path, error)


def replace(
    path: Path, durable: bool = False
) -> contextlib.AbstractContextManager[BinaryIO]:
    """A stream whose content replaces a file when the block ends without an error."""
    return _written(path, os.replace, durable)


def create(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file durably unless it exists.

    If several processes do so at once, the content of one of them remains. The umask
    applies to the permissions in `mode`.
    """
    with (
        contextlib.suppress(FileExistsError),
        _written(path, os.link, durable=True, mode=mode) as file,
    ):
        file.write(content)


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read; a directory, pipe or device is an error and never waits."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, limit: int, errors: str = "strict") -> str:
    """A text in UTF-8 from a regular file of at most `limit` bytes."""
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    return content.decode(errors=errors)


def sync(path: Path) -> None:
    """Flush a file, or the names in a directory, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def tree_size(directory: Path) -> int:
    """Bytes of all files below a directory."""
    found = pathlib.Path(directory).rglob("*")
    return sum(path.stat().st_size for path in found if path.is_file())


def sync_tree(directory: Path) -> None:
    """Flush a directory and everything below it to disk."""
    for path in sorted(pathlib.Path(directory).rglob("*")):
        sync(path)
    sync(directory)


@contextlib.contextmanager
def _written(
    path: Path,
    publish: Callable[[pathlib.Path, pathlib.Path], None],
    durable: bool,
    mode: int = 0o666,
) -> Iterator[BinaryIO]:
    """Write under a name that no other writer uses, then publish that file."""
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}{TEMPORARY}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, mode)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(descriptor)
        publish(temporary, target)
        if durable:
            sync(target.parent)
    finally:
        temporary.unlink(missing_ok=True)
