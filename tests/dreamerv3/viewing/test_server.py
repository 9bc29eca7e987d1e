"""The server answers its own page, and nobody else."""

import http.client
import json
import os
import struct
import threading

import numpy as np
import pytest

from dreamerv3.viewing.server import Server
from dreamerv3.viewing.store import Store

POLL = 0.01  # Seconds until the server notices that it should shut down.


class Browser:
    """Requests to a server, with whatever headers."""

    def __init__(self, server):
        self.port = server.server_address[1]

    def ask(self, path, method="GET", **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        names = {key.replace("_", "-"): value for key, value in headers.items()}
        connection.request(method, path, headers=names)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        return answer, body

    def json(self, path):
        answer, body = self.ask(path)
        assert answer.status == 200, body
        return json.loads(body)


@pytest.fixture
def run(make_run):
    run = make_run("first", seed=3)
    run.add_episodes(20)
    run.add_file("report/openloop/image", "000000000100.mp4", bytes(range(100)))
    run.add_file("parallel/bottleneck", "000000000100.txt", b"env: slow")
    run.add_roles(agent=(os.getpid(), 2))
    (run.path / "secret.txt").write_text("secret")
    return run


@pytest.fixture
def store(run, make_run, tmp_path):
    make_run("second", method="other", task="dummy_disc").add_episodes(10)
    store = Store([str(tmp_path / "logdir")])
    store.read_all()
    return store


@pytest.fixture
def browser(store):
    server = Server(store, 0)
    thread = threading.Thread(target=server.serve_forever, args=(POLL,), daemon=True)
    thread.start()
    yield Browser(server)
    server.shutdown()
    server.server_close()
    thread.join()


def decode(body):
    (size,) = struct.unpack_from("<I", body)
    header = json.loads(body[4 : 4 + size])
    numbers = np.frombuffer(body, "<f8", offset=4 + size)
    curves = {}
    for name, count in header["runs"]:
        curves[name], numbers = (
            numbers[: 4 * count].reshape(4, -1),
            numbers[4 * count :],
        )
    assert not len(numbers)
    return header, curves


def test_page_and_its_files(browser):
    answer, body = browser.ask("/")
    assert answer.status == 200
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    text = body.decode()
    assert "http://" not in text
    assert "https://" not in text
    for part in text.split('src="')[1:]:
        answer, _ = browser.ask("/" + part.split('"')[0])
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/javascript")


def test_state(browser):
    state = browser.json("/api/state")
    first, second = state["runs"]
    assert (first["name"], first["seed"], first["step"]) == ("first", "3", 2000)
    assert second["method"] == "other"
    assert first["active"]
    assert first["timed"]
    assert state["keys"] == ["episode/length", "episode/score", "train/loss/total"]


def test_meanings(browser):
    found = browser.json("/api/meanings")
    assert set(found) == {"episode/length", "episode/score", "train/loss/total"}
    assert found["episode/length"].startswith("Length of one finished")
    (text,) = browser.json("/api/meanings?key=report/openloop/image").values()
    assert text.startswith("Top row")


def test_curves(browser, store):
    ids = ",".join(data.run.id for data in store.all())
    _, body = browser.ask(f"/api/curves?key=episode/score&runs={ids}")
    header, curves = decode(body)
    assert (header["low"], header["high"]) == (100, 2000)
    x, mean, low, high = curves[store.all()[0].run.id]
    np.testing.assert_allclose(x, 100 * np.arange(1, 21))
    np.testing.assert_allclose(mean, np.arange(20) / 10, rtol=1e-6)
    np.testing.assert_array_equal(low, high)
    _, body = browser.ask(
        f"/api/curves?key=episode/score&runs={ids}&x=time&amount=5&low=0&high=10"
    )
    _, curves = decode(body)
    assert all(0 < len(curve[0]) <= 5 for curve in curves.values())
    _, body = browser.ask(f"/api/curves?key=missing&runs={ids},unknown")
    assert all(not len(curve[0]) for curve in decode(body)[1].values())


@pytest.mark.parametrize(
    "query", ["", "key=a&x=other", "key=a&amount=0", "key=a&amount=x", "key=a&low=inf"]
)
def test_bad_questions(browser, query):
    assert browser.ask(f"/api/curves?{query}")[0].status == 400


def test_media_settings_health(browser, store):
    name = store.all()[0].run.id
    found = browser.json(f"/api/media?runs={name}")[name]
    assert found["report/openloop/image"] == [[100, "000000000100.mp4", "video"]]
    found = browser.json(f"/api/settings?runs={name}")
    assert found["runs"][name]["seed"] == "3"
    assert found["defaults"]["seed"] == "0"
    health = browser.json(f"/api/health?runs={name}")[name]
    assert health["roles"] == [
        {"name": "agent", "pid": os.getpid(), "restarts": 2, "alive": True}
    ]
    assert health["bottleneck"] == "env: slow"


def test_videos_in_parts(browser, store):
    path = f"/media/{store.all()[0].run.id}/report/openloop/image/000000000100.mp4"
    answer, body = browser.ask(path)
    assert body == bytes(range(100))
    assert answer.headers["Content-Type"] == "video/mp4"
    for given, first, last in (("10-19", 10, 19), ("90-", 90, 99), ("-5", 95, 99)):
        answer, body = browser.ask(path, Range=f"bytes={given}")
        assert answer.status == 206
        assert body == bytes(range(first, last + 1))
        assert answer.headers["Content-Range"] == f"bytes {first}-{last}/100"
    assert browser.ask(path, Range="bytes=200-")[0].status == 416


@pytest.mark.parametrize(
    "path",
    [
        "/media/{run}/../secret.txt",
        "/media/{run}/%2e%2e/secret.txt",
        "/media/{run}/..%2fsecret.txt",
        "/media/{run}//{root}/secret.txt",
        "/media/{run}/link/secret.txt",
        "/media/{run}/%00.txt",
        "/media/{run}/",
        "/media/unknown/a.txt",
        "/../server.py",
        "/..%2fserver.py",
        "/%2e%2e/%2e%2e/cli.py",
        "/api/missing",
    ],
)
def test_nothing_else_is_served(browser, store, run, path):
    (run.path / "media" / "link").symlink_to(run.path)
    path = path.format(run=store.all()[0].run.id, root=run.path)
    answer, body = browser.ask(path)
    assert answer.status == 404
    assert b"secret" not in body.replace(b"secret.txt", b"")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:8765"},
        {"Host": "127.0.0.1.evil.example"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/state"])
def test_other_sites_are_refused(browser, headers, path):
    assert browser.ask(path, **headers)[0].status == 403


def test_own_page_through_a_tunnel(browser):
    answer, _ = browser.ask(
        "/api/state",
        Host="localhost:9000",
        Origin="http://localhost:9000",
        Sec_Fetch_Site="same-origin",
    )
    assert answer.status == 200
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH"]
)
def test_only_get(browser, method):
    answer, _ = browser.ask("/api/state", method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET"


def test_listens_on_this_machine_only(store):
    server = Server(store, 0)
    assert server.server_address[0] == "127.0.0.1"
    server.server_close()
