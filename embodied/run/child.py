"""The life of a role's process: told to stop by a signal, ended with its parent."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from functools import partial
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from embodied.core import parcel, process
from embodied.run import role
from embodied.run.signals import SIGNALS

# How a role is told to stop. Not by SIGTERM: schedulers send that to all processes of a
# job at once, and it is for the supervisor to end them in order.
STOP = signal.SIGUSR1
TITLE = 1000  # Characters.
LAST_WORDS = 1 << 15  # Bytes of a traceback, so that a pipe can hold it.


class LastWords(NamedTuple):
    """What a role that failed leaves behind."""

    title: str  # One line.
    text: str
    final: bool = False  # Whether it would fail again.


def main(payload: bytes, beat: Any, pipe: Any, parent: int) -> None:
    """The life of a role's process."""
    process.die_with(parent)
    leave = partial(_leave, pipe)
    role.attach(beat, leave)
    _listen()
    try:
        target, args = parcel.loads(payload)
        target(*args)
    except BaseException as error:
        leave(error)
    leave(None)


def _leave(pipe: Any, error: BaseException | None) -> NoReturn:
    """End now: threads of a role that returned or failed must not keep it alive."""
    # One that was asked to end while it waited for another role did not fail.
    failed = error is not None and not isinstance(error, role.StoppedError)
    final = isinstance(error, role.FinalError)
    if failed:
        text = str(error) if final else "".join(traceback.format_exception(error))
        if role.stopping():
            print(text, file=sys.stderr, flush=True)
        title = "".join(traceback.format_exception_only(error)).splitlines()[0]
        pipe.send(LastWords(title[:TITLE], last_words(text), final))
        pipe.close()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(failed))


def last_words(text: str) -> str:
    """The end of a text, as much as is kept of a failure."""
    return text.encode()[-LAST_WORDS:].decode(errors="ignore")


def _listen() -> None:
    """Let a thread wait for the request to stop.

    A signal handler runs in the main thread, perhaps while that holds the lock that
    telling the others needs; so it only writes to a pipe.
    """
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(STOP, _on_signal)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # The supervisor decides.
    # A handler, since processes that the role starts would inherit to ignore it.
    signal.signal(signal.SIGTERM, _on_signal)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    args = (read,)
    threading.Thread(target=_await_request, args=args, name="stop", daemon=True).start()


def _on_signal(number: int, frame: FrameType | None) -> None:
    """Nothing: that there is a handler makes Python write the number to the pipe."""


def _await_request(pipe: int) -> None:
    while STOP not in os.read(pipe, 64):
        pass
    role.request_stop()
