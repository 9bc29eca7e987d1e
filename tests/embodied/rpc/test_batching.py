"""Batches fire by count or deadline; a bad request fails alone and by key."""

import threading
import time

import elements
import numpy as np
import pytest

from embodied import rpc
from embodied.rpc.schema import Schema, SchemaError

SPACES = {
    "image": elements.Space(np.uint8, (4, 4, 3)),
    "reward": elements.Space(np.float32),
    "envid": elements.Space(np.int32),
    "is_last": elements.Space(bool),
}


def obs(number, rows=None, **replace):
    lead = () if rows is None else (rows,)
    made = {k: np.zeros(lead + s.shape, s.dtype) for k, s in SPACES.items()}
    made["envid"] = made["envid"] + np.int32(number)
    made["image"] += np.uint8(number)
    return {**made, **replace}


class Policy:
    """Answers with the id of each environment, and keeps what it got."""

    def __init__(self):
        self.batches = []
        self.rows = []

    def __call__(self, batch, rows):
        self.batches.append(batch)
        self.rows.append(rows)
        mean = batch["image"].mean((1, 2, 3))
        return {"action": 10 * batch["envid"], "extra": {"mean": mean}}


def options(batch=4, timeout=60.0, **kwargs):
    return {"batch": batch, "timeout": timeout, "spaces": SPACES, **kwargs}


@pytest.mark.parametrize("workers", [1, 2])
def test_by_count(serve, connect, workers):
    policy = Policy()
    server = serve(("act", policy, None, options(workers=workers)))
    clients = [connect(server) for _ in range(4)]
    for turn in range(3):
        futures = [c.act(obs(4 * turn + i)) for i, c in enumerate(clients)]
        for i, future in enumerate(futures):
            result = future.result()
            assert result["action"] == 10 * (4 * turn + i)
            assert type(result["action"]) is np.int32
            assert result["extra"]["mean"] == 4 * turn + i
    assert policy.rows == [4, 4, 4]
    assert server.stats()["act/rows"] == 4


@pytest.mark.parametrize("workers", [1, 2])
def test_by_deadline(serve, connect, workers):
    policy = Policy()
    server = serve(("act", policy, None, options(timeout=0.05, workers=workers)))
    client = connect(server)
    futures = [client.act(obs(i)) for i in range(6)]
    assert [f.result()["action"] for f in futures] == [0, 10, 20, 30, 40, 50]
    assert policy.rows == [4, 2]
    assert client.act(obs(9)).result()["action"] == 90


def test_vanished_client_never_blocks_others(serve, connect):
    policy = Policy()
    server = serve(("act", policy, None, options(batch=3, timeout=0.05)))
    vanishing, staying = connect(server), connect(server)
    vanishing.act(obs(1))
    vanishing.close()
    for i in range(5):
        assert staying.act(obs(i)).result()["action"] == 10 * i
    assert sum(policy.rows) <= 6


def test_many_rows_in_one_request(serve, connect):
    policy = Policy()
    server = serve(("act", policy, None, options(batch=8)))
    client = connect(server)
    first, second = client.act(obs(1, rows=5)), client.act(obs(2, rows=2))
    third = client.act(obs(3))
    assert first.result()["action"].tolist() == [10] * 5
    assert second.result()["action"].tolist() == [20] * 2
    assert third.result()["action"] == 30
    assert policy.rows == [8]
    # What does not fit begins the next batch.
    futures = [client.act(obs(i, rows=5)) for i in range(2)]
    assert futures[0].result()["extra"]["mean"].tolist() == [0] * 5
    futures.append(client.act(obs(7, rows=3)))
    assert futures[1].result()["action"].tolist() == [10] * 5
    assert futures[2].result()["action"].tolist() == [70] * 3
    assert policy.rows == [8, 5, 8]


@pytest.mark.parametrize("pad", ["none", "zeros", "repeat"])
def test_padding(serve, connect, pad):
    policy = Policy()
    client = connect(serve(("act", policy, None, options(timeout=0, pad=pad))))
    assert client.act(obs(7)).result()["action"] == 70
    expected = {"none": [7], "zeros": [7, 0, 0, 0], "repeat": [7, 7, 7, 7]}
    assert policy.batches[0]["envid"].tolist() == expected[pad]
    assert policy.rows == [1]


def test_batches_own_their_memory(serve, connect):
    policy = Policy()
    client = connect(serve(("act", policy, None, options(batch=1))))
    for i in range(5):
        client.act(obs(i)).result()
    assert [int(b["envid"][0]) for b in policy.batches] == list(range(5))
    policy.batches[0]["image"][:] = 1  # They may be written to.


BAD = {
    "'image' must be uint8 \\(4, 4, 3\\), got float64": {"image": np.zeros((4, 4, 3))},
    "'image' must be uint8 .* got uint8 \\(3, 4": {"image": np.zeros((3, 4), np.uint8)},
    "'reward' must be float32 \\(\\), got float32 \\(2,\\)": {
        "reward": np.zeros(2, np.float32)
    },
    "'reward' must be .* got str": {"reward": "high"},
    "'envid' must be int32 \\(\\), got int": {"envid": 2**40},
    "'is_last' must be bool": {"is_last": 1},
    "extra \\['foo'\\]": {"foo": 1},
}


@pytest.mark.parametrize("message", list(BAD))
def test_bad_request_fails_alone(serve, connect, message):
    policy = Policy()
    client = connect(serve(("act", policy, None, options(batch=2))))
    first = client.act(obs(1))
    bad = client.act(obs(2, **BAD[message]))
    with pytest.raises(rpc.RemoteError, match=message):
        bad.result()
    assert client.act(obs(3)).result()["action"] == 30
    assert first.result()["action"] == 10
    assert policy.rows == [2]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((), "takes one dict"),
        ((1,), "expected a dict, got int"),
        (({},), "missing keys \\['envid', 'image'"),
        ((obs(1, rows=9),), "9 rows, a batch has 1 to 4"),
        ((obs(1, rows=0),), "0 rows"),
        ((obs(1, rows=2, reward=np.zeros(3, np.float32)),), "'reward' must be"),
    ],
)
def test_bad_arguments(serve, connect, args, message):
    client = connect(serve(("act", Policy(), None, options(timeout=0))))
    with pytest.raises(rpc.RemoteError, match=message):
        client.call("act", args).result()
    assert client.act(obs(1)).result()["action"] == 10


def test_python_scalars_are_fine():
    request = obs(1, reward=1.5, envid=3, is_last=True)
    assert Schema(SPACES).check(request) is None
    with pytest.raises(SchemaError):
        Schema(SPACES).check({**request, "reward": 1})


def test_what_has_a_default_may_be_left_out(serve, connect):
    def policy(batch, rows):
        return {"action": batch["envid"][:rows] * 10}

    given = options(batch=3, defaults={"envid": 7})
    client = connect(serve(("act", policy, None, given)))
    request = obs(1)
    del request["envid"]
    many = obs(1, rows=2)
    del many["envid"]
    one, two = client.act(request), client.act(many)
    assert one.result()["action"] == 70
    assert two.result()["action"].tolist() == [70, 70]
    assert client.act(obs(3, rows=3)).result()["action"].tolist() == [30, 30, 30]
    del request["image"]
    with pytest.raises(rpc.RemoteError, match=r"missing keys \['image'\]"):
        client.act(request).result()


def test_requests_of_a_batch_add_the_same(serve, connect):
    policy = Policy()
    client = connect(serve(("act", policy, None, options(batch=3, optional="log/"))))
    speed, two = {"log/speed": np.float32(5)}, {"log/speed": np.zeros(2, np.float32)}
    other = {"log/speed": np.ones(3), "log/wins": True}
    requests = [obs(1, **speed), obs(2, rows=2, **two), obs(3), obs(4, **other)]
    futures = [client.act(each) for each in (*requests, obs(5, rows=3))]
    futures.append(client.act(obs(6, rows=3, **{"log/x": np.zeros((3, 2))})))
    for future in futures[:3]:
        future.result()
    added = [
        {k: v for k, v in batch.items() if k.startswith("log/")}
        for batch in policy.batches
    ]
    assert policy.rows[:2] == [3, 1]
    assert added[0]["log/speed"].tolist() == [5, 0, 0]
    assert added[0]["log/speed"].dtype == np.float32
    assert added[1] == {}
    assert [future.result()["action"].tolist() for future in futures[3:]] == [
        40,
        [50, 50, 50],
        [60, 60, 60],
    ]
    assert (added := policy.batches[2])["log/speed"].tolist() == [[1, 1, 1]]
    assert added["log/wins"].tolist() == [True]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (obs(1, **{"log/x": "text"}), "'log/x' must be numbers, got str"),
        (obs(1, rows=2, **{"log/x": np.ones(3)}), "'log/x' must be numbers for 2 rows"),
        (obs(1, rows=2, **{"log/x": 1.0}), "'log/x' must be numbers for 2 rows"),
        (obs(1, foo=1), r"extra \['foo'\]"),
        (obs(1, **{"log": 1}), r"extra \['log'\]"),
    ],
)
def test_what_may_not_be_added(serve, connect, request_, message):
    given = options(timeout=0, optional="log/")
    client = connect(serve(("act", Policy(), None, given)))
    with pytest.raises(rpc.RemoteError, match=message):
        client.act(request_).result()
    assert client.act(obs(1)).result()["action"] == 10


def test_failed_batch_fails_its_calls_only(serve, connect):
    def policy(batch, rows):
        if (batch["envid"] == 13).any():
            raise RuntimeError("unlucky")
        return {"action": batch["envid"]}

    client = connect(serve(("act", policy, None, options(batch=2))))
    bad = [client.act(obs(i)) for i in (12, 13)]
    good = [client.act(obs(i)) for i in (1, 2)]
    for future in bad:
        with pytest.raises(rpc.RemoteError, match="unlucky"):
            future.result()
    assert [f.result()["action"] for f in good] == [1, 2]


def test_reply_without_enough_rows_is_an_error(serve, connect):
    def policy(batch, rows):
        return {"action": batch["envid"][:1]}

    client = connect(serve(("act", policy, None, options(batch=2))))
    futures = [client.act(obs(i)) for i in range(2)]
    for future in futures:
        with pytest.raises(rpc.RemoteError, match=r"'/action' .* shape \(1,\) for 2"):
            future.result()


def test_postfn_gets_each_batch_in_order(serve, connect):
    posted, done = [], threading.Event()

    def work(batch, rows):
        return {"action": batch["envid"]}, batch["envid"].tolist()

    def post(envids):
        posted.append(envids)
        if len(posted) == 5:
            done.set()

    client = connect(serve(("act", work, post, options(batch=2))))
    futures = [client.act(obs(i)) for i in range(10)]
    assert [f.result()["action"] for f in futures] == list(range(10))
    assert done.wait(10)
    assert posted == [[i, i + 1] for i in range(0, 10, 2)]


def test_short_batch_waits_for_a_free_worker(serve, connect, until):
    """While the policy runs, requests gather instead of queueing as short batches."""
    started, release, policy = threading.Event(), threading.Event(), Policy()

    def slow(batch, rows):
        if not policy.rows:
            started.set()
            release.wait(20)
        return policy(batch, rows)

    server = serve(("act", slow, None, options(batch=4, timeout=0.001)))
    client = connect(server)
    first = client.act(obs(0))
    assert started.wait(20)
    gathered = server._queues.by_name[b"act"]
    rest = []
    for i in range(1, 4):
        rest.append(client.act(obs(i)))
        until(lambda: gathered._open and gathered._open.rows == len(rest))
    until(lambda: gathered._open.deadline < time.monotonic())  # It is overdue.
    release.set()
    assert [f.result()["action"] for f in [first, *rest]] == [0, 10, 20, 30]
    assert policy.rows == [1, 3]


def test_other_methods_beside_batches(serve, connect):
    server = serve(("act", Policy(), None, options()), ("ping", lambda: "pong"))
    assert connect(server).ping().result() == "pong"


def test_wrong_options():
    server = rpc.BatchServer("{auto}")
    for wrong in ({"batch": -1}, {"timeout": -1}, {"pad": "x"}, {"spaces": {}}):
        with pytest.raises(ValueError, match="needs"):
            server.bind("act", Policy(), **options(**wrong))


def test_a_batch_that_was_begun_runs_before_a_server_closes(serve, connect):
    posted = []

    def act(batch, rows):
        return {"action": batch["envid"]}, rows

    server = serve(("act", act, posted.append, options(batch=4)), ("echo", abs))
    client = connect(server)
    call = client.act(obs(7))
    assert client.echo(-1).result() == 1  # The other call came before.
    server.close()
    assert call.result()["action"] == 7
    assert posted == [1]


VALUES = {
    "image": elements.Space(np.uint8, (4, 4, 3)),
    "reward": elements.Space(np.float32),
    "vector": elements.Space(np.float32, (3,), [0, -1, 0], [1, 1, 5]),
    "token": elements.Space(np.int32, (), 0, 7),
    "count": elements.Space(np.int32),
    "is_last": elements.Space(bool),
}


def values(number, rows=None, **replace):
    lead = () if rows is None else (rows,)
    made = {k: np.zeros(lead + s.shape, s.dtype) for k, s in VALUES.items()}
    made["count"] = made["count"] + np.int32(number)
    made["image"] += np.uint8(255)
    return {**made, **replace}


def act(batch, rows):
    return {"action": 10 * batch["count"][:rows]}


WRONG = {
    "'reward' is nan, which is not a finite number": {"reward": np.float32("nan")},
    "'reward' is -inf, which is not": {"reward": np.float32("-inf")},
    r"'vector'\[1\] is -1.5, its space allows -1.0 to 1.0": {
        "vector": np.array([0, -1.5, 9], np.float32)
    },
    r"'vector'\[2\] is nan": {"vector": np.array([0, 0, np.nan], np.float32)},
    "'token' is 7, its space allows 0 to 6": {"token": np.int32(7)},
    "'token' is -1, its": {"token": -1},
}


@pytest.mark.parametrize("message", list(WRONG))
def test_values_that_are_not_allowed_fail_their_request_alone(serve, connect, message):
    given = {"batch": 3, "timeout": 60.0, "spaces": VALUES}
    server = serve(("act", act, None, given))
    clients = [connect(server) for _ in range(3)]
    requests = [values(1), values(2, **WRONG[message]), values(3)]
    futures = [c.act(r) for c, r in zip(clients, requests, strict=True)]
    with pytest.raises(rpc.RemoteError, match=message) as caught:
        futures[1].result()
    assert caught.value.kind == "SchemaError"
    assert [futures[i].result()["action"] for i in (0, 2)] == [10, 30]
    stats = server.stats()
    assert (stats["act/rejected"], stats["act/errors"]) == (1, 1)


def test_extreme_values_of_a_space_are_allowed(serve, connect):
    given = {"batch": 2, "timeout": 0.0, "spaces": VALUES}
    client = connect(serve(("act", act, None, given)))
    most = np.finfo(np.float32).max
    high = {"vector": np.array([1, 1, 5], np.float32), "reward": most, "token": 6}
    assert client.act(values(2**31 - 1, **high)).result()["action"] is not None
    low = {"vector": np.array([0, -1, 0], np.float32), "reward": -most, "token": 0}
    assert client.act(values(-(2**31), **low)).result()["action"] is not None


@pytest.mark.parametrize("pad", ["none", "zeros", "repeat"])
def test_rejected_rows_leave_no_gap(serve, connect, pad):
    """Whatever their number and the rows of the other requests."""
    rng, kept = np.random.default_rng(0), []

    def check(batch, rows):
        odd = np.flatnonzero(batch["count"][:rows] % 2)
        return {int(row): SchemaError("it is odd") for row in odd}

    def policy(batch, rows):
        kept.append(batch["count"][:rows].tolist())
        assert (batch["image"][:rows] == 255).all()
        return act(batch, rows)

    given = {"batch": 12, "timeout": 0.01, "spaces": VALUES, "check": check}
    client = connect(serve(("act", policy, None, {**given, "pad": pad})))
    sent = []
    for number in range(200):
        rows = [None, 1, 2, 3][rng.integers(4)]
        sent.append((number, rows, client.act(values(number, rows))))
    for number, rows, future in sent:
        if number % 2:
            place = "row 0: " if (rows or 1) > 1 else ""
            with pytest.raises(rpc.RemoteError, match=f": {place}it is odd"):
                future.result()
        else:
            assert np.shape(future.result()["action"]) == (
                () if rows is None else (rows,)
            )
            assert (future.result()["action"] == 10 * number).all()
    even = [
        n for number, rows, _ in sent if not number % 2 for n in [number] * (rows or 1)
    ]
    assert [number for batch in kept for number in batch] == even


def test_a_check_that_fails_fails_the_calls(serve, connect):
    given = {"batch": 1, "timeout": 0.0, "spaces": VALUES, "check": lambda b, r: {}[r]}
    client = connect(serve(("act", act, None, given)))
    with pytest.raises(rpc.RemoteError, match="KeyError"):
        client.act(values(1)).result()
