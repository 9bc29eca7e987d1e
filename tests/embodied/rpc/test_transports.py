"""What the roles need of a transport, on our own one and on `portal`."""

import contextlib
import threading

import numpy as np
import portal as package
import pytest

from embodied import rpc
from embodied.rpc import portal

ZMQ = (rpc.BatchServer, rpc.Client)
PORTAL = (portal.Server, portal.Client)
SPACES = {"envid": (np.int32, ()), "image": (np.uint8, (2, 2)), "seq": (np.int64, ())}


@pytest.fixture(params=[ZMQ, PORTAL], ids=["zmq", "portal"])
def transport(request):
    """Functions that start a server and a client, which are closed after the test."""
    make_server, make_client = request.param
    with contextlib.ExitStack() as stack:

        def serve(*methods, address="localhost:{auto}"):
            server = make_server(address, "test")
            for name, workfn, *rest in methods:
                postfn, options = (*rest, None, {})[:2]
                server.bind(name, workfn, postfn, **(options or {}))
            server.start(block=False)
            stack.callback(server.close)
            return server

        def connect(address, **options):
            client = make_client(address, "test", **{"timeout": 20, **options})
            stack.callback(client.close)
            return client

        yield serve, connect


def test_values(transport):
    serve, connect = transport
    client = connect(serve(("echo", lambda value: value)).address)
    tree = {"a": np.arange(6).reshape(2, 3), "b": ["text", None, 5, 1.5, True, {}]}
    found = client.echo(tree).result()
    np.testing.assert_array_equal(found["a"], tree["a"])
    assert found["b"] == tree["b"]
    assert client.call("echo", (3,), timeout=10).result() == 3


def test_a_failure_has_type_and_message_and_ends_nothing(transport):
    serve, connect = transport

    def fail(value):
        raise KeyError(f"no {value}: here")

    client = connect(serve(("fail", fail), ("echo", abs)).address)
    error = client.fail("luck").exception()
    assert isinstance(error, rpc.RemoteError)
    assert error.kind == "KeyError"
    assert "no luck: here" in error.message
    assert client.echo(-2).result() == 2


def test_an_unknown_method(transport):
    serve, connect = transport
    client = connect(serve(("echo", abs)).address)
    assert isinstance(client.other().exception(), rpc.RemoteError)
    assert client.echo(-2).result() == 2


def test_calls_run_in_order(transport):
    serve, connect = transport
    log = []
    client = connect(serve(("note", log.append)).address)
    for future in [client.note(i) for i in range(200)]:
        future.result()
    assert log == list(range(200))


def test_a_call_that_takes_too_long(transport):
    serve, connect = transport
    release = threading.Event()
    client = connect(serve(("hang", lambda: release.wait(30))).address)
    future = client.call("hang", timeout=0.2)
    with pytest.raises(TimeoutError):
        future.result()
    assert future.done()
    release.set()


def test_a_restarted_server_gets_the_next_calls(transport):
    serve, connect = transport
    server = serve(("echo", abs))
    client = connect(server.address)
    assert client.echo(-1).result() == 1
    server.close()
    serve(("echo", lambda value: value + 1), address=server.address)
    assert client.echo(1).result() == 2


def test_a_batch_is_stacked_with_defaults(transport):
    serve, connect = transport
    posted = []

    def act(rows, count):
        assert {k: v.dtype for k, v in rows.items()} == {
            k: s[0] for k, s in SPACES.items()
        }
        assert rows["image"].shape[1:] == (2, 2)
        assert rows["seq"][:count].tolist() == [-1] * count
        return {"action": 2 * rows["envid"], "reset": rows["envid"] > 3}, count

    options = {"batch": 2, "spaces": SPACES, "defaults": {"seq": -1}}
    server = serve(("act", act, posted.append, options))
    clients = [connect(server.address) for _ in range(4)]
    rows = [
        {"envid": np.int32(i), "image": np.zeros((2, 2), np.uint8)} for i in range(4)
    ]
    futures = [c.act(row) for c, row in zip(clients, rows, strict=True)]
    assert [int(future.result()["action"]) for future in futures] == [0, 2, 4, 6]
    server.close()
    assert sum(posted) == 4


def test_rows_of_one_client_keep_their_types(transport):
    serve, connect = transport

    def act(rows, count):
        return {"action": 2 * rows["envid"], "reset": rows["envid"] > 3}, count

    options = {"batch": 2, "spaces": SPACES, "defaults": {"seq": -1}}
    client = connect(serve(("act", act, str, options)).address)
    rows = {"envid": np.array([3, 4], np.int32), "image": np.zeros((2, 2, 2), np.uint8)}
    found = client.call_rows("act", rows, 20).result()
    assert found["action"].tolist() == [6, 8]
    assert found["action"].dtype == np.int32
    assert found["reset"].tolist() == [False, True]


def test_the_first_failure_of_a_postfn_is_kept(transport, until):
    serve, connect = transport

    def post(info):
        raise ValueError(info)

    server = serve(("work", lambda value: (value, "first"), post))
    client = connect(server.address)
    assert client.work(3).result() == 3
    until(server.failure)
    assert str(server.failure()) == "first"


def test_stats_are_numbers(transport):
    serve, connect = transport
    server = serve(("echo", abs))
    client = connect(server.address)
    client.echo(1).result()
    for stats in (server.stats(), client.stats()):
        assert stats
        assert all(isinstance(value, int | float) for value in stats.values())
    assert client.stats()["connected"] == 1


def test_a_server_that_is_away(transport):
    _, connect = transport
    address = rpc.resolve("localhost:{auto}")
    with pytest.raises(TimeoutError, match="no server at"):
        connect(address, connect_timeout=0.2)
    assert not connect(address, connect_timeout=None).reach(0.1)


def test_portal_itself_can_call_and_only_this_machine_is_served():
    server = portal.Server("localhost:{auto}")
    server.bind("echo", lambda value: value)
    server.start(block=False)
    port = portal.split(server.address)[1]
    client = package.Client(f"localhost:{port}")
    np.testing.assert_array_equal(client.echo(np.arange(3)).result(), np.arange(3))
    client.close()
    server.close()
    assert server.address.startswith("tcp://127.0.0.1:")


def test_portal_needs_tcp():
    with pytest.raises(rpc.AddressError, match="tcp://127"):
        portal.Server("ipc:///tmp/some.sock")
