"""Memory of dropped chunks that is used again, and files unmapped in the background."""

import gc

import numpy as np
import pytest

from embodied.replay import Replay, mapping
from embodied.testing.replay_model import all_items, check_sequences, make_step

NBYTES = 16 * mapping.PAGE


def take(pool, nbytes=NBYTES):
    return np.asarray(mapping.Memory(nbytes, pool))


def address(array):
    return array.__array_interface__["data"][0]


def test_memory_is_used_again_once_nobody_reads_it():
    pool = mapping.MemoryPool()
    first = take(pool)
    view, place = first[10:20], address(first)
    first[:] = 7
    del first
    second = take(pool)
    assert address(second) != place, "a view still reads it"
    assert (view == 7).all()
    del view
    third = take(pool)
    assert address(third) == place
    assert (third == 7).all()
    assert not second.any()


def test_memory_of_another_size_is_not_used():
    pool = mapping.MemoryPool()
    take(pool)
    assert len(take(pool, 2 * NBYTES)) == 2 * NBYTES


def test_pool_keeps_no_more_than_asked_for():
    pool = mapping.MemoryPool(keep=2)
    held = [take(pool) for _ in range(5)]
    places = [address(x) for x in held]
    del held
    assert len(pool._free) == 2
    again = [take(pool) for _ in range(2)]
    assert {address(x) for x in again} < set(places)


def test_replay_reuses_the_memory_of_evicted_chunks_and_shows_nothing_of_it():
    replay = Replay(length=3, capacity=8, chunksize=4)
    places = set()
    for index in range(400):
        replay.add(make_step(1, index), 1)
        chunks = replay._index.chunks.values()
        places |= {address(chunk.buffer) for chunk in chunks}
        for chunk in chunks:
            assert not chunk.order[chunk.fill :].any()
            assert np.isnan(chunk.priority).all()
    assert len(places) < 10, "a hundred chunks in the memory of a few"
    assert [item[0] for item in all_items(replay)] == list(range(1390, 1398))


def test_batches_and_readers_keep_what_was_there():
    replay = Replay(length=3, capacity=8, chunksize=4)
    for index in range(8):
        replay.add(make_step(1, index), 1)
    chunk = next(iter(replay._index.chunks.values()))
    codes = chunk.columns["code"].copy()
    batch = replay.sample(4)
    for index in range(8, 200):
        replay.add(make_step(1, index), 1)
    assert chunk.number not in replay._index.chunks
    assert (chunk.columns["code"] == codes).all()
    check_sequences(batch)


def mapped(path):
    with open("/proc/self/maps") as file:
        return sum(str(path) in line for line in file)


@pytest.mark.skipif(not hasattr(mapping.os, "posix_fallocate"), reason="needs Linux")
def test_deleted_files_are_unmapped_but_not_under_a_reader(tmp_path):
    replay = Replay(length=3, capacity=8, directory=tmp_path, chunksize=4)
    for index in range(8):
        replay.add(make_step(1, index), 1)
    chunk = next(iter(replay._index.chunks.values()))
    codes = chunk.columns["code"][:]
    expect = codes.tolist()
    for index in range(8, 200):
        replay.add(make_step(1, index), 1)
    del chunk
    replay.close()
    alive = len(replay._index.chunks)
    assert mapped(tmp_path) == alive + 1
    assert codes.tolist() == expect
    del codes
    assert mapped(tmp_path) == alive
    del replay
    gc.collect()  # Chunks know their neighbours.
    assert mapped(tmp_path) == 0
