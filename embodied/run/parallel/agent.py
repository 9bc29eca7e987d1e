"""The agent process: an actor thread and the learner share one agent.

The learner has the main thread, the only one whose large buffers glibc keeps: elsewhere
every update on a CPU pays again for the page faults of its temporaries.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

import elements

from embodied.core import base
from embodied.run import role
from embodied.run.parallel import ensemble, options, wire
from embodied.run.parallel.actor import parallel_actor
from embodied.run.parallel.learner import parallel_learner

# Seconds to wait for a learner that is asked to stop before its first update is done:
# it compiles, which nobody can interrupt, and has nothing to save.
LEARNER_TIMEOUT = 4.0


def parallel_agent(
    make_agent: bytes | Callable[[], base.Agent], args: elements.Config
) -> None:
    """Run actor and learner; what another try cannot mend ends the run."""
    args = options.complete(args)
    try:
        run(make_agent, args)
    except base.SetupError as error:
        raise role.FinalError(str(error)) from None


def run(make_agent: bytes | Callable[[], base.Agent], args: elements.Config) -> None:
    """Run actor and learner until the run is complete or asked to stop.

    The barrier keeps the actor from collecting before the learner has restored its
    checkpoint. When the actor has all steps of the run, the learner ends, too.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(role.StoppedError))  # While it waits.
        if args.learners > 1 and is_complete(args):
            role.complete()
            return
        agent = gather(make_agent, args, stack)
        if not role.stopping():  # Else there is nothing to save yet.
            act_and_learn(agent, args)


def is_complete(args: elements.Config) -> bool:
    """Whether the run has all steps already, so that no other host has to come."""
    client = wire.connect(args.replay_addr, "agent", args)
    with contextlib.closing(client):
        return client.total().result() >= args.steps


def gather(
    make_agent: bytes | Callable[[], base.Agent],
    args: elements.Config,
    stack: contextlib.ExitStack,
) -> base.Agent:
    """The agent, which learns on several hosts if it shall."""
    if args.learners == 1:
        return wire.factory(make_agent)()
    from embodied.jax import hosts

    company = stack.enter_context(ensemble.lead(args))
    return hosts.Leader(wire.factory(make_agent)(), company.post)


def act_and_learn(agent: base.Agent, args: elements.Config) -> None:
    """Run actor and learner, each in a thread."""
    barrier, learner_done = threading.Barrier(2), threading.Event()
    actor = Thread(parallel_actor, agent, barrier, args, abort=barrier.abort)
    learner = Thread(parallel_learner, agent, barrier, args, abort=barrier.abort)
    actor.start()
    if role.owns_process():
        given = (actor, learner_done)
        threading.Thread(
            target=leave_early, args=given, name="leave_early", daemon=True
        ).start()
    learner.run()  # Here, in the thread of the caller; see above.
    learner_done.set()
    actor.join()
    for thread in (actor, learner):
        thread.check()


def leave_early(actor: Thread, learner_done: threading.Event) -> None:
    """End the process if its learner is at its first update when it has to end."""
    actor.join()  # It ends when the run is complete, or this process has to end.
    if role.completed() or learner_done.wait(LEARNER_TIMEOUT) or role.dirty():
        return
    if actor.error is None or isinstance(actor.error, role.StoppedError):
        note = "Nothing was trained: the run ended before its first update was done."
        elements.print(note, color="yellow", flush=True)
    role.leave(actor.error)


class Thread(threading.Thread):
    """A thread whose failure is kept, ends the other one, and is raised by `check`."""

    def __init__(self, target: Callable[..., None], *args: Any, abort: Callable):
        super().__init__(name=target.__name__, daemon=True)
        self._call = target, args
        self._abort = abort
        self.error: BaseException | None = None

    def run(self) -> None:
        target, args = self._call
        try:
            target(*args)
        except BaseException as error:
            self.error = error
            self._abort()
            role.request_stop()

    def check(self) -> None:
        """Raise what the thread raised; a broken barrier is the other one's fault."""
        if self.error and not isinstance(self.error, threading.BrokenBarrierError):
            raise self.error
