"""Calls are executed at least once and in order, whatever becomes of connections."""

import collections
import importlib.util
import pathlib
import threading

import numpy as np
import pytest

from embodied import rpc

_spec = importlib.util.spec_from_file_location(
    "rpc_proxy", pathlib.Path(__file__).with_name("proxy.py")
)
proxies = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(proxies)


@pytest.fixture
def proxy():
    made = []

    def start(server):
        made.append(proxies.Proxy(server.address))
        return made[-1]

    yield start
    for each in made:
        each.close()


class Log:
    """Notes which values were executed, in their order."""

    def __init__(self):
        self.values = []

    def __call__(self, value, data=None):
        self.values.append(value)
        return value

    def counts(self):
        return collections.Counter(self.values)


def test_no_call_is_lost_or_overtaken_across_many_cuts(serve, connect, proxy):
    log = Log()
    server = serve(("add", log), address="localhost:{auto}")
    middle = proxy(server)
    client = connect(middle.address, timeout=60)
    data = np.zeros(20_000, np.uint8)
    total = 0
    while middle.accepted < 20:
        futures = [client.add(total + i, data) for i in range(10)]
        middle.cut()
        assert [f.result() for f in futures] == list(range(total, total + 10))
        total += 10
    assert log.counts().keys() == set(range(total))
    firsts = list(dict.fromkeys(log.values))
    assert firsts == sorted(firsts)  # None ran before an earlier one had.


def test_a_call_whose_reply_was_lost_runs_again(serve, connect, proxy, until):
    log = Log()
    server = serve(("add", log), address="localhost:{auto}")
    middle = proxy(server)
    client = connect(middle.address)
    middle.mute = True
    future = client.add(1)
    until(lambda: log.values and middle.swallowed)
    middle.mute = False
    middle.cut()
    assert future.result() == 1
    assert log.values == [1, 1]
    assert client.stats()["repeats"] == 1


def test_a_call_that_ran_while_the_connection_was_lost(serve, connect, proxy, until):
    release, started = threading.Event(), threading.Event()

    def hang():
        started.set()
        return release.wait(20)

    server = serve(("hang", hang), address="localhost:{auto}")
    middle = proxy(server)
    client = connect(middle.address)
    future = client.hang()
    assert started.wait(20)
    middle.cut()
    until(lambda: middle.accepted == 2)
    release.set()
    assert future.result() is True
    assert server.stats()["hang/rate"] > 0


def test_a_restarted_server_gets_calls_in_flight_again(serve, connect, until):
    release = threading.Event()
    server = serve(("add", lambda value: release.wait(20)), address="localhost:{auto}")
    client = connect(server)
    futures = [client.add(i) for i in range(5)]
    until(lambda: server.stats()["add/queue"] == 4)
    with pytest.raises(TimeoutError):
        server.close(timeout=0.1)
    log = Log()
    serve(("add", log), address=server.address)
    assert [future.result() for future in futures] == list(range(5))
    assert log.values == list(range(5))
    assert client.stats()["connections"] == 2
    release.set()


def test_calls_made_while_the_server_is_away(serve, connect, until):
    log = Log()
    server = serve(("add", log), address="localhost:{auto}")
    client = connect(server)
    client.add(0).result()
    server.close()
    until(lambda: client.stats()["connected"] == 0)
    futures = [client.add(1), client.add(2)]
    serve(("add", log), address=server.address)
    assert [future.result() for future in futures] == [1, 2]
    assert log.values == [0, 1, 2]


def test_calls_while_the_server_is_away_meet_their_deadline(serve, connect, until):
    server = serve(("add", abs), address="localhost:{auto}")
    client = connect(server)
    server.close()
    until(lambda: client.stats()["connected"] == 0)
    with pytest.raises(TimeoutError, match=r"no reply to add"):
        client.call("add", (1,), timeout=0.2).result()
    assert client.stats()["inflight"] == 0


def test_a_client_finds_a_server_that_starts_later(serve, connect, until):
    address = rpc.resolve("localhost:{auto}")
    client = connect(address, connect_timeout=None)
    assert not client.reach(0.3)
    future = client.add(-5)
    serve(("add", abs), address=address)
    assert client.reach(20)
    assert future.result() == 5


def test_an_idle_client_notices_that_the_server_was_replaced(serve, connect, until):
    server = serve(("add", abs), address="localhost:{auto}")
    client = connect(server)
    client.add(1).result()
    server.close()
    serve(("add", lambda value: value + 1), address=server.address)
    assert client.add(1).result() == 2


def test_a_name_that_cannot_be_resolved_is_tried_again(connect, until):
    client = connect("tcp://no-such-host.invalid:5000", connect_timeout=None)
    attempts = []
    replace = client._connection.replace
    client._connection.replace = lambda: attempts.append(1) or replace()
    client.add(1)
    until(lambda: len(attempts) >= 3)
    assert client.stats()["repeats"] == 0  # Nothing has ever been sent.


def test_a_reply_that_is_too_large_is_an_error_and_runs_once(serve, connect):
    log = Log()

    def grow(value):
        return log(value), np.zeros(20_000, np.uint8)

    server = serve(("grow", grow), ("add", log), max_bytes=10_000)
    client = connect(server, max_bytes=10_000)
    with pytest.raises(rpc.RemoteError, match="the limit is 10000"):
        client.grow(1).result()
    assert client.add(2).result() == 2
    assert log.values == [1, 2]
