"""Who belongs to the learner of several hosts, and which orders they get."""

import threading

import numpy as np
import pytest

from embodied import rpc
from embodied.core import base
from embodied.run.parallel import ensemble, wire
from embodied.run.parallel.ensemble import Ensemble, LostError

FACTS = {"coordinator": "10.0.0.5:1234"}


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ensemble, "HOLD", 0.01)
    monkeypatch.setattr(ensemble, "FAREWELL", 0.01)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def company(clock):
    """Two followers that know what they have to."""
    made = Ensemble(2, clock)
    made.join("one", "a"), made.join("two", "b")
    made.begin(FACTS)
    assert made.join("one", "a") == {**FACTS, "host": 1, "hosts": 3}
    assert made.join("two", "b") == {**FACTS, "host": 2, "hosts": 3}
    return made


def test_a_server_of_another_kind_is_named():
    server = rpc.Server("ipc://{auto}", "actor")
    server.bind("join", lambda member, count, spaces: None)  # As environments join.
    server.start(block=False)
    client = rpc.Client(server.address)
    with pytest.raises(base.SetupError, match=r"give run\.learner_addr"):
        ensemble.join(client, "one")
    client.close()
    server.close()


def test_hosts_hear_nothing_until_all_are_there(clock):
    company = Ensemble(2, clock)
    assert company.join("one", "a") == {}
    assert company.missing() == 1
    for _ in range(10):  # Nobody is lost who asks now and then.
        clock.now += ensemble.SILENCE / 2
        assert company.join("one", "a") == {}
        assert company.missing() == 1
    assert company.join("two", "b") == {}
    assert company.missing() == 0
    assert company.join("three", "c") == {}
    company.begin(FACTS)
    assert company.join("three", "c") == {}
    company.check()  # One that is too much harms nobody.


def test_who_goes_before_all_are_there_frees_the_place(clock):
    company = Ensemble(2, clock)
    company.join("one", "a")
    clock.now += ensemble.SILENCE + 1
    company.join("two", "b")
    assert company.missing() == 1
    company.join("two", "again")  # Its process may be restarted meanwhile.
    company.join("three", "c")
    assert company.missing() == 0
    company.begin(FACTS)
    assert company.join("two", "again")["host"] == 1
    assert company.join("three", "c")["host"] == 2


def test_a_host_that_was_restarted_is_lost(company):
    company.check()
    assert company.join("one", "other") == {}
    with pytest.raises(LostError, match="one was restarted"):
        company.check()


def test_a_silent_host_is_lost(company, clock):
    clock.now += ensemble.SILENCE / 2
    company.take(1, 0)
    company.check()
    clock.now += ensemble.SILENCE / 2 + 1
    with pytest.raises(LostError, match="nothing was heard of two"):
        company.check()


def test_each_host_gets_all_orders_with_its_own_rows(company):
    batch = np.arange(6)
    company.post(("carry", 0, 6))
    company.post(("batch", 1, 6), lambda host: {"x": batch[2 * host : 2 * host + 2]})
    assert company.take(1, 0) == ["carry", 0, 6]
    assert company.take(1, 0) == ["carry", 0, 6]  # Asked again, as its answer was lost.
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


def test_hosts_take_what_is_left_before_they_hear_that_the_run_is_over(company):
    company.post(("share",))
    assert not company.end()  # As the hosts have not asked.
    assert company.take(1, 0) == ["share"]
    with pytest.raises(wire.RunOverError):
        company.take(1, 1)
    assert not company.end()
    with pytest.raises(wire.RunOverError):
        company.join("two", "b")
    assert company.end()
    with pytest.raises(wire.RunOverError):
        company.join("three", "c")
