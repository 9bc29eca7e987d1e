"""The threads of a server: calls that block are in nobody's way, limits hold."""

import threading

import pytest

from embodied import rpc


class Gate:
    """A method that blocks until the test opens it, and counts who is inside."""

    def __init__(self):
        self.inside = 0
        self.most = 0
        self.entered = threading.Semaphore(0)
        self._open = threading.Event()
        self._lock = threading.Lock()

    def __call__(self, value):
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.entered.release()
        assert self._open.wait(60)
        with self._lock:
            self.inside -= 1
        return value

    def open(self):
        self._open.set()


@pytest.fixture
def gate():
    gate = Gate()
    yield gate
    gate.open()


@pytest.mark.parametrize("workers", [1, 2])
def test_blocked_calls_are_in_nobodys_way(serve, connect, gate, workers):
    """All that may run do so and block, others queue behind them."""
    limit = {"workers": workers}
    server = serve(("block", gate, None, limit), ("echo", abs), ("other", abs))
    client = connect(server)
    blocked = [client.block(i) for i in range(workers + 3)]
    for _ in range(workers):
        assert gate.entered.acquire(timeout=20)
    for i in range(50):
        assert client.echo(i).result() == i
    calls = [method(i) for i in range(50) for method in (client.echo, client.other)]
    assert [c.result() for c in calls] == [i for i in range(50) for _ in range(2)]
    newcomer = connect(server)  # It says hello and is answered.
    assert newcomer.other(1).result() == 1
    assert gate.most == workers
    gate.open()
    assert [call.result() for call in blocked] == list(range(workers + 3))
    assert gate.most == workers


def test_every_method_may_block(serve, connect, gate):
    """The socket is read while there is no thread left to run anything."""
    server = serve(("one", gate), ("two", gate))
    client = connect(server)
    blocked = [client.one(1), client.two(2), client.one(3)]
    for _ in range(2):
        assert gate.entered.acquire(timeout=20)
    newcomer = connect(server)
    with pytest.raises(rpc.RemoteError, match="no method"):
        newcomer.three().result()
    gate.open()
    assert [call.result() for call in blocked] == [1, 2, 3]


@pytest.mark.parametrize("workers", [1, 3])
def test_limit_and_order_under_load(serve, connect, workers):
    lock, inside, most, started = threading.Lock(), [], [0], {}

    def work(thread, number):
        with lock:
            started.setdefault(thread, []).append(number)
            inside.append(1)
            most[0] = max(most[0], len(inside))
        with lock:
            inside.pop()
        return number

    server = serve(("work", work, None, {"workers": workers}), ("echo", abs))

    def load(thread):
        client = connect(server)
        calls = [(client.work(thread, i), client.echo(i)) for i in range(200)]
        results[thread] = [(a.result(), b.result()) for a, b in calls]

    results = {}
    threads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == {i: [(n, n) for n in range(200)] for i in range(4)}
    assert most[0] <= workers
    if workers == 1:
        assert started == {i: list(range(200)) for i in range(4)}


def test_full_postfn_blocks_only_its_method(serve, connect, gate):
    def work(value):
        return value, value

    client = connect(serve(("work", work, gate), ("echo", abs)))
    calls = [client.work(i) for i in range(100)]
    assert gate.entered.acquire(timeout=20)
    for i in range(50):
        assert client.echo(i).result() == i
    assert not calls[-1].done()  # Replies wait for the `postfn` that is far behind.
    gate.open()
    assert [call.result() for call in calls] == list(range(100))


def test_no_thread_looks_again_when_all_is_done(serve, connect, until, monkeypatch):
    server = serve(("echo", abs), ("other", abs))
    waits, wait = {}, server._channel.wait

    def record(seconds):
        waits[threading.get_ident()] = seconds
        return wait(seconds)

    monkeypatch.setattr(server._channel, "wait", record)
    client = connect(server)
    for _ in range(3):
        calls = [client.echo(i) for i in range(500)]
        assert [call.result() for call in calls] == list(range(500))
    until(lambda: set(waits.values()) == {None})


def test_wrong_number_of_workers():
    with pytest.raises(ValueError, match=r"workers of 'echo' must be >= 1, got 0"):
        rpc.Server("{auto}").bind("echo", abs, workers=0)


def test_a_queue_behind_a_blocked_call_does_not_make_reading_wait(
    serve, connect, gate, monkeypatch
):
    server = serve(("block", gate), ("echo", abs))
    client = connect(server)
    blocked = [client.block(i) for i in range(2)]
    assert gate.entered.acquire(timeout=20)
    queues = server._queues
    queues.by_name[b"block"].started -= 1  # Which is as if a second had passed.
    decisions, decide = [], queues.patient

    def note(read_at):
        decisions.append(decide(read_at))
        return decisions[-1]

    monkeypatch.setattr(queues, "patient", note)
    for i in range(20):
        assert client.echo(i).result() == i
    assert decisions
    assert not any(decisions)
    gate.open()
    assert [call.result() for call in blocked] == [0, 1]


def test_an_error_without_a_message_fails_its_call_only(serve, connect):
    class MuteError(Exception):
        def __str__(self):
            raise RuntimeError("no words")

    def fail():
        raise MuteError

    client = connect(serve(("fail", fail), ("echo", abs)))
    with pytest.raises(rpc.RemoteError, match="MuteError"):
        client.fail().result()
    assert client.echo(-1).result() == 1


def test_a_server_is_not_closed_by_its_own_call(serve, connect):
    server = serve(("stop", lambda: server.close()), ("echo", abs))
    client = connect(server)
    with pytest.raises(rpc.RemoteError, match="one of its own calls"):
        client.stop().result()
    assert client.echo(-1).result() == 1
