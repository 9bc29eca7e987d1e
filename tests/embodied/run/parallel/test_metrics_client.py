"""Metrics on their way to a logger that hangs: bounded, and drops are counted."""

import contextlib
import threading

import pytest

from embodied import rpc
from embodied.run.parallel import metrics_client
from embodied.run.parallel.metrics_client import DROPPED, LoggerLink
from embodied.run.settings import RunSettings

WAIT = 20.0  # Seconds until a thread that should continue has failed.


class HungLogger:
    """A logger that takes metrics only once it is told to."""

    def __init__(self):
        self.awake = threading.Event()
        self.metrics = []
        self.server = rpc.Server("{auto}", "logger")
        self.server.bind("add", self._add)
        self.server.start(block=False)

    def _add(self, metrics, number):
        self.awake.wait(WAIT)
        self.metrics.append(metrics)


@pytest.fixture
def logger():
    logger = HungLogger()
    yield logger
    logger.awake.set()
    logger.server.close()


@pytest.fixture
def link(logger, ctx):
    args = {"logdir": "unused", "logger_addr": logger.server.address}
    with contextlib.closing(LoggerLink("learner", RunSettings.of(args), ctx)) as link:
        yield link
        logger.awake.set()


def test_metrics_for_a_logger_that_hangs_are_dropped_and_counted(
    logger, link, monkeypatch
):
    monkeypatch.setattr(metrics_client, "MAX_CALLS", 3)
    for index in range(10):
        link.add({"one": index, "two": index})  # Returns at once.
    logger.awake.set()
    link.flush()
    link.add({"one": 10})
    link.flush()
    assert [row["one"] for row in logger.metrics] == [0, 1, 2, 10]
    assert [row.get(DROPPED) for row in logger.metrics] == [None] * 3 + [14]
    link.add({"one": 11})
    link.flush()
    assert logger.metrics[-1] == {"one": 11}


def test_metrics_on_their_way_are_bounded_in_bytes(logger, link, monkeypatch):
    monkeypatch.setattr(metrics_client, "MAX_BYTES", 1000)
    for text in ("a" * 600, "b" * 600, "c", "d" * 5000):
        link.add({"text": text})
    logger.awake.set()
    link.flush()
    link.add({"text": "e" * 5000})  # Alone it may be larger.
    link.flush()
    assert [row["text"][0] for row in logger.metrics] == ["a", "c", "e"]
    assert [row.get(DROPPED, 0) for row in logger.metrics] == [0, 1, 1]


def test_metrics_that_the_logger_rejects_are_counted(logger, link, monkeypatch, capsys):
    logger.awake.set()
    monkeypatch.setattr(logger, "metrics", None)
    for _ in range(2):
        link.add({"one": 1, "two": 2})
        link.flush()
    logger.metrics = []
    link.add({"one": 3})
    link.flush()
    assert logger.metrics == [{"one": 3, DROPPED: 4}]
    assert capsys.readouterr().out.count("did not reach the logger") == 1
