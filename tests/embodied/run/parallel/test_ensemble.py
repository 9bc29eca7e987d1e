"""Who belongs to the learner of several hosts, and which orders they get."""

import threading

import numpy as np
import pytest

from embodied.run.parallel import ensemble, wire
from embodied.run.parallel.ensemble import Ensemble, LostError

FACTS = {"coordinator": "10.0.0.5:1234"}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(ensemble, "HOLD", 0.01)
    monkeypatch.setattr(ensemble, "FAREWELL", 0.01)


def test_hosts_get_numbers_until_all_places_are_taken():
    company = Ensemble(2, FACTS)
    assert company.missing() == 2
    assert company.join("one") == {**FACTS, "host": 1, "hosts": 3}
    assert company.join("two") == {**FACTS, "host": 2, "hosts": 3}
    assert company.missing() == 0
    assert company.join("three") == {}
    company.check()  # One that is too much harms nobody.


def test_a_host_that_was_restarted_is_lost():
    company = Ensemble(2, FACTS)
    company.join("one")
    assert company.join("one") == {}
    with pytest.raises(LostError, match="one was restarted"):
        company.check()
    assert company.join("two") == {}  # It would wait for a company that has to end.


def test_a_silent_host_is_lost(monkeypatch):
    company = Ensemble(1, FACTS)
    company.join("one")
    company.check()
    monkeypatch.setattr(ensemble, "SILENCE", -1.0)
    with pytest.raises(LostError, match="nothing was heard of one"):
        company.check()


def test_each_host_gets_all_orders_with_its_own_rows():
    company = Ensemble(2, FACTS)
    company.join("one"), company.join("two")
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


def test_an_order_wakes_who_waits_for_it(monkeypatch):
    monkeypatch.setattr(ensemble, "HOLD", 60.0)
    company = Ensemble(1, FACTS)
    company.join("one")
    found = []
    thread = threading.Thread(target=lambda: found.append(company.take(1, 0)))
    thread.start()
    company.post(("share",))
    thread.join(30)
    assert found == [["share"]]


def test_hosts_take_what_is_left_before_they_hear_that_the_run_is_over():
    company = Ensemble(1, FACTS)
    company.join("one")
    company.post(("share",))
    company.end()  # Waits for a moment, as the host has not asked.
    assert company.take(1, 0) == ["share"]
    with pytest.raises(wire.RunOverError):
        company.take(1, 1)
    with pytest.raises(wire.RunOverError):
        company.join("two")
