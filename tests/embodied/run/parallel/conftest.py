"""Steps as the actor passes them on, and conditions that tell when somebody waits."""

import threading

import numpy as np
import pytest

from embodied.core import base
from embodied.run.parallel import routing


@pytest.fixture
def make_steps():
    """Rows of steps with their routing; each value is for all rows or one a row."""

    def make(envids, seqs, first=False, last=False, reward=0.0, is_eval=False, **more):
        size = len(envids)

        def rows(value, dtype):
            return np.broadcast_to(np.asarray(value, dtype), size).copy()

        return {
            base.REWARD: rows(reward, np.float32),
            base.IS_FIRST: rows(first, bool),
            base.IS_LAST: rows(last, bool),
            base.IS_TERMINAL: rows(last, bool),
            routing.ENVID: rows(envids, np.int32),
            routing.SEQ: rows(seqs, np.int64),
            routing.IS_EVAL: rows(is_eval, bool),
            routing.ENV_TIME: rows(0.5, np.float32),
            **more,
        }

    return make


@pytest.fixture
def make_plain_steps(make_steps):
    """Rows of steps as a program sends them that knows only the public documents."""

    def make(envids, **options):
        steps = make_steps(envids, 0, **options)
        own = (routing.SEQ, routing.ENV_TIME)
        return {key: value for key, value in steps.items() if key not in own}

    return make


class WatchedCondition(threading.Condition):
    """Sets `waiting` as soon as a thread is about to wait."""

    def __init__(self):
        super().__init__()
        self.waiting = threading.Event()

    def wait(self, timeout=None):
        self.waiting.set()
        return super().wait(timeout)


@pytest.fixture
def watch():
    """Replaces the idle condition `_changed` of an object by one that is watched."""

    def replace(owner):
        owner._changed = WatchedCondition()
        return owner._changed

    return replace


@pytest.fixture
def start():
    """Starts a function in a thread; whatever happens the test ends."""

    def run(function):
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        return thread

    return run
