"""What can go wrong with a call, one exception each."""

from __future__ import annotations

from embodied.core.base import SetupError


class RpcError(Exception):
    """Base of every error of this package that is not a builtin one."""


class EncodeError(RpcError, TypeError):
    """A value that cannot be sent; the message names its place in the tree."""


class DecodeError(RpcError, ValueError):
    """Bytes that are not a message of ours, or are larger than allowed."""


class AddressError(RpcError, ValueError):
    """An address that cannot be used, or may not be without keys."""


class KeyFileError(RpcError, SetupError):
    """A key file that is missing, malformed or readable by other users."""


class HandshakeError(RpcError, ConnectionError):
    """The server refused the connection: keys are wrong, missing or not expected."""


class ClientClosed(RpcError):  # noqa: N818 - it is what happened.
    """The client was closed before the call was answered."""


class RemoteError(RpcError):
    """The handler of a call failed; carries what happened on the other side."""

    def __init__(self, call: str, kind: str, message: str, traceback: str):
        super().__init__(call, kind, message, traceback)
        self.call = call  # Method and address, such as `add at tcp://127.0.0.1:4000`.
        self.kind = kind  # Name of the exception type, such as `ValueError`.
        self.message = message
        self.traceback = traceback  # As formatted on the server; may be empty.

    def __str__(self) -> str:
        text = f"{self.call} failed with {self.kind}: {self.message}"
        if self.traceback:
            text += f"\n\nTraceback of the server:\n{self.traceback.rstrip()}"
        return text
