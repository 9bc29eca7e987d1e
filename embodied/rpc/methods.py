"""A bound method: its queue, its `postfn` thread and its meter."""

from __future__ import annotations

import abc
import collections
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from embodied.rpc import encoding, errors, meters, protocol

MAX_POSTS = 64  # Calls of `postfn` that may wait before replies wait for them.

logger = logging.getLogger("embodied.rpc")


class Request(NamedTuple):
    """A call that arrived and has to be answered."""

    route: bytes  # To the client, over the connection on which it arrived.
    id: int  # Of the call.
    payload: memoryview
    frames: list[encoding.Buffer]
    time: float  # When it arrived.
    client: str = ""  # Name of the caller's key; empty if the server has no keys.


class Answer(NamedTuple):
    """What to send back for a request."""

    request: Request
    kind: int  # Reply or error.
    payload: bytes
    frames: list[encoding.Buffer]


class Responder(Protocol):
    """What a method needs of its server."""

    def respond(self, answers: Sequence[Answer]) -> None:
        """Send replies."""


class Method(abc.ABC):
    """Keeps jobs until a thread of the server runs them, at most `workers` at a time.

    All but `execute` is for the thread that leads (see `server`).
    With a `postfn`, the function returns `(reply, info)`, and `postfn(info)` runs after
    the reply was sent, in a thread of its own, in the order of the replies.
    """

    def __init__(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None,
        workers: int,
    ):
        if workers < 1:
            raise ValueError(f"workers of '{name}' must be >= 1, got {workers}")
        self.name = name
        self.meter = meters.Meter()
        self.failure: BaseException | None = None  # The first one of `postfn`.
        self.workers = workers
        self.running = 0  # Jobs.
        self.started = 0.0  # When the last one was.
        self.jobs: collections.deque = collections.deque()  # Those that wait.
        self._workfn = workfn
        self._postfn = postfn
        self._server: Responder
        self._posts: queue.SimpleQueue = queue.SimpleQueue()
        self._room = threading.Semaphore(MAX_POSTS)
        self._order = threading.Lock()
        self._poster: threading.Thread | None = None

    @abc.abstractmethod
    def submit(self, request: Request) -> None:
        """Take a request."""

    @abc.abstractmethod
    def execute(self, job: Any) -> None:
        """Run the function for a job and answer."""

    def tick(self) -> float | None:
        """Handle expired deadlines; returns the next deadline, if any."""
        return None

    def seal(self) -> None:
        """Accept no more requests; turn an incomplete batch into a job."""

    def next(self) -> Any:
        """The first job that waits, which the caller runs now."""
        self.started = time.monotonic()
        return self.jobs.popleft()

    def run(self, job: Any) -> None:
        """Execute a job; its errors do not stop the server."""
        try:
            self.execute(job)
        except Exception:
            self.meter.fail()
            logger.exception("a call to '%s' could not be answered", self.name)

    def queued(self) -> int:
        """Jobs that wait."""
        return len(self.jobs)

    def ready(self) -> bool:
        """Whether there is a job that may run now."""
        return bool(self.jobs) and self.running < self.workers

    def busy(self) -> bool:
        """Whether there are jobs that run or wait."""
        return bool(self.jobs) or self.running > 0

    def start(self, server: Responder) -> None:
        self._server = server
        if self._postfn:
            name = f"rpc-{self.name}-post"
            self._poster = threading.Thread(target=self._post, name=name, daemon=True)
            self._poster.start()

    def end(self) -> None:
        """Stop the `postfn` thread after its queued calls."""
        if self._poster:
            self._posts.put(None)

    def join(self, deadline: float) -> bool:
        """Wait for that thread; returns whether it ended in time."""
        if self._poster:
            self._poster.join(max(0.1, deadline - time.monotonic()))
            return not self._poster.is_alive()
        return True

    def finish(self, answers: Sequence[Answer], post: tuple = ()) -> None:
        """Send replies, then hand over what `postfn` gets, in the same order."""
        if not post:
            self._server.respond(answers)
            return
        with self._order:
            self._room.acquire()  # Before, as nothing may block after sending.
            try:
                self._server.respond(answers)
            except BaseException:
                self._room.release()
                raise
            self._posts.put(post)

    def fail(self, requests: Sequence[Request], error: BaseException) -> None:
        """Answer requests with an error; other requests are not affected."""
        self.meter.fail(len(requests))
        kind, (message, text) = type(error).__name__, _describe(error)
        if isinstance(error, errors.RpcError):
            text = ""  # The caller's mistake; the traceback would not help.
        payload = protocol.pack_error(kind, message, text)
        self.finish([Answer(r, protocol.ERROR, payload, []) for r in requests])

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, tuple]:
        """The function's reply, and arguments for a call of `postfn`, or nothing."""
        result = self._workfn(*args, **kwargs)
        if not self._postfn:
            return result, ()
        if type(result) is not tuple or len(result) != 2:
            raise TypeError(
                f"'{self.name}' has a postfn, so its function must return "
                f"(reply, info), got {type(result).__name__}"
            )
        return result[0], (result[1],)

    def _post(self) -> None:
        assert self._postfn is not None
        while (post := self._posts.get()) is not None:
            self._room.release()
            try:
                self._postfn(*post)
            except BaseException as error:
                self.failure = self.failure or error
                self.meter.fail()
                logger.exception("postfn of '%s' failed", self.name)


class PlainMethod(Method):
    """One run of the function for each request."""

    def __init__(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None,
        workers: int,
        identify: bool,
    ):
        super().__init__(name, workfn, postfn, workers)
        self._identify = identify

    def submit(self, request: Request) -> None:
        self.jobs.append(request)

    def execute(self, request: Request) -> None:
        start = time.monotonic()
        try:
            args, kwargs = parse_arguments(request)
            if self._identify:
                args = [request.client, *args]
            reply, post = self.call(*args, **kwargs)
            payload, frames = encoding.encode(reply)
        except BaseException as error:
            self.fail([request], error)
        else:
            answer = Answer(request, protocol.REPLY, payload, frames)
            self.finish([answer], post)
        self.meter.add([start - request.time], 1, start)


def parse_arguments(request: Request) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a request."""
    tree = encoding.decode(request.payload, request.frames)
    if type(tree) is not list or len(tree) != 2:
        raise errors.DecodeError("malformed arguments")
    args, kwargs = tree
    if type(args) is not list or type(kwargs) is not dict:
        raise errors.DecodeError("malformed arguments")
    for key in kwargs:
        if type(key) is not str:
            raise errors.DecodeError("malformed keyword arguments")
    return args, kwargs


def _describe(error: BaseException) -> tuple[str, str]:
    """Message and traceback, even if `str(error)` fails."""
    try:
        return str(error), "".join(traceback.format_exception(error))
    except Exception as another:
        return f"(message unavailable: {type(another).__name__})", ""
