"""Expa, through its package, against a server that keeps what it gets."""

import http.server
import json
import threading

import numpy as np
import pytest

from embodied.metrics import Background

pytest.importorskip("expa")

POLL = 0.01  # Seconds until the server notices that it should shut down.


class Server(http.server.ThreadingHTTPServer):
    """Answers every post with a status."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.posts = []
        self.status = 200

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/api"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.posts.append((self.path, body))
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        """Print nothing."""


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(POLL,))
    thread.start()
    yield server
    server.shutdown()
    thread.join(20)
    server.server_close()


def make(url):
    from embodied.metrics.expa import ExpaOutput

    config = {"run.steps": 500, "agent.mults": (1, 2)}
    return ExpaOutput("bounce_32", "first", config, url, "dreamerv3", "me")


def test_posts(server, every_kind):
    output = make(server.url)
    output(every_kind)
    output.close()
    (params, *posts) = server.posts
    assert params[0] == "/api/log_params"
    assert params[1]["params"] == {"run.steps": "500", "agent.mults": "(1, 2)"}
    assert {path for path, _ in posts} == {"/api/log_metrics"}
    rows = [(body["step"], body["data"]) for _, body in posts]
    first = {"episode/score": 1.5, "train/count": 3}
    assert rows == [(10, first), (20, first), (20, {"episode/score": 2.5})]
    names = {(b["project"], b["user"], b["exp"], b["run"]) for _, b in posts}
    assert names == {("dreamerv3", "me", "bounce_32", "first")}


def test_a_server_that_is_gone_is_told_and_counted(server, capsys):
    output = Background("expa", lambda: make(server.url))
    output([(1, "a", np.asarray(1.0))])
    assert output._idle(20)
    server.status = 500
    output([(2, "a", np.asarray(2.0))])
    output.close()
    assert output.dropped == 1
    assert "Logger output expa failed with HTTPError: 500" in capsys.readouterr().out


def test_without_a_server(capsys):
    output = Background("expa", lambda: make("http://127.0.0.1:9/api"))
    output([(1, "a", np.asarray(1.0))])
    output.close()
    assert output.dropped == 1
    assert "failed with ConnectionError" in capsys.readouterr().out
