"""The process of a role: stopped by a signal, killed with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from embodied.core import parent_death, pickling
from embodied.core.base import SetupError
from embodied.process.context import Context, StoppedError
from embodied.process.signals import SIGNALS

# Asks a role to stop. Not SIGTERM: schedulers send that to all processes of a
# job at once, but the supervisor ends them in order.
STOP = signal.SIGUSR1
TITLE = 1000  # Characters.
MAX_TEXT = 1 << 15  # Bytes of a traceback, so that a pipe can hold it.


class Failure(NamedTuple):
    """Why a role failed, as reported to the supervisor."""

    title: str  # One line.
    text: str
    final: bool = False  # A restart would fail as well.


def run_role(
    payload: bytes, heartbeat: Any, pipe: Any, parent: int, incarnation: int | None
) -> None:
    """Run a role in this process, then exit."""
    parent_death.die_with(parent)
    ctx = Context(heartbeat, partial(_exit, pipe), incarnation)
    _listen(ctx)
    try:
        target, args = pickling.loads(payload)
        target(*args, ctx=ctx)
    except BaseException as error:
        ctx.exit(error)
    ctx.exit(None)


def _exit(pipe: Any, ctx: Context, error: BaseException | None) -> NoReturn:
    """Exit now, even if threads of the role are still running."""
    # Being stopped while waiting for another role is not a failure.
    failed = error is not None and not isinstance(error, StoppedError)
    if failed:
        assert error is not None
        text = describe(error)
        if ctx.stopping():  # The supervisor no longer reads it.
            print(text, file=sys.stderr, flush=True)
        title = "".join(traceback.format_exception_only(error)).splitlines()[0]
        final = isinstance(error, SetupError)
        pipe.send(Failure(title[:TITLE], shorten(text), final))
        pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(failed))


def describe(error: BaseException) -> str:
    """The traceback, or only the message of an error that names its remedy."""
    if isinstance(error, SetupError):
        return str(error)
    return "".join(traceback.format_exception(error))


def shorten(text: str) -> str:
    """The end of a text, at most `MAX_TEXT` bytes."""
    return text.encode()[-MAX_TEXT:].decode(errors="ignore")


def _listen(ctx: Context) -> None:
    """Start a thread that waits for the stop request.

    A signal handler interrupts the main thread, which may hold the lock needed to wake
    other threads, so it only writes to a pipe.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(STOP, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The supervisor decides.
    # A handler rather than SIG_IGN, which child processes would inherit.
    signal.signal(signal.SIGTERM, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    args = (read, ctx)
    threading.Thread(target=_await_request, args=args, name="stop", daemon=True).start()


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Do nothing; the wakeup fd receives the number only if a handler is set."""


def _await_request(pipe: int, ctx: Context) -> None:
    while STOP not in os.read(pipe, 64):
        pass
    ctx.request_stop()
