"""Ends what other supervisors run, and says what was not saved at the end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import elements

from embodied import rpc
from embodied.core import base, checkpoint, runfiles
from embodied.process.context import Context
from embodied.run import restore
from embodied.run.parallel import connections, run_keys
from embodied.run.settings import RunSettings

END_TIMEOUT = 60.0  # Seconds to save everything at the end.
PATIENCE = 5.0  # Seconds to reach a role, or until environments call again.
# Timeout of `end` in seconds; exceeds the timeout of its handler.
ANSWER = END_TIMEOUT + PATIENCE
POLL = 0.2  # Seconds between checks of `hurry`.
RECENT = 30.0  # Seconds after which an environment that does not call counts as gone.
UNACKNOWLEDGED = "Some remote {} did not acknowledge shutdown; stop them with Ctrl-C."


class Ending:
    """Serves `end`, which shuts down a role of another supervisor.

    Replies once the role has saved everything, so that the caller can then shut down
    the roles it depends on.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._done = threading.Event()

    def __call__(self) -> None:
        self._ctx.request_stop()
        if not self._done.wait(END_TIMEOUT):
            raise TimeoutError(f"shutdown did not finish within {END_TIMEOUT} s")

    def done(self) -> None:
        """Everything is saved and sent."""
        self._done.set()


def warn_unacknowledged(what: str) -> None:
    """Print that processes of other supervisors may still run."""
    elements.print(UNACKNOWLEDGED.format(what), color="yellow", flush=True)


def end_role(
    name: str, address: str, args: RunSettings, hurry: Callable[[], bool] = bool
) -> None:
    """End a replay or logger, and wait until it has saved everything."""
    keys = run_keys.client_keys(args)
    try:
        client = connections.client(
            address, keys, "launcher", args.transport, connect_timeout=PATIENCE
        )
    except (TimeoutError, rpc.HandshakeError):
        text = f"The {name} at {address} did not answer; stop it with Ctrl-C."
        elements.print(text, color="yellow", flush=True)
        return
    try:
        future = client.call("end", timeout=ANSWER)
        while not future.done() and not hurry():
            _look(future)
        # The role may exit before its reply arrives.
        error = future.exception() if future.done() else None
    finally:
        client.close()
    if isinstance(error, rpc.RemoteError):
        text = f"The {name} at {address} failed to shut down: {error.kind}"
        elements.print(f"{text}: {error.message}", color="yellow", flush=True)


def describe_saved(role: str, args: RunSettings) -> str:
    """What a run resumes from whose role ended before it had saved, if anything."""
    if role != runfiles.AGENT:
        return f"What the {role} has acknowledged is kept; the same command resumes."
    try:
        directory = restore.directory(args)
        newest, meta = checkpoint.read_newest(directory, checkpoint.read_meta)
        saved = time.localtime(meta["time"])
        state = checkpoint.read_item(newest.parent, "learner")
    except (KeyError, OSError, base.SetupError):
        return ""  # It had not begun to learn.
    return (
        f"What the agent has learned since {time.strftime('%F %T', saved)} "
        f"(step {state['step']:,}, update {state['updates']:,}) is lost; the same "
        f"command resumes from {newest}."
    )


def _look(future: rpc.Future) -> None:
    try:
        future.exception(POLL)
    except TimeoutError:
        return


class Departures:
    """Notifies environments that only know the actor that the run has ended."""

    def __init__(self, amount: int, now: Callable[[], float] = time.monotonic):
        self._amount = amount  # Larger numbers are those of members.
        self._now = now
        self._seen: dict[int, float] = {}  # Environment to the time of its last call.
        self._over = False
        self._changed = threading.Condition()

    def see(self, envids: Sequence[int]) -> None:
        """Note environments that act; raises `RunOverError` once the run has ended."""
        with self._changed:
            if self._over:
                for envid in envids:
                    self._seen.pop(envid, None)
                self._changed.notify_all()
                raise connections.RunOverError("the run has ended")
            now = self._now()
            self._seen.update((i, now) for i in envids if i < self._amount)

    def end(self, timeout: float = PATIENCE) -> bool:
        """Wait until all recently active environments were notified."""
        with self._changed:
            self._over = True
            limit = self._now() - RECENT
            self._seen = {i: seen for i, seen in self._seen.items() if seen >= limit}
            return self._changed.wait_for(lambda: not self._seen, timeout)
