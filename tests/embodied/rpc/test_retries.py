"""A call executes once, whatever happens to the connection."""

import collections
import importlib.util
import pathlib
import threading
import time

import numpy as np
import pytest
import zmq

from embodied import rpc
from embodied.rpc import encoding, protocol, sessions

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


class Counter:
    """Counts how often each value was executed."""

    def __init__(self):
        self.counts = collections.Counter()

    def __call__(self, value, data=None):
        self.counts[value] += 1
        return value


@pytest.mark.parametrize("workers", [1, 2])
def test_once_across_many_cuts(serve, connect, proxy, workers):
    counter = Counter()
    server = serve(
        ("add", counter, None, {"workers": workers}), address="localhost:{auto}"
    )
    middle = proxy(server)
    client = connect(middle.address, timeout=60)
    stop = threading.Event()

    def cut():
        while not stop.wait(0.1):
            middle.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    data = np.zeros(20_000, np.uint8)
    total, last = 0, time.monotonic() + 3
    while time.monotonic() < last:
        futures = [client.add(total + i, data) for i in range(10)]
        assert [f.result() for f in futures] == list(range(total, total + 10))
        total += 10
    stop.set()
    cutter.join(10)
    assert counter.counts == dict.fromkeys(range(total), 1)
    assert middle.accepted > 3


def test_lost_reply_is_answered_from_memory(serve, connect, proxy, until):
    counter = Counter()
    server = serve(("add", counter), address="localhost:{auto}")
    middle = proxy(server)
    client = connect(middle.address)
    middle.mute = True
    future = client.add(1)
    until(lambda: counter.counts[1])
    middle.mute = False
    middle.cut()
    assert future.result() == 1
    assert counter.counts[1] == 1


def test_reply_of_a_call_that_ran_while_the_connection_was_lost(
    serve, connect, proxy, until
):
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


def restart(serve, server, counter):
    server.close()
    return serve(("add", counter), address=server.address)


def test_restarted_server_gets_calls_in_flight_again(serve, connect, until):
    release = threading.Event()
    server = serve(("add", lambda value: release.wait(20)), address="localhost:{auto}")
    client = connect(server)
    futures = [client.add(i) for i in range(5)]
    until(lambda: server.stats()["add/queue"] == 4)
    with pytest.raises(TimeoutError):
        server.close(timeout=0.1)
    counter = Counter()
    serve(("add", counter), address=server.address)
    assert [future.result() for future in futures] == list(range(5))
    assert counter.counts == dict.fromkeys(range(5), 1)
    assert client.stats()["restarts"] == 1
    release.set()


def test_restarted_server_fails_calls_in_flight_if_wanted(serve, connect, until):
    release = threading.Event()
    server = serve(("add", lambda value: release.wait(20)), address="localhost:{auto}")
    client = connect(server, on_restart="fail")
    futures = [client.add(i) for i in range(5)]
    until(lambda: server.stats()["add/queue"] == 4)
    with pytest.raises(TimeoutError):
        server.close(timeout=0.1)
    counter = Counter()
    serve(("add", counter), address=server.address)
    for future in futures:
        with pytest.raises(rpc.ServerRestarted):
            future.result()
    assert client.add(7).result() == 7
    assert counter.counts == {7: 1}
    release.set()


@pytest.mark.parametrize("on_restart", ["resend", "fail"])
def test_calls_made_while_the_server_is_away(serve, connect, on_restart, until):
    counter = Counter()
    server = serve(("add", counter), address="localhost:{auto}")
    client = connect(server, on_restart=on_restart)
    client.add(0).result()
    server.close()
    until(lambda: client.stats()["connected"] == 0 or client.add(99) is None)
    before = client.stats()["inflight"]
    future = client.add(1)
    serve(("add", counter), address=server.address)
    if on_restart == "resend":
        assert future.result() == 1
        assert counter.counts[1] == 1
    else:
        assert future.exception() is None or before
    assert client.add(2).result() == 2


def test_vanished_client_does_not_hold_memory(monkeypatch):
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 3)
    memory = sessions.Sessions(max_bytes=1000)
    for key in range(1, 6):
        session = memory.get(key, 0)
        call = session.calls[1] = sessions.Call(1, b"")
        memory.finish(call, [bytes(100)], 100)
    assert len(memory) == 3
    assert memory.nbytes == 300
    for number in range(2, 20):
        call = session.calls[number] = sessions.Call(number, b"")
        memory.finish(call, [bytes(100)], 100)
        assert memory.nbytes <= 1000
    assert call.reply
    memory.get(session.key, 19)
    assert memory.nbytes == 0
    assert not session.calls


def test_forgotten_reply_is_an_error_not_a_second_execution(
    serve, connect, proxy, until
):
    counter = Counter()

    def add(value):
        return counter(value), np.zeros(5000, np.uint8)

    server = serve(("add", add), address="localhost:{auto}", memory=6000)
    middle = proxy(server)
    client = connect(middle.address)
    middle.mute = True
    futures = [client.add(i) for i in range(2)]
    until(lambda: counter.counts[1])
    until(lambda: server.stats()["forgotten"])
    middle.mute = False
    middle.cut()
    assert "no longer in memory" in str(futures[0].exception())
    until(futures[1].done)
    assert counter.counts == {0: 1, 1: 1}


def test_calls_run_in_the_order_in_which_they_were_made(serve):
    """A new connection carries newer calls before the lost ones were repeated."""
    order = []
    server = serve(("note", order.append))
    context = zmq.Context()

    def send(dealer, kind, number=0, payload=b"\x90"):
        dealer.send_multipart(protocol.pack(kind, 7, number, 0, 0, b"note", payload))

    def call(dealer, number):
        send(dealer, protocol.REQUEST, number, encoding.encode([[number], {}])[0])

    def answer(dealer):
        assert dealer.poll(20_000)
        return protocol.parse(dealer.recv_multipart()[0])

    first, second = context.socket(zmq.DEALER), context.socket(zmq.DEALER)
    first.connect(server.address)
    send(first, protocol.HELLO)
    assert answer(first).kind == protocol.WELCOME
    call(first, 1)
    assert answer(first).kind == protocol.REPLY
    second.connect(server.address)
    call(second, 4)  # Calls 2 and 3 were lost with the first connection.
    send(second, protocol.HELLO, payload=encoding.encode([2, 3, 4])[0])
    assert encoding.decode(answer(second).payload) == [2, 3]
    call(second, 5)
    for number in (2, 3):
        call(second, number)
    assert [answer(second).id for _ in range(4)] == [2, 3, 4, 5]
    assert order == [1, 2, 3, 4, 5]
    context.destroy(0)
