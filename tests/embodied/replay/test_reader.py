"""Batches share memory with no other batch that is still in use."""

import gc
import threading

import numpy as np
import pytest

from embodied.replay.layout import ALIGN, make_schema
from embodied.replay.reader import BufferPool

FIELDS = make_schema(
    {
        "image": np.zeros((8, 8, 3), np.uint8),
        "reward": np.float32(0),
        "is_last": np.False_,
        "stepid": np.zeros(3, np.int32),
    }
)
LEAD = (4, 5)


def address(array):
    return array.__array_interface__["data"][0]


def test_leaves_are_aligned_and_do_not_overlap():
    batch = BufferPool().batch(FIELDS, LEAD)
    for index, field in enumerate(FIELDS):
        leaf = batch[field.name]
        assert leaf.shape == (*LEAD, *field.shape)
        assert leaf.dtype == field.dtype
        assert address(leaf) % ALIGN == 0
        leaf[...] = index % 2
    for index, field in enumerate(FIELDS):
        assert (batch[field.name] == index % 2).all()


def test_a_dropped_batch_gives_its_memory_to_the_next():
    pool = BufferPool()
    batch = pool.batch(FIELDS, LEAD)
    first = address(batch["image"])
    del batch
    assert address(pool.batch(FIELDS, LEAD)["image"]) == first


@pytest.mark.parametrize(
    "hold",
    [
        lambda batch: batch["reward"],
        lambda batch: batch["image"][1:, 2, ..., 0].T,
        lambda batch: memoryview(batch["reward"]),
        lambda batch: np.frombuffer(batch["reward"], np.uint8)[3:],
        lambda batch: np.broadcast_to(batch["reward"], (2, *LEAD)),
    ],
    ids=["leaf", "view", "memoryview", "frombuffer", "broadcast"],
)
def test_any_view_keeps_the_memory(hold):
    pool = BufferPool()
    batch = pool.batch(FIELDS, LEAD)
    for leaf in batch.values():
        leaf[...] = 1
    first = address(batch["image"])
    held = hold(batch)
    before = np.array(held)
    del batch, leaf
    others = [pool.batch(FIELDS, LEAD) for _ in range(12)]
    for other in others:
        assert address(other["image"]) != first
        for value in other.values():
            value[...] = 0
    np.testing.assert_array_equal(np.asarray(held), before)
    del held
    assert address(pool.batch(FIELDS, LEAD)["image"]) == first


def test_a_view_that_is_part_of_a_cycle_is_freed_by_the_collector():
    pool = BufferPool()
    cycle = [pool.batch(FIELDS, LEAD)]
    first = address(cycle[0]["image"])
    cycle.append(cycle)
    del cycle
    gc.collect()
    assert address(pool.batch(FIELDS, LEAD)["image"]) == first


def test_batches_of_two_sizes_both_reuse_memory():
    pool = BufferPool()
    small, large = pool.batch(FIELDS, (1, 5)), pool.batch(FIELDS, LEAD)
    addresses = [address(small["image"]), address(large["image"])]
    del small, large
    for _ in range(3):
        assert address(pool.batch(FIELDS, (1, 5))["image"]) == addresses[0]
        assert address(pool.batch(FIELDS, LEAD)["image"]) == addresses[1]


def test_threads_never_get_the_same_memory():
    pool = BufferPool()
    torn = []

    def work(index):
        for count in range(300):
            batch = pool.batch(FIELDS, LEAD)
            batch["stepid"][...] = (index, count, 0)
            kept = batch["stepid"]
            del batch
            if not (kept == (index, count, 0)).all():
                torn.append((index, count))

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not torn
