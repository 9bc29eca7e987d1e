"""The messages between client and server: a fixed preamble, a method, a payload.

A message is a header and any number of array frames. The header is the preamble below,
one byte with the length of the method's name, the name, and the msgpack payload.
"""

from __future__ import annotations

import secrets
import struct
from typing import Any, NamedTuple

from embodied.rpc import encoding, errors

MAGIC = b"dr"
VERSION = 1

# Kinds of messages; requests, hello and ack go to the server, the others come back.
REQUEST = 1  # Call a method with `[args, kwargs]`.
REPLY = 2  # What it returned.
ERROR = 3  # `[type, message, traceback]` of why it did not.
HELLO = 4  # `[id, ...]` of all unanswered calls: send me what you have.
WELCOME = 5  # `[id, ...]` of those calls that never arrived: send them again.
ACK = 6  # Nothing but the field `ack`.
KINDS = range(REQUEST, ACK + 1)

_PREAMBLE = struct.Struct("<2sBBIQQQQ")
_START = _PREAMBLE.size + 1
MAX_TEXT = 1 << 16  # Characters of an error's message or traceback.


class Header(NamedTuple):
    """What a header says; ids are unique within a session."""

    kind: int
    frames: int  # How many array frames follow.
    session: int  # Of the client.
    id: int  # Of the call, from 1.
    ack: int  # The client has the replies of all calls up to this id.
    server: int  # Session of the server; 0 in a request that any server may execute.
    method: bytes
    payload: memoryview


def new_session() -> int:
    """A number that no other client or server has."""
    return secrets.randbits(64) | 1


def pack(
    kind: int,
    session: int,
    call: int = 0,
    ack: int = 0,
    server: int = 0,
    method: bytes = b"",
    payload: bytes = b"",
    frames: list[encoding.Buffer] | None = None,
) -> list[encoding.Buffer]:
    """The frames of a message."""
    count = len(frames) if frames else 0
    fields = (MAGIC, VERSION, kind, count, session, call, ack, server)
    header = _PREAMBLE.pack(*fields) + bytes((len(method),)) + method + payload
    return [header, *frames] if frames else [header]


def parse(header: bytes) -> Header:
    """What a header says; `DecodeError` if it is not one of ours."""
    if len(header) < _START:
        raise errors.DecodeError(f"malformed header of {len(header)} bytes")
    magic, version, kind, *fields = _PREAMBLE.unpack_from(header)
    if magic != MAGIC or kind not in KINDS:
        raise errors.DecodeError("malformed header")
    if version != VERSION:
        raise errors.DecodeError(
            f"the peer speaks version {version} of the protocol, this is {VERSION}"
        )
    stop = _START + header[_START - 1]
    if stop > len(header):
        raise errors.DecodeError("malformed header: the method's name is cut off")
    view = memoryview(header)
    return Header._make((kind, *fields, header[_START:stop], view[stop:]))


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


def parse_ids(tree: Any) -> list[int]:
    """Call ids from the decoded payload of a hello or welcome."""
    if type(tree) is not list or any(type(number) is not int for number in tree):
        raise errors.DecodeError("malformed list of calls")
    return tree


def _legal(text: str) -> str:
    """The text with what UTF-8 cannot hold replaced."""
    return text.encode("utf-8", "backslashreplace").decode()
