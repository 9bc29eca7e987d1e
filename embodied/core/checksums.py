"""Checksums of all files in a directory, kept in a file beside them.

Each line holds the CRC-32, the size and the path of a file; the last line is the CRC-32
of all lines before it. So one that changed anywhere, here as well, is noticed.
"""

from __future__ import annotations

import pathlib
import zlib
from collections.abc import Iterator

FILE = "checksums.txt"
BLOCK = 1 << 20  # Bytes read at a time.


class DamageError(Exception):
    """A file is not as it was written; says which one, what is expected and found."""


def write(directory: pathlib.Path) -> None:
    """Note the checksums of all files below a directory."""
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    rows = [f"{_sum(path)} {path.relative_to(directory)}\n" for path in paths]
    text = "".join(rows)
    (directory / FILE).write_text(f"{text}{_crc(text.encode()):08x}\n")


def check(directory: pathlib.Path) -> None:
    """Raise `DamageError` if a file is missing or not as it was at `write`."""
    for path, expected in _read(directory):
        if not path.is_file():
            raise DamageError(f"{path} is missing")
        if (found := _sum(path)) != expected:
            raise DamageError(
                f"{path} is damaged (CRC-32 and bytes {found} instead of {expected})"
            )


def _read(directory: pathlib.Path) -> Iterator[tuple[pathlib.Path, str]]:
    """Each file and its sum; raises first if the list itself is damaged."""
    path = directory / FILE
    content = path.read_bytes()
    text, own = content[:-9], content[-9:]  # Eight digits and the end of the line.
    found = f"{_crc(text):08x}\n".encode()
    if own != found:
        expected = own.decode(errors="replace").strip()
        raise DamageError(
            f"{path} is damaged (CRC-32 {found.decode().strip()} instead of {expected})"
        )
    for row in text.decode().splitlines():
        crc, size, name = row.split(" ", 2)
        yield directory / name, f"{crc} {size}"


def _sum(path: pathlib.Path) -> str:
    """CRC-32 and size of a file."""
    crc = size = 0
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            crc, size = _crc(block, crc), size + len(block)
    return f"{crc:08x} {size}"


def _crc(data: bytes, before: int = 0) -> int:
    return zlib.crc32(data, before)
