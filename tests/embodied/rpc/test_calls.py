"""Calls come back with results, errors or the deadline, and leave nothing behind."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from embodied import rpc


def echo(*args, **kwargs):
    return [list(args), kwargs]


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("address", ["{auto}", "localhost:{auto}"])
def test_round_trip(serve, connect, workers, address):
    server = serve(("echo", echo, None, {"workers": workers}), address=address)
    client = connect(server)
    array = np.arange(100_000)
    tree = {"a": array, "b": (1, [2.5, None, True]), "c": "x", "d": b"y"}
    (result,), kwargs = client.echo(tree, key=np.float32(3)).result()
    np.testing.assert_array_equal(result.pop("a"), array)
    assert result == {"b": (1, [2.5, None, True]), "c": "x", "d": b"y"}
    assert kwargs == {"key": np.float32(3)}


def test_large_messages_both_ways(serve, connect):
    client = connect(serve(("echo", echo)))
    arrays = [np.random.default_rng(i).bytes(5_000_000) for i in range(3)]
    arrays = [np.frombuffer(data, np.uint8) for data in arrays]
    for future, array in [(client.echo(array), array) for array in arrays]:
        np.testing.assert_array_equal(future.result()[0][0], array)


def test_failed_handler_fails_its_call_only(serve, connect):
    def fail(value):
        raise KeyError(f"no {value}")

    client = connect(serve(("fail", fail), ("echo", echo)))
    before, failed, after = client.echo(1), client.fail("bread"), client.echo(2)
    with pytest.raises(rpc.RemoteError, match="no bread") as info:
        failed.result()
    assert info.value.kind == "KeyError"
    assert "in fail" in info.value.traceback
    assert [before.result()[0], after.result()[0]] == [[1], [2]]
    assert isinstance(failed.exception(), rpc.RemoteError)
    assert after.exception() is None


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), BaseException()])
def test_no_exception_ends_a_worker(serve, connect, error):
    def fail():
        raise error

    client = connect(serve(("fail", fail)))
    for _ in range(2):
        with pytest.raises(rpc.RemoteError, match=type(error).__name__):
            client.fail().result()


def test_unknown_method_wrong_arguments_and_results(serve, connect):
    server = serve(("echo", echo), ("one", lambda x: object()))
    client = connect(server)
    with pytest.raises(rpc.RemoteError, match=r"no method 'ecko', only \['echo'"):
        client.ecko().result()
    with pytest.raises(rpc.RemoteError, match=r"TypeError.*argument"):
        client.one(1, 2).result()
    with pytest.raises(rpc.RemoteError, match="cannot send object"):
        client.one(1).result()
    with pytest.raises(rpc.EncodeError, match="set at"):
        client.echo({1, 2})
    assert client.echo(1).result()[0] == [1]
    assert server.stats()["unknown"] == 1
    assert server.stats()["one/errors"] == 2


def test_deadline(serve, connect):
    release = threading.Event()
    server = serve(("hang", release.wait), ("echo", echo))
    client = connect(server)
    future = client.call("hang", timeout=0.2)
    patient = client.hang()
    with pytest.raises(TimeoutError, match=f"hang at {server.address} in 0.2 s"):
        future.result()
    with pytest.raises(TimeoutError, match=r"waiting 0\.01 s"):
        patient.result(timeout=0.01)
    assert not patient.done()
    release.set()
    assert patient.result() is True
    assert client.stats()["inflight"] == 0


def test_deadline_of_a_call_nobody_waits_for(serve, connect, until):
    release = threading.Event()
    client = connect(serve(("hang", release.wait)))
    future = client.call("hang", timeout=0.2)
    until(future.done)
    assert isinstance(future.exception(), TimeoutError)
    release.set()


def test_no_server():
    address = rpc.resolve("{auto}")
    with pytest.raises(TimeoutError, match=f"no server at {address} in 0.3 s"):
        rpc.Client(address, connect_timeout=0.3)


def test_client_may_start_first(serve, connect):
    address = rpc.resolve("{auto}")
    client = connect(address, connect_timeout=None)
    future = client.echo(1)
    serve(("echo", echo), address=address)
    assert future.result()[0] == [1]


def test_in_flight_limit(serve, connect):
    release = threading.Event()
    client = connect(serve(("hang", release.wait)), max_inflight=3)
    futures = [client.hang() for _ in range(3)]
    with pytest.raises(TimeoutError, match=r"3 calls .* in flight"):
        client.call("hang", timeout=0.2)
    release.set()
    assert [future.result() for future in [*futures, client.hang()]] == [True] * 4


def test_threads_share_a_client(serve, connect):
    client = connect(serve(("echo", echo, None, {"workers": 2})))
    wrong = []

    def work(thread):
        for i in range(200):
            value = [thread, i, np.full(2000, i)]
            found = client.echo(value).result()[0][0]
            if found[:2] != value[:2] or (found[2] != i).any():
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    assert client.stats()["calls"] == 1600
    assert client.stats()["repeats"] == 0


def test_postfn_runs_in_order_after_the_reply(serve, connect):
    release, posted, done = threading.Event(), [], threading.Event()

    def post(info):
        release.wait(10)  # Replies must not wait for this.
        posted.append(info)
        if len(posted) == 20:
            done.set()

    def work(x):
        return 2 * x, x

    client = connect(serve(("work", work, post)))
    futures = [client.work(i) for i in range(20)]
    assert [future.result() for future in futures] == [2 * i for i in range(20)]
    release.set()
    assert done.wait(10)
    assert posted == list(range(20))


def test_failed_postfn_is_reported(serve, connect, caplog):
    server = serve(("work", lambda x: (x, x), lambda info: 1 / info))
    client = connect(server)
    assert [client.work(i).result() for i in (1, 0, 2)] == [1, 0, 2]
    server.close()
    assert isinstance(server.failure(), ZeroDivisionError)
    assert "postfn of 'work' failed" in caplog.text


def test_stats(serve, connect):
    server = serve(("echo", echo))
    client = connect(server)
    for i in range(10):
        client.echo(i).result()
    stats = server.stats()
    assert stats["echo/rate"] > 0
    assert stats["echo/rows"] == 1
    assert stats["connections"] == 1
    assert stats["connections"] == 1
    assert stats["malformed"] == stats["echo/errors"] == 0
    assert server.stats()["echo/rate"] == 0
    assert client.stats()["calls"] == 10
    assert all(isinstance(v, (int, float)) for v in stats.values())


def test_a_call_that_is_too_large_fails_alone(serve, connect):
    client = connect(serve(("echo", abs)), max_bytes=10_000)
    with pytest.raises(rpc.EncodeError, match="the limit is 10000"):
        client.echo(np.zeros(20_000, np.uint8))
    assert client.echo(1).result() == 1


def test_close(serve, connect):
    release = threading.Event()
    server = serve(("hang", release.wait))
    client = connect(server)
    future = client.hang()
    client.close()
    with pytest.raises(rpc.ClientClosed):
        future.result()
    with pytest.raises(rpc.ClientClosed):
        client.hang()
    with pytest.raises(TimeoutError, match="hang"):
        server.close(timeout=0.2)
    release.set()


def test_close_finishes_running_calls(serve, connect, until):
    started, release = threading.Event(), threading.Event()

    def slow():
        started.set()
        release.wait(20)
        return "done"

    server = serve(("slow", slow))
    client = connect(server)
    future = client.slow()
    assert started.wait(10)
    closing = threading.Thread(target=server.close)
    closing.start()
    until(lambda: server._closing)  # It waits for the call that runs.
    release.set()
    closing.join(20)
    assert future.result() == "done"


def test_start_blocks_until_closed():
    server = rpc.Server("{auto}")
    timer = threading.Timer(0.1, server.close)
    timer.start()
    server.start()
    timer.join(10)
    assert not os.path.exists(server.address.removeprefix("ipc://"))


def test_nothing_is_left(until):
    def used():
        return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))

    def cycle():
        server = rpc.Server("localhost:{auto}", keys=keys.server)
        server.bind("echo", echo, workers=2)
        server.start(block=False)
        client = rpc.Client(server.address, keys=keys.client)
        client.echo(np.zeros(1 << 20, np.uint8)).result()
        client.close()
        server.close()

    keys = rpc.make_keys()
    cycle()  # What ZeroMQ and Python set up once.
    descriptors, tasks = used()
    for _ in range(5):
        cycle()
    assert used()[0] <= descriptors
    until(lambda: used()[1] <= tasks)  # A joined thread is gone a little later.


def _call_from_child(address, queue):
    client = rpc.Client(address)
    queue.put(client.echo(os.getpid()).result()[0])
    client.close()


@pytest.mark.process
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes(serve, connect, method):
    server = serve(("echo", echo))
    connect(server).echo(1).result()
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=_call_from_child, args=(server.address, queue))
    process.start()
    assert queue.get(timeout=30) == [process.pid]
    process.join(30)
    assert process.exitcode == 0


def _use_inherited(client, queue):
    try:
        client.echo(1)
    except RuntimeError as error:
        queue.put(str(error))
    client.close()


@pytest.mark.process
def test_forked_client_is_refused(serve, connect):
    client = connect(serve(("echo", echo)))
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=_use_inherited, args=(client, queue))
    process.start()
    assert "forked" in queue.get(timeout=30)
    process.join(30)
    assert client.echo(1).result()[0] == [1]


LIMITED = """
import resource
from embodied import rpc

_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))
server = rpc.Server("{auto}")
server.bind("double", lambda x: 2 * x)
server.start(block=False)
print(server.address, flush=True)
input()
server.close()
"""


@pytest.mark.process
def test_more_clients_than_the_usual_number_of_files():
    command = [sys.executable, "-c", LIMITED]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process, contextlib.ExitStack() as stack:
        stack.callback(process.communicate, "\n", timeout=60)
        address = process.stdout.readline().strip()
        clients = [rpc.Client(address) for _ in range(80)]
        for client in clients:
            stack.callback(client.close)
        found = [client.double(i).result() for i, client in enumerate(clients)]
    assert found == [2 * i for i in range(80)]
