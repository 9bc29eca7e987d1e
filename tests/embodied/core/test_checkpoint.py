"""Checkpoints: atomic, complete, and never unpickled."""

import pickle

import elements
import numpy as np
import pytest

from embodied.core import checkpoint as checkpoint_module
from embodied.core import checksums, extras, treefile
from embodied.core.checkpoint import (
    TEMPORARY,
    Checkpoint,
    CheckpointError,
    Codec,
    complete,
    read_item,
)
from embodied.core.disk import DiskFullError


class Item:
    def __init__(self, value):
        self.value = value

    def save(self):
        return {"value": self.value}

    def load(self, data):
        self.value = data["value"]


TREE = {
    "array": np.arange(6, dtype=np.int16).reshape(2, 3),
    "list": [1, 2.5, None, True, "text"],
    "tuple": (np.float32(0.5), {"deep": np.zeros((0, 3), bool)}),
    "big": 2**100,
    "empty": {},
}


def test_tree_round_trip(tmp_path):
    treefile.write(tmp_path, TREE)
    result = treefile.read(tmp_path)
    np.testing.assert_array_equal(result["array"], TREE["array"])
    assert result["array"].dtype == np.int16
    assert result["list"] == TREE["list"]
    assert result["tuple"][0] == 0.5
    assert result["tuple"][1]["deep"].shape == (0, 3)
    assert result["big"] == 2**100
    assert result["empty"] == {}


def test_tree_names_the_path_of_what_it_cannot_store(tmp_path):
    with pytest.raises(TypeError, match="object at '/a/1'"):
        treefile.write(tmp_path, {"a": [1, object()]})
    with pytest.raises(TypeError, match="keys must be strings, got 3"):
        treefile.write(tmp_path, {3: 1})
    with pytest.raises(TypeError, match="the key '__array__' at '/a'"):
        treefile.write(tmp_path, {"a": {"__array__": "a0"}})


def test_tree_never_unpickles(tmp_path):
    treefile.write(tmp_path, {"x": np.zeros(3)})
    evil = np.array([{"a": 1}], object)
    with (tmp_path / treefile.ARRAYS).open("wb") as file:
        np.savez(file, allow_pickle=True, a0=evil)
    with pytest.raises(ValueError, match="allow_pickle"):
        treefile.read(tmp_path)
    assert pickle.loads(pickle.dumps(1)) == 1  # The module is there, just not used.


def test_save_and_load(tmp_path):
    Checkpoint(tmp_path, {"a": Item(1), "b": Item(np.ones(2))}).save(wait=True)
    one, two = Item(0), Item(np.zeros(2))
    Checkpoint(tmp_path, {"a": one, "b": two}).load()
    assert one.value == 1
    np.testing.assert_array_equal(two.value, np.ones(2))


def test_save_takes_the_state_at_the_call(tmp_path):
    item = Item(1)
    checkpoint = Checkpoint(tmp_path, {"a": item})
    checkpoint.save()
    item.value = 2
    checkpoint.close()
    assert read_item(tmp_path, "a") == {"value": 1}


def test_newest_complete_is_loaded_and_old_ones_are_removed(tmp_path):
    item = Item(0)
    checkpoint = Checkpoint(tmp_path, {"a": item}, keep=2)
    for item.value in range(1, 6):
        checkpoint.save()
    checkpoint.close()
    assert [path.name for path in complete(tmp_path)] == ["00000004", "00000005"]
    checkpoint.load()
    assert item.value == 5


def test_a_torn_save_is_ignored_and_cleaned_up(tmp_path):
    item = Item(1)
    checkpoint = Checkpoint(tmp_path, {"a": item})
    checkpoint.save(wait=True)
    torn = tmp_path / f"00000002{TEMPORARY}"
    (torn / "a").mkdir(parents=True)
    item.value = 2
    checkpoint.load()
    assert item.value == 1
    checkpoint.save(wait=True)
    assert not torn.exists()
    assert read_item(tmp_path, "a") == {"value": 1}


def test_a_failed_write_is_raised_and_keeps_the_last_one(tmp_path):
    item = Item(1)
    checkpoint = Checkpoint(tmp_path, {"a": item})
    checkpoint.save(wait=True)
    item.value = object()
    checkpoint.save()
    with pytest.raises(TypeError, match="cannot store object"):
        checkpoint.wait()
    checkpoint.load()
    assert item.value == 1


@pytest.mark.process
def test_a_full_disk_is_reported_and_the_next_checkpoint_is_tried(small_disk, capfd):
    disk = small_disk(2)
    item = Item(np.zeros(1 << 18, np.uint8))
    checkpoint = Checkpoint(disk / "ckpt", {"a": item})
    checkpoint.save(wait=True)
    item.value = np.zeros(1 << 22, np.uint8)
    for _ in range(2):
        checkpoint.save()
    with pytest.raises(DiskFullError, match=f"the file system {disk} has"):
        checkpoint.save(wait=True)
    assert capfd.readouterr().out.count("waits: no room for a checkpoint") == 1
    assert [path.name for path in (disk / "ckpt").iterdir()] == ["00000001"]
    item.value = np.ones(1, np.uint8)
    checkpoint.save()
    checkpoint.close()
    assert len(complete(disk / "ckpt")) == 2


def test_load_or_save(tmp_path):
    assert Checkpoint(tmp_path, {"a": Item(1)}).load_or_save() is False
    item = Item(2)
    assert Checkpoint(tmp_path, {"a": item}).load_or_save() is True
    assert item.value == 1


def test_missing_items_and_checkpoints_are_named(tmp_path):
    with pytest.raises(CheckpointError, match="no complete checkpoint in"):
        Checkpoint(tmp_path, {"a": Item(1)}).load()
    Checkpoint(tmp_path, {"a": Item(1)}).save(wait=True)
    with pytest.raises(CheckpointError, match=r"has no \['b'\], only \['a'\]"):
        Checkpoint(tmp_path, {"b": Item(1)}).load()
    with pytest.raises(CheckpointError, match="no complete checkpoint of 'b'"):
        read_item(tmp_path, "b")


def test_a_newer_format_is_rejected_by_release(tmp_path, monkeypatch):
    """Falling back to an older checkpoint would silently lose what came after it."""
    checkpoint = Checkpoint(tmp_path, {"a": Item(1)})
    checkpoint.save(wait=True)
    monkeypatch.setattr(checkpoint_module, "FORMAT", 99)
    monkeypatch.setattr(extras, "version", lambda: "9.9.0")
    checkpoint.save(wait=True)
    monkeypatch.undo()
    text = r"has format 99, this version reads up to 2: .* newer release \(9\.9\.0\)"
    for read in (checkpoint.load, lambda: read_item(tmp_path, "a")):
        with pytest.raises(CheckpointError, match=text):
            read()


def test_a_checkpoint_without_checksums_is_read_if_its_format_has_none(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"a": Item(1)})
    checkpoint.save(wait=True)
    (newest,) = complete(tmp_path)
    (newest / checksums.FILE).unlink()
    with pytest.raises(CheckpointError, match=r"checksums\.txt is missing"):
        checkpoint.load()
    meta = newest / "meta.json"
    meta.write_text(meta.read_text().replace('"format": 2', '"format": 1'))
    checkpoint.load()


def test_an_item_may_bring_its_own_codec(tmp_path):
    class Text(Item):
        codec = Codec(
            lambda path, tree: (path / "x.txt").write_text(tree["value"]) and None,
            lambda path: {"value": (path / "x.txt").read_text()},
        )

    Checkpoint(tmp_path, {"t": Text("hello")}).save(wait=True)
    other = Text("")
    Checkpoint(tmp_path, {"t": other}).load()
    assert other.value == "hello"


def test_a_disk_that_fails_is_no_damaged_checkpoint(tmp_path):
    """Another try may help, and nobody should be told to move anything."""

    def fail(path):
        raise OSError(5, "Input/output error")

    checkpoint = Checkpoint(tmp_path, {"item": Item(TREE)})
    checkpoint.save(wait=True)
    checkpoint.close()
    with pytest.raises(OSError, match="Input/output error"):
        read_item(tmp_path, "item", Codec(treefile.write, fail))


def test_without_another_checkpoint_a_damaged_one_is_named_with_the_remedy(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"item": Item(TREE)})
    checkpoint.save(wait=True)
    checkpoint.close()
    (newest,) = complete(tmp_path)
    for path in (newest / "item").iterdir():
        path.write_bytes(b"damaged")
    for read in (checkpoint.load, lambda: read_item(tmp_path, "item")):
        with pytest.raises(CheckpointError) as caught:
            read()
        message = str(caught.value)
        assert f"{newest}/item/arrays.npz is damaged (CRC-32 and bytes" in message
        assert f"no other checkpoint to use in {tmp_path}: restore it" in message
        assert "\n" not in message
    assert newest.exists()


FILES = ("meta.json", "item/tree.json", "item/arrays.npz")


def rotten(path, how):
    """Damage a file."""
    content = path.read_bytes()
    match how:
        case "empty":
            path.write_bytes(b"")
        case "truncated":
            path.write_bytes(content[: len(content) // 2])
        case "garbage":
            path.write_bytes(np.random.default_rng(0).bytes(len(content)))
        case "missing":
            path.unlink()


@pytest.mark.parametrize("how", ["empty", "truncated", "garbage", "missing"])
@pytest.mark.parametrize(
    ("name", "summed"),
    [(name, summed) for name in FILES for summed in (True, False)]
    + [(checksums.FILE, True)],
)
def test_the_checkpoint_before_a_damaged_one_is_used(
    tmp_path, capsys, name, how, summed
):
    item = Item({**TREE, "save": 1})
    checkpoint = Checkpoint(tmp_path, {"item": item})
    checkpoint.save(wait=True)
    item.value = {**TREE, "save": 2}
    checkpoint.save(wait=True)
    before, newest = complete(tmp_path)
    if not summed:
        for each in (before, newest):
            (each / checksums.FILE).unlink()
            meta = each / "meta.json"
            meta.write_text(meta.read_text().replace('"format": 2', '"format": 1'))
    rotten(newest / name, how)
    assert read_item(tmp_path, "item")["value"]["save"] == 1
    checkpoint.load()
    assert item.value["save"] == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2  # One a read.
    assert all(str(newest) in line and str(before) in line for line in lines)
    item.value["save"] = 3
    checkpoint.save(wait=True)
    # The damaged one is not among those kept, and was not deleted either.
    assert complete(tmp_path) == [before, newest]
    assert (tmp_path / "damaged-00000002").is_dir()
    checkpoint.load()
    assert item.value["save"] == 3
    assert not capsys.readouterr().out


def test_files_beside_the_checkpoints_are_left_alone(tmp_path):
    """Another thread may be writing one of them."""
    (tmp_path / ".lives.57f6c90c.tmp").write_text("1")
    checkpoint = Checkpoint(tmp_path, {"item": elements.Counter()})
    checkpoint.save(wait=True)
    checkpoint.close()
    assert (tmp_path / ".lives.57f6c90c.tmp").exists()


def test_items_that_earlier_releases_lacked_may_be_missing(tmp_path):
    before = Checkpoint(tmp_path, {"step": elements.Counter(7)})
    before.save(wait=True)
    before.close()
    items = {"step": elements.Counter(), "new": elements.Counter(3)}
    after = Checkpoint(tmp_path, items, added=("new",))
    after.load()
    assert [int(item) for item in items.values()] == [7, 3]
    after.close()
