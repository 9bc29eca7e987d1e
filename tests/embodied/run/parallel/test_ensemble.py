"""The learner of several hosts: who belongs to it, and which orders they get."""

import threading
from functools import partial as bind

import numpy as np
import pytest

from embodied import rpc
from embodied.process.context import Context, StoppedError
from embodied.run.parallel import (
    connections,
    coordinator,
    ensemble,
    follower,
    member,
)
from embodied.run.parallel.ensemble import Ensemble, LostError
from embodied.run.parallel.roles import LEARNER
from embodied.run.settings import RunSettings

FACTS = {"jax_addr": "10.0.0.5:1234"}
SESSION = 7
HOSTS = {"one": 21, "two": 22}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ensemble, "HOLD", 0.01)
    monkeypatch.setattr(ensemble, "SHUTDOWN_TIMEOUT", 0.01)
    for module in (ensemble, follower):
        monkeypatch.setattr(module, "ASK_EVERY", 0.01)


@pytest.fixture
def company():
    """Two followers that know what they have to."""
    made = Ensemble(SESSION, HOSTS, FACTS)
    known = {**FACTS, "session": SESSION, "hosts": 3}
    assert made.start("one", 21) == {**known, "host": 1}
    assert made.start("two", 22) == {**known, "host": 2}
    made.take = bind(made.take, SESSION)
    return made


@pytest.fixture
def args(tmp_path):
    given = {"logdir": str(tmp_path), "learners": 3, "config": {"a": 1}}
    names = ("coordinator_addr", "learner_addr")
    return RunSettings.of({**given, **{n: rpc.resolve("{auto}") for n in names}})


@pytest.fixture
def issue():
    return iter(range(1, 100)).__next__


def join(args, name, ctx):
    invitation = member.Invitation(args.coordinator_addr, None)
    return member.Member(invitation, member.Entry(LEARNER, name), ctx)


def test_the_leader_waits_for_all_hosts(args, issue, ctx, start, until):
    with coordinator.serve(args, issue) as served:
        client = rpc.Client(args.coordinator_addr)
        found = []
        thread = start(
            lambda: found.append(ensemble.await_followers(client, args, ctx))
        )
        one = join(args, "one", ctx)
        one.join()
        until(lambda: served.members.joined(LEARNER) == {"one": 1})
        one.close()  # It goes before all are there, which frees its place.
        two, three = join(args, "two", ctx), join(args, "three", ctx)
        two.join()
        assert not found
        two.join()  # Its process may be restarted meanwhile.
        three.join()
        thread.join(20)
        assert found == [{"two": 3, "three": 4}]
        four = join(args, "four", ctx)  # One that is too much harms nobody.
        four.join()
        assert ensemble.await_followers(client, args, ctx) == found[0]
        for each in (two, three, four):
            each.close()
        client.close()


def test_the_next_leader_waits_until_the_hosts_have_started_anew(args, issue):
    with coordinator.serve(args, issue) as served:
        for name in ("one", "two"):
            served.members.join(LEARNER, name)
        first, second = Context(incarnation=1), Context(incarnation=2)
        client = rpc.Client(args.coordinator_addr)
        assert ensemble.await_followers(client, args, first) == {"one": 1, "two": 2}
        assert served.learners("", 2, 2) == [{}, 0]
        served.members.join(LEARNER, "one")
        assert served.learners("", 2, 2) == [{}, 1]
        assert served.learners("", 1, 2) == [{"two": 2}, 1]  # It lost one.
        served.members.join(LEARNER, "two")
        assert ensemble.await_followers(client, args, second) == {"one": 3, "two": 4}
        client.close()


def test_a_leader_that_waits_can_be_stopped(args, issue, ctx):
    with coordinator.serve(args, issue):
        client = rpc.Client(args.coordinator_addr)
        ctx.request_stop()
        with pytest.raises(StoppedError):
            ensemble.await_followers(client, args, ctx)
        client.close()


def test_a_host_waits_for_its_leader_and_begins_with_it(args, issue, ctx, start, until):
    with coordinator.serve(args, issue) as served:
        own = join(args, "one", ctx)
        invitation = member.Invitation(args.coordinator_addr, None)
        found = []

        def wait():
            facts, client = follower.await_leader(own, "one", invitation, ctx)
            client.close()
            found.append(facts)

        thread = start(wait)
        strangers = Ensemble(1, {"one": 999, "two": 22}, FACTS)
        server = ensemble.make_server(strangers, args)
        server.start(block=False)  # Of a leader that began with other hosts.
        until(lambda: served.members.joined(LEARNER).get("one", 0) > 3)
        server.close()
        assert not found
        session = 1
        while thread.is_alive():  # It may join again just after it was chosen.
            session += 1
            hosts, _ = served.learners("", session, 1)
            if hosts:
                server = ensemble.make_server(Ensemble(session, hosts, FACTS), args)
                server.start(block=False)
                thread.join(1)
                server.close()
        assert [facts["session"] for facts in found] == [session]
        own.close()


def test_a_host_that_is_not_among_them_gets_nothing(company):
    assert company.start("three", 23) == {}
    assert company.start("one", 20) == {}  # An earlier incarnation.


def test_a_host_that_was_restarted_is_lost(company):
    company.check({**HOSTS, "three": 23})
    with pytest.raises(LostError, match="one was restarted"):
        company.check({**HOSTS, "one": 30})


def test_a_host_that_is_gone_is_lost(company):
    with pytest.raises(LostError, match="two is gone"):
        company.check({"one": 21})


def test_a_leader_that_lost_a_host_ends(args, issue, until):
    ended = []
    ctx = Context(on_exit=lambda ctx, error: ended.append(error))
    company, done = Ensemble(SESSION, {"one": 1}, FACTS), threading.Event()
    server = ensemble.make_server(company, args)
    server.start(block=False)
    with coordinator.serve(args, issue) as served:
        served.members.join(LEARNER, "one")
        served.learners("", ctx.incarnation, 1)
        client = rpc.Client(args.coordinator_addr)
        given = (company, server, client, done, ctx)
        thread = threading.Thread(target=ensemble.watch, args=given)
        thread.start()
        served.members.leave(LEARNER, "one")
        until(lambda: ended)
        done.set()
        thread.join(20)
        client.close()
    server.close()
    assert isinstance(ended[0], LostError)


def test_orders_of_an_earlier_leader_are_not_mixed_with_these(company):
    company.post(("share",))
    with pytest.raises(LostError, match="the leader was restarted"):
        Ensemble.take(company, SESSION - 1, 1, 0)


def test_each_host_gets_all_orders_with_its_own_rows(company):
    batch = np.arange(6)
    company.post(("carry", 0, 6))
    company.post(("batch", 1, 6), lambda host: {"x": batch[2 * host : 2 * host + 2]})
    assert company.take(1, 0) == ["carry", 0, 6]
    assert company.take(1, 0) == [
        "carry",
        0,
        6,
    ]  # Asked again, as its answer was lost.
    *words, rows = company.take(1, 1)
    assert words == ["batch", 1, 6]
    np.testing.assert_array_equal(rows["x"], [2, 3])
    assert company.take(1, 2) == []
    assert company.take(2, 0) == ["carry", 0, 6]
    np.testing.assert_array_equal(company.take(2, 1)[-1]["x"], [4, 5])
    assert len(company._orders) == 1  # What all have taken is forgotten.
    company.take(2, 2)
    assert not company._orders
    company.post(("share",))
    assert company.take(1, 2) == company.take(2, 2) == ["share"]


@pytest.mark.parametrize("index", [0, 3])
def test_orders_that_are_gone_or_not_there_are_refused(company, index):
    company.post(("share",))
    assert company.take(1, 0) == ["share"]
    assert company.take(1, 1) == []
    with pytest.raises(AssertionError):
        company.take(1, index)


def test_an_order_wakes_who_waits_for_it(company, monkeypatch):
    monkeypatch.setattr(ensemble, "HOLD", 60.0)
    found = []
    thread = threading.Thread(target=lambda: found.append(company.take(1, 0)))
    thread.start()
    company.post(("share",))
    thread.join(30)
    assert found == [["share"]]


def test_hosts_take_what_is_left_before_they_learn_of_the_end(company):
    company.post(("share",))
    assert not company.end()  # As the hosts have not asked.
    assert company.take(1, 0) == ["share"]
    with pytest.raises(connections.RunOverError):
        company.take(1, 1)
    assert not company.end()
    with pytest.raises(connections.RunOverError):
        company.start("two", 22)
    assert company.end()
    with pytest.raises(connections.RunOverError):
        company.start("three", 23)
