"""Lives: numbers grow, whatever dies and whatever the clock does."""

from embodied.run.parallel import lives as lives_module
from embodied.run.parallel import wire
from embodied.run.parallel.lives import Lives


def test_numbers_grow_across_restarts(tmp_path):
    path = tmp_path / "deep" / "lives"
    found = []
    for _ in range(3):  # None of them is closed, as if killed.
        lives = Lives(path)
        found += [lives.next(), lives.next()]
    assert found == sorted(set(found))


def test_a_clock_that_steps_back_changes_nothing(tmp_path, monkeypatch):
    first = Lives(tmp_path / "lives").next()
    monkeypatch.setattr(lives_module.time, "time_ns", lambda: 0)
    assert Lives(tmp_path / "lives").next() == first + 1


def test_without_the_file_numbers_are_above_those_of_before(tmp_path, monkeypatch):
    """Somebody removed the checkpoints but kept the steps."""
    first = Lives(tmp_path / "lives").next()
    (tmp_path / "lives").unlink()
    later = lives_module.time.time_ns() + 60 * 10**9
    monkeypatch.setattr(lives_module.time, "time_ns", lambda: later)
    assert Lives(tmp_path / "lives").next() > first


def test_a_number_leaves_room_for_steps(tmp_path):
    life = Lives(tmp_path / "lives").next()
    assert ((life + 10**6) << wire.LIFE_BITS) < wire.ROUTING[wire.SEQ].high
