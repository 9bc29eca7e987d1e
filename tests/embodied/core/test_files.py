"""Atomic writes: whole or not at all, durable where asked, no leftovers."""

import os
import stat

import pytest

from embodied.core import files


@pytest.fixture
def synced(monkeypatch):
    """The kinds of what was synced, in order, with the names there at that time."""
    found = []
    fsync = os.fsync

    def record(descriptor):
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        names = sorted(os.listdir(path)) if os.path.isdir(path) else os.stat(path)
        found.append(names if isinstance(names, list) else names.st_size)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    return found


def test_a_file_is_replaced_and_directories_are_made(tmp_path):
    path = tmp_path / "new" / "file.txt"
    files.write_text(path, "old")
    files.write_text(path, "ä\n")
    assert path.read_bytes() == "ä\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_keeps_the_file(tmp_path):
    path = tmp_path / "file"
    files.write_bytes(path, b"old")
    with pytest.raises(TypeError), files.replace(path) as file:
        file.writelines([b"half of the n", None])
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_readers_see_the_old_file_until_the_block_ends(tmp_path):
    path = tmp_path / "file"
    files.write_bytes(path, b"old")
    with files.replace(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"


def test_two_writers_of_a_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "file"
    with files.replace(path) as first:
        first.write(b"first")
        with files.replace(path) as second:
            second.write(b"second")
        assert path.read_bytes() == b"second"
    assert path.read_bytes() == b"first"


def test_durable_means_content_before_name(tmp_path, synced):
    files.write_text(tmp_path / "status", "text")
    assert synced == []
    files.write_text(tmp_path / "number", "12", durable=True)
    assert synced == [2, ["number", "status"]]


def test_create_keeps_what_is_there(tmp_path, synced):
    path = tmp_path / "key"
    files.create(path, b"first", mode=0o600)
    assert synced == [5, [next(n for n in synced[1] if n.startswith(".")), "key"]]
    files.create(path, b"second")
    assert path.read_bytes() == b"first"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_permissions_are_those_of_the_umask(tmp_path):
    previous = os.umask(0o027)
    try:
        files.write_text(tmp_path / "file", "")
    finally:
        os.umask(previous)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_sync_tree_reaches_every_file(tmp_path, synced):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "c").write_text("123")
    files.sync_tree(tmp_path)
    assert synced == [["b"], ["c"], 3, ["a"]]


def test_only_regular_files_of_a_size_are_read(tmp_path):
    path = tmp_path / "file"
    path.write_text("äb")
    assert files.read_text(path, limit=3) == "äb"
    with pytest.raises(OSError, match="larger than 2 bytes"):
        files.read_text(path, limit=2)
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="not a regular file"):
            files.read_text(other, limit=10)
