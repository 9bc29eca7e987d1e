"""The journal: what was appended comes back, whatever a kill tore off."""

import numpy as np
import pytest

from embodied.core.disk import DiskFullError
from embodied.run.parallel.journal import Journal


@pytest.fixture
def path(tmp_path):
    return tmp_path / "deep" / "journal"


def reopen(path):
    """The entries that the next process finds."""
    journal = Journal(path)
    journal.close()
    return journal.entries


def test_round_trip(path):
    journal = Journal(path)
    assert (journal.entries, journal.number) == ([], 0)
    large = np.arange(3000, dtype=np.float32).reshape(30, 100)  # A frame of its own.
    small = np.array([True, False])
    payload = {"large": large, "small": small, "scalar": np.float32(0.5), "list": [1]}
    journal.append("add", payload)
    journal.append("tran", {"text": "äö", "large": large[:, ::2]})
    first, second = reopen(path)
    assert (first.number, first.method) == (1, "add")
    assert (second.number, second.method) == (2, "tran")
    assert set(first.payload) == set(payload)
    for key in ("large", "small", "scalar"):
        np.testing.assert_array_equal(first.payload[key], payload[key])
        assert first.payload[key].dtype == payload[key].dtype
    assert first.payload["list"] == [1]
    np.testing.assert_array_equal(second.payload["large"], large[:, ::2])
    assert second.payload["text"] == "äö"


def test_an_entry_is_on_disk_when_append_returns(path):
    journal = Journal(path)
    for number in range(1, 4):
        journal.append("add", {"x": number})
        assert [entry.number for entry in reopen(path)] == list(range(1, number + 1))


def test_a_torn_tail_is_cut_wherever_it_was_torn(path):
    journal = Journal(path)
    journal.append("add", {"x": 1})
    journal.append("tran", {"x": np.arange(300.0)})
    whole = path.stat().st_size
    journal.append("add", {"x": 3, "array": np.arange(400.0)})
    journal.close()
    content = path.read_bytes()
    for size in [*range(whole, whole + 60), *range(len(content) - 60, len(content))]:
        path.write_bytes(content[:size])
        journal = Journal(path)
        assert [entry.number for entry in journal.entries] == [1, 2]
        assert path.stat().st_size == whole
        journal.append("add", {"x": "later"})
        journal.append("add", {"x": "last"})
        journal.close()
        found = reopen(path)
        assert [entry.number for entry in found] == [1, 2, 3, 4]
        assert [entry.payload["x"] for entry in found[2:]] == ["later", "last"]


@pytest.mark.parametrize(
    "tail",
    [
        bytes(1),
        bytes(5000),
        b"\xc1" * 10,  # Never used by msgpack.
        b"\xff" * 300,
        b"\x94\x03\xa3add\xc4\x01\xc1\x90",  # A body that nothing can be made of.
        b"\x94\x01\xa3add\xc4\x01\x80\x90",  # The first entry after the second.
        b"\x94\xa1x\x03\xc4\x01\x80\x90",  # Number and method are mixed up.
        b"\x92\x03\xa3add",
    ],
    ids=range(8),
)
def test_what_a_power_cut_leaves_at_the_end_is_cut(path, tail):
    journal = Journal(path)
    journal.append("add", {"x": 1})
    journal.append("tran", {"x": np.arange(300.0)})
    journal.close()
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    journal = Journal(path)
    assert [entry.number for entry in journal.entries] == [1, 2]
    assert path.read_bytes() == whole
    journal.append("add", {"x": 3})
    assert [entry.number for entry in reopen(path)] == [1, 2, 3]


def test_numbers_go_on_after_clear(path):
    journal = Journal(path)
    for _ in range(3):
        journal.append("add", {})
    journal.clear()
    assert reopen(path) == []
    journal.append("add", {"x": 4})
    journal.append("add", {"x": 5})
    assert [(e.number, e.payload["x"]) for e in reopen(path)] == [(4, 4), (5, 5)]
    again = Journal(path)
    again.append("add", {"x": 6})
    assert again.number == 6
    assert [entry.number for entry in reopen(path)] == [4, 5, 6]


class FullDisk:
    """A file of which only the first bytes of a write fit."""

    def __init__(self, file):
        self._file = file

    def write(self, data):
        return self._file.write(data[: len(data) // 2])

    def __getattr__(self, name):
        return getattr(self._file, name)


@pytest.mark.parametrize("cleared", [False, True])
def test_a_full_disk_leaves_no_half_entry(path, cleared):
    journal = Journal(path)
    journal.append("add", {"x": "before"})
    if cleared:
        journal.clear()
    before = path.read_bytes()
    file, journal._file = journal._file, FullDisk(journal._file)
    with pytest.raises(OSError, match="no room for metrics"):
        journal.append("add", {"x": "too much"})
    assert path.read_bytes() == before
    journal._file = file
    journal.append("add", {"x": "after"})
    expected = ["after"] if cleared else ["before", "after"]
    assert [entry.payload["x"] for entry in reopen(path)] == expected


def test_an_entry_that_is_undone_is_not_there(path):
    journal = Journal(path)
    journal.append("add", {"x": 1})
    journal.append("add", {"x": 2})
    journal.undo()
    journal.append("add", {"x": 3})
    assert [(e.number, e.payload["x"]) for e in reopen(path)] == [(1, 1), (2, 3)]


@pytest.mark.process
def test_a_full_disk_leaves_whole_entries(small_disk):
    disk = small_disk(1)
    journal = Journal(disk / "journal")
    journal.append("add", {"x": 1})
    with pytest.raises(DiskFullError, match=f"the file system {disk} has"):
        journal.append("add", {"x": np.zeros(1 << 20, np.uint8)})
    journal.append("add", {"x": 2})
    assert [(e.number, e.payload["x"]) for e in reopen(journal._path)] == [
        (1, 1),
        (2, 2),
    ]
