"""Only what was appended is read, and what was taken back is noticed."""

from dreamerv3.viewing import tail as tail_module
from dreamerv3.viewing.tail import Tail


def test_reads_only_what_is_new(tmp_path):
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b"one\ntwo\n")
    assert tail.read() == [b"one", b"two"]
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b"three\n")
    assert tail.pending() == 6
    assert tail.read() == [b"three"]
    assert tail.pending() == 0


def test_a_torn_line_waits_for_its_end(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntw")
    tail = Tail(path)
    assert tail.read() == [b"one"]
    assert tail.read() == []
    with path.open("ab") as file:
        file.write(b"o\n")
    assert tail.read() == [b"two"]


def test_in_pieces_and_lines_longer_than_a_piece(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"a\nb\n" + b"x" * 50 + b"\nc\n")
    tail = Tail(path)
    found = []
    while lines := tail.read(limit=4):
        found += lines
    assert found == [b"a", b"b", b"x" * 50, b"c"]


def test_a_file_that_was_cut_and_written_again(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\ntwo\n")
    tail = Tail(path)
    tail.read()
    assert not tail.changed()
    path.write_bytes(b"one\n")
    assert tail.changed()
    path.write_bytes(b"one\n2nd\nthree\n")
    assert tail.changed()
    path.unlink()
    assert tail.changed()


def test_a_line_that_is_too_long_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(tail_module, "LONGEST", 10)
    path = tmp_path / "lines"
    path.write_bytes(b"one\n" + b"x" * 100)
    tail = Tail(path)
    found = []
    for _ in range(30):
        found += tail.read(limit=8)
    assert (found, tail.skipped, tail.pending()) == ([b"one"], 1, 0)
    with path.open("ab") as file:
        file.write(b"xxx\ntwo\n" + b"y" * 11 + b"\nthree\n")
    tail = Tail.resume(path, tail.state())
    assert not tail.changed()
    assert tail.read(limit=100) == [b"two", b"three"]
    assert tail.skipped == 2


def test_goes_on_where_another_was(tmp_path):
    path = tmp_path / "lines"
    path.write_bytes(b"one\n")
    first = Tail(path)
    first.read()
    with path.open("ab") as file:
        file.write(b"two\n")
    second = Tail.resume(path, first.state())
    assert not second.changed()
    assert second.read() == [b"two"]
