"""The agent process: actor and learner as threads that share one agent."""

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
# it compiles, which nobody can interrupt, and has nothing to save. That takes a process
# of its own, which ends with its main thread.
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
    barrier = threading.Barrier(2)
    actor = Thread(parallel_actor, agent, barrier, args, abort=barrier.abort)
    learner = Thread(parallel_learner, agent, barrier, args, abort=barrier.abort)
    for thread in (actor, learner):
        thread.start()
    actor.join()  # It ends when the run is complete, or this process has to end.
    alone = threading.current_thread() is threading.main_thread()
    if alone and not role.completed():
        learner.join(LEARNER_TIMEOUT)
    if not alone or role.completed() or role.dirty():
        learner.join()
    for thread in (actor, learner):
        thread.check()


class Thread(threading.Thread):
    """A thread whose failure is kept, ends the other one, and is raised by `check`."""

    def __init__(self, target: Callable[..., None], *args: Any, abort: Callable):
        super().__init__(name=target.__name__, daemon=True)
        self._call = target, args
        self._abort = abort
        self._error: BaseException | None = None

    def run(self) -> None:
        target, args = self._call
        try:
            target(*args)
        except BaseException as error:
            self._error = error
            self._abort()
            role.request_stop()

    def check(self) -> None:
        """Raise what the thread raised; a broken barrier is the other one's fault."""
        if self._error and not isinstance(self._error, threading.BrokenBarrierError):
            raise self._error
