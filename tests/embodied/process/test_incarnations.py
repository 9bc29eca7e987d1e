"""Incarnations: numbers grow, whatever dies and whatever the clock does."""

import pytest

from embodied.process import incarnations
from embodied.process.context import Context
from embodied.process.incarnations import BITS, Incarnations
from embodied.run.parallel import routing


@pytest.fixture
def set_clock(monkeypatch):
    def set_clock(value):
        monkeypatch.setattr(incarnations.time, "time_ns", lambda: value)

    return set_clock


def test_numbers_grow_across_restarts(tmp_path):
    path = tmp_path / "deep" / "incarnation"
    found = []
    for _ in range(3):  # None of them is closed, as if killed.
        numbers = Incarnations(path)
        found += [numbers.next(), numbers.next()]
    assert found == sorted(set(found))


def test_a_clock_that_steps_back_changes_nothing(tmp_path, set_clock):
    first = Incarnations(tmp_path / "file").next()
    set_clock(0)
    assert Incarnations(tmp_path / "file").next() == first + 1


def test_without_the_file_numbers_are_above_those_of_before(tmp_path, set_clock):
    """The file was removed but the steps were kept."""
    first = Incarnations(tmp_path / "file").next()
    (tmp_path / "file").unlink()
    set_clock(incarnations.time.time_ns() + 60 * 10**9)
    assert Incarnations(tmp_path / "file").next() > first


def test_the_number_of_an_older_run_is_taken_over(tmp_path, set_clock):
    set_clock(0)
    (tmp_path / "lives").write_text("41\n")
    numbers = Incarnations(tmp_path / "file", tmp_path / "lives")
    assert [numbers.next(), numbers.next()] == [42, 43]
    assert Incarnations(tmp_path / "file", tmp_path / "lives").next() == 44


def test_a_number_is_on_disk_before_it_is_issued(tmp_path):
    issued = Incarnations(tmp_path / "file").next()
    assert int((tmp_path / "file").read_text()) == issued


def test_a_number_leaves_room_for_steps(tmp_path):
    number = Incarnations(tmp_path / "file").next()
    assert ((number + 10**6) << BITS) < routing.SPACES[routing.SEQ].high


def test_a_context_without_a_launcher_takes_its_numbers_from_the_clock(set_clock):
    clock = 7 * 10**17
    set_clock(clock)
    assert Context().first_number == clock
    assert Context().incarnation == clock >> BITS
    set_clock(clock + 10**9)  # One process after the other, in the same second.
    assert Context().first_number > clock + 10**6  # The steps of the first one.


def test_a_launcher_is_never_behind_such_a_context(tmp_path, set_clock):
    path = tmp_path / "file"
    early = Incarnations(path).next()
    set_clock((early + 1000) << BITS)
    standalone = Context().first_number
    set_clock((early + 1002) << BITS)
    assert Incarnations(path).next() << BITS > standalone


def test_an_issued_number_is_the_high_part():
    ctx = Context(incarnation=9)
    assert (ctx.incarnation, ctx.first_number) == (9, 9 << BITS)
