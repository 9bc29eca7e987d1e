"""A server and clients that are closed after the test, whatever it did."""

import pytest

from embodied import rpc


@pytest.fixture
def serve():
    made = []

    def start(*methods, address="{auto}", cls=rpc.BatchServer, **kwargs):
        server = cls(address, "test", **kwargs)
        for name, workfn, *rest in methods:
            postfn, options = (*rest, None, None)[:2]
            server.bind(name, workfn, postfn, **(options or {}))
        server.start(block=False)
        made.append(server)
        return server

    yield start
    for server in made:
        server.close()


@pytest.fixture
def connect():
    made = []

    def start(server, **kwargs):
        address = server if isinstance(server, str) else server.address
        client = rpc.Client(address, "test", **{"timeout": 20, **kwargs})
        made.append(client)
        return client

    yield start
    for client in made:
        client.close()
