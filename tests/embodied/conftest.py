"""Waits for events of other threads and processes."""

import threading

import pytest


@pytest.fixture
def until():
    """Polls a condition until it holds; fails after a deadline."""

    def wait(condition, seconds=20):
        pause = threading.Event()
        for _ in range(int(seconds / 0.005)):
            if condition():
                return
            pause.wait(0.005)
        pytest.fail("it did not happen")

    return wait
