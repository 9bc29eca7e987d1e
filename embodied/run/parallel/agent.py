"""The agent process: an actor thread and the learner share one agent.

The learner has the main thread, as glibc gives no other one memory that it keeps: in a
thread of its own, every update of a model on a CPU paid again for the page faults of
all its temporaries (1.4 times the time of an update of the preset `demo`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import elements

from embodied.core import base
from embodied.run import role
from embodied.run.parallel import wire
from embodied.run.parallel.actor import parallel_actor
from embodied.run.parallel.learner import parallel_learner

# Seconds to wait for a learner that is asked to stop before its first update is done:
# it compiles, which nobody can interrupt, and has nothing to save.
LEARNER_TIMEOUT = 4.0


def parallel_agent(
    make_agent: bytes | Callable[[], base.Agent], args: elements.Config
) -> None:
    """Run actor and learner until the run is complete or asked to stop.

    The barrier keeps the actor from collecting before the learner has restored its
    checkpoint. When the actor has all steps of the run, the learner ends, too.
    """
    agent = wire.factory(make_agent)()
    if role.stopping():
        return  # There is nothing to save yet.
    barrier, learned = threading.Barrier(2), threading.Event()
    actor = Thread(parallel_actor, agent, barrier, args, abort=barrier.abort)
    learner = Thread(parallel_learner, agent, barrier, args, abort=barrier.abort)
    actor.start()
    watch = threading.Thread(target=leave_early, args=(actor, learned), daemon=True)
    watch.start()
    learner.run()
    learned.set()
    actor.join()
    for thread in (actor, learner):
        thread.check()


def leave_early(actor: Thread, learned: threading.Event) -> None:
    """End the process if its learner compiles on after the request to stop."""
    actor.join()  # It ends when the run is complete, or this process has to end.
    if role.completed() or learned.wait(LEARNER_TIMEOUT) or role.dirty():
        return
    if not actor.error:
        note = "Nothing was trained since the start: the first update still compiled."
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
