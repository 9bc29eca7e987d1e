"""A bound method: its queue, its worker threads, its `postfn` thread and its meter."""

from __future__ import annotations

import abc
import logging
import queue
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from embodied.rpc import encoding, errors, meters, protocol, sessions

MAX_POSTS = 64  # Calls of `postfn` that may wait before replies wait for them.

logger = logging.getLogger("embodied.rpc")


class Request(NamedTuple):
    """A call that arrived and has to be answered."""

    call: sessions.Call
    session: int  # Of the client.
    payload: memoryview
    frames: list[encoding.Buffer]
    time: float  # When it arrived.


class Answer(NamedTuple):
    """What to send back for a request."""

    request: Request
    kind: int  # Reply or error.
    payload: bytes
    frames: list[encoding.Buffer]


class Responder(Protocol):
    """What a method needs of its server."""

    def respond(self, answers: Sequence[Answer]) -> None:
        """Remember and send replies."""

    def wake(self) -> None:
        """Let the server's thread look at deadlines again."""


class Method(abc.ABC):
    """Runs jobs in `workers` threads, or in the server's own thread if there are none.

    With a `postfn`, the function returns `(reply, info)`, and `postfn(info)` runs after
    the reply was sent, in a thread of its own, in the order of the replies.
    """

    batched = False  # Whether it has deadlines.

    def __init__(
        self,
        name: str,
        workfn: Callable[..., Any],
        postfn: Callable[[Any], Any] | None,
        workers: int,
    ):
        if workers < 0:
            raise ValueError(f"workers of '{name}' must be >= 0, got {workers}")
        self.name = name
        self.meter = meters.Meter()
        self.failure: BaseException | None = None  # The first one of `postfn`.
        self.workers = workers
        self._workfn = workfn
        self._postfn = postfn
        self._server: Responder
        self._jobs: queue.SimpleQueue = queue.SimpleQueue()
        self._posts: queue.Queue = queue.Queue(MAX_POSTS)
        self._order = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._poster: threading.Thread | None = None

    @abc.abstractmethod
    def submit(self, request: Request) -> None:
        """Take a request; called from the server's thread only."""

    @abc.abstractmethod
    def _execute(self, job: Any) -> None:
        """Run the function for a job and answer; must not raise."""

    def deadline(self) -> float | None:
        """When `tick` has something to do, if no request comes before."""
        return None

    def tick(self) -> None:
        """Do what is due; called from the server's thread."""

    def queued(self) -> int:
        """Jobs that wait for a worker."""
        return self._jobs.qsize()

    def start(self, server: Responder) -> None:
        self._server = server
        for index in range(self.workers):
            self._threads.append(self._thread(self._work, f"{self.name}{index}"))
        if self._postfn:
            self._poster = self._thread(self._post, f"{self.name}-post")

    def close(self, deadline: float) -> bool:
        """End the threads after the jobs they have; whether that was in time."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        if self._poster:
            try:
                self._posts.put(None, timeout=max(0.01, deadline - time.monotonic()))
            except queue.Full:
                return False
            self._poster.join(max(0, deadline - time.monotonic()))
            return not self._poster.is_alive()
        return True

    def enqueue(self, job: Any) -> None:
        """Hand a job to a worker, or do it at once if there are none."""
        if self.workers:
            self._jobs.put(job)
        else:
            self._execute(job)

    def finish(self, answers: Sequence[Answer], posts: Sequence[tuple] = ()) -> None:
        """Send replies, then hand over what `postfn` gets, in the same order."""
        if not posts:
            self._server.respond(answers)
            return
        with self._order:
            self._server.respond(answers)
            for post in posts:
                self._posts.put(post)

    def fail(self, requests: Sequence[Request], error: BaseException) -> None:
        """Answer requests with an error, which concerns nobody else."""
        self.meter.fail(len(requests))
        text = "".join(traceback.format_exception(error))
        if isinstance(error, errors.RpcError):
            text = ""  # The caller's mistake; where it was noticed is of no interest.
        payload = protocol.pack_error(type(error).__name__, str(error), text)
        self.finish([Answer(r, protocol.ERROR, payload, []) for r in requests])

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, list[tuple[Any]]]:
        """The function's reply, and arguments for a call of `postfn`, or nothing."""
        result = self._workfn(*args, **kwargs)
        if not self._postfn:
            return result, []
        if type(result) is not tuple or len(result) != 2:
            raise TypeError(
                f"'{self.name}' has a postfn, so its function must return "
                f"(reply, info), got {type(result).__name__}"
            )
        return result[0], [(result[1],)]

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._execute(job)

    def _post(self) -> None:
        assert self._postfn is not None
        while (info := self._posts.get()) is not None:
            try:
                self._postfn(*info)
            except BaseException as error:
                self.failure = self.failure or error
                self.meter.fail()
                logger.exception("postfn of '%s' failed", self.name)

    def _thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"rpc-{name}", daemon=True)
        thread.start()
        return thread


class PlainMethod(Method):
    """One run of the function for each request."""

    def submit(self, request: Request) -> None:
        self.enqueue(request)

    def _execute(self, request: Request) -> None:
        start = time.monotonic()
        try:
            args, kwargs = parse_arguments(request)
            reply, infos = self.call(*args, **kwargs)
            payload, frames = encoding.encode(reply)
        except BaseException as error:
            self.fail([request], error)
        else:
            answer = Answer(request, protocol.REPLY, payload, frames)
            self.finish([answer], infos)
        self.meter.add([start - request.time], 1, start)


def parse_arguments(request: Request) -> tuple[list[Any], dict[str, Any]]:
    """Positional and keyword arguments of a request."""
    tree = encoding.decode(request.payload, request.frames)
    if type(tree) is not list or len(tree) != 2:
        raise errors.DecodeError("malformed arguments")
    args, kwargs = tree
    if type(args) is not list or type(kwargs) is not dict:
        raise errors.DecodeError("malformed arguments")
    if not all(type(key) is str for key in kwargs):
        raise errors.DecodeError("malformed keyword arguments")
    return args, kwargs
