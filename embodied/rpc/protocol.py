"""The messages between client and server: a fixed preamble, a method, a payload.

A message is a header and any number of array frames. The header is the preamble below,
one byte with the length of the method's name, the name, and the msgpack payload.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from embodied.rpc import encoding, errors

MAGIC = b"dr"
VERSION = 2

# Kinds of messages.
REQUEST = 1  # To the server: call a method with `[args, kwargs]`.
REPLY = 2  # To the client: what it returned.
ERROR = 3  # To the client: `[type, message, traceback]` of why it did not.
KINDS = range(REQUEST, ERROR + 1)

_PREAMBLE = struct.Struct("<2sBBIQ")
_START = _PREAMBLE.size + 1
MAX_TEXT = 1 << 16  # Characters of an error's message or traceback.


class Header(NamedTuple):
    """The parsed header of a message."""

    kind: int
    frames: int  # How many array frames follow.
    id: int  # Of the call; unique within its client.
    method: bytes
    payload: memoryview


def pack(
    kind: int,
    call: int,
    method: bytes = b"",
    payload: bytes = b"",
    frames: list[encoding.Buffer] | None = None,
) -> list[encoding.Buffer]:
    """The frames of a message."""
    count = len(frames) if frames else 0
    preamble = _PREAMBLE.pack(MAGIC, VERSION, kind, count, call)
    header = b"".join((preamble, bytes((len(method),)), method, payload))
    return [header, *frames] if frames else [header]


def parse(header: bytes) -> Header:
    """Parse a header; raises `DecodeError` if it is not one of ours."""
    if len(header) < _START:
        raise errors.DecodeError(f"malformed header of {len(header)} bytes")
    magic, version, kind, frames, call = _PREAMBLE.unpack_from(header)
    if magic != MAGIC or kind not in KINDS:
        raise errors.DecodeError("malformed header")
    if version != VERSION:
        raise errors.DecodeError(
            f"the peer speaks version {version} of the protocol, this is {VERSION}"
        )
    stop = _START + header[_START - 1]
    if stop > len(header):
        raise errors.DecodeError("malformed header: the method's name is cut off")
    payload = memoryview(header)[stop:]
    return Header(kind, frames, call, header[_START:stop], payload)


def pack_error(kind: str, message: str, traceback: str) -> bytes:
    """The payload of an error, cut to a size that can always be sent."""
    return encoding.encode(
        [_legal(kind), _legal(message[:MAX_TEXT]), _legal(traceback[-MAX_TEXT:])]
    )[0]


def parse_error(tree: Any) -> tuple[str, str, str]:
    """Type, message and traceback from the decoded payload of an error."""
    if type(tree) is not list or [type(text) for text in tree] != [str, str, str]:
        raise errors.DecodeError("malformed error reply")
    return tree[0], tree[1], tree[2]


def _legal(text: str) -> str:
    """The text with what UTF-8 cannot hold replaced."""
    return text.encode("utf-8", "backslashreplace").decode()
