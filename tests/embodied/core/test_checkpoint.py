"""Checkpoints: atomic, complete, and never unpickled."""

import pickle

import elements
import numpy as np
import pytest

from embodied.core import treefile
from embodied.core.checkpoint import (
    TEMPORARY,
    Checkpoint,
    CheckpointError,
    Codec,
    complete,
    read_item,
)


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


def test_an_unknown_format_is_refused(tmp_path):
    Checkpoint(tmp_path, {"a": Item(1)}).save(wait=True)
    meta = tmp_path / "00000001" / "meta.json"
    meta.write_text(meta.read_text().replace('"format": 1', '"format": 99'))
    with pytest.raises(CheckpointError, match="format 99"):
        Checkpoint(tmp_path, {"a": Item(1)}).load()


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


def test_a_damaged_checkpoint_says_what_to_move(tmp_path):
    checkpoint = Checkpoint(tmp_path, {"item": Item(TREE)})
    checkpoint.save(wait=True)
    checkpoint.close()
    (newest,) = complete(tmp_path)
    for path in (newest / "item").iterdir():
        path.write_bytes(b"damaged")
    for read in (checkpoint.load, lambda: read_item(tmp_path, "item")):
        with pytest.raises(CheckpointError, match=f"cannot be read .* move {newest}"):
            read()


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
