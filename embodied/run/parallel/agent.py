"""The agent process: an actor thread and the learner share one agent.

The learner runs in the main thread, since glibc retains large buffers only there: in
any other thread, each update on a CPU would page-fault its temporaries again.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from functools import partial as bind

import elements

from embodied.core import base
from embodied.process.context import Context, StoppedError
from embodied.run.parallel import connections, ensemble
from embodied.run.parallel.actor import parallel_actor
from embodied.run.parallel.learner import parallel_learner
from embodied.run.settings import Given, RunSettings

# Seconds to wait for a learner that is asked to stop before its first update is done:
# it compiles, which cannot be interrupted, and has nothing to save.
LEARNER_TIMEOUT = 4.0


def parallel_agent(
    make_agent: bytes | Callable[[], base.Agent],
    args: Given,
    ctx: Context | None = None,
) -> None:
    """Run actor and learner until the run is complete or asked to stop.

    The barrier keeps the actor from collecting before the learner has restored its
    checkpoint. When the actor has all steps of the run, the learner ends, too.
    """
    args, ctx = RunSettings.of(args), ctx or Context()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(StoppedError))  # While it waits.
        if args.learners > 1 and is_complete(args, ctx):
            ctx.complete()
            return
        agent = gather(make_agent, args, ctx, stack)
        if not ctx.stopping():  # Else there is nothing to save yet.
            act_and_learn(agent, args, ctx)


def is_complete(args: RunSettings, ctx: Context) -> bool:
    """Whether the run already has all steps, so no further hosts are needed."""
    client = connections.connect(args.replay_addr, "agent", args, ctx)
    with contextlib.closing(client):
        return client.total().result() >= args.steps


def gather(
    make_agent: bytes | Callable[[], base.Agent],
    args: RunSettings,
    ctx: Context,
    stack: contextlib.ExitStack,
) -> base.Agent:
    """The agent, on several hosts if configured."""
    if args.learners == 1:
        return connections.factory(make_agent)()
    from embodied.jax import hosts

    company = stack.enter_context(ensemble.lead(args, ctx))
    meet = bind(hosts.meet, args.learner_start_timeout)
    return hosts.Leader(connections.factory(make_agent)(), company.post, meet)


def act_and_learn(agent: base.Agent, args: RunSettings, ctx: Context) -> None:
    """Run actor and learner, each in a thread."""
    barrier, learner_done = threading.Barrier(2), threading.Event()
    actor = Thread(parallel_actor, agent, barrier, args, ctx)
    learner = Thread(parallel_learner, agent, barrier, args, ctx)
    actor.start()
    if ctx.owns_process:
        given = (actor, learner_done, ctx)
        threading.Thread(
            target=exit_early, args=given, name="exit_early", daemon=True
        ).start()
    learner.run()  # Here, in the thread of the caller; see above.
    learner_done.set()
    actor.join()
    for thread in (actor, learner):
        thread.check()


def exit_early(actor: Thread, learner_done: threading.Event, ctx: Context) -> None:
    """Exit early if the learner is still in its first update at shutdown."""
    actor.join()  # It ends when the run is complete, or this process has to end.
    if ctx.completed() or learner_done.wait(LEARNER_TIMEOUT) or ctx.unsaved():
        return
    if actor.error is None or isinstance(actor.error, StoppedError):
        note = "Nothing was trained: the run ended before its first update was done."
        elements.print(note, color="yellow", flush=True)
    ctx.exit(actor.error)


class Thread(threading.Thread):
    """A thread whose failure stops its peer and is raised by `check`."""

    def __init__(
        self,
        target: Callable[..., None],
        agent: base.Agent,
        barrier: threading.Barrier,
        args: RunSettings,
        ctx: Context,
    ):
        super().__init__(name=target.__name__, daemon=True)
        self._call = bind(target, agent, barrier, args, ctx)
        self._barrier, self._ctx = barrier, ctx
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self.error = error
            self._barrier.abort()
            self._ctx.abort()

    def check(self) -> None:
        """Raise what the thread raised; a broken barrier is the other one's fault."""
        if self.error and not isinstance(self.error, threading.BrokenBarrierError):
            raise self.error
