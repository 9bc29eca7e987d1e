"""What the replay stores and serves, in memory and on disk."""

import numpy as np
import pytest

from embodied.replay import Replay, ReplayClosedError, StepError
from embodied.replay.chunk import Chunk
from embodied.replay.index import Index
from embodied.testing.replay_model import all_items, check_sequences, make_step


@pytest.fixture(params=["memory", "disk"])
def directory(request, tmp_path):
    return tmp_path / "replay" if request.param == "disk" else None


def fill(replay, worker, steps, start=0):
    for index in range(start, start + steps):
        replay.add(make_step(worker, index), worker)


def test_windows_cross_chunks_and_episodes_but_not_streams(directory):
    replay = Replay(length=6, capacity=100, directory=directory, chunksize=4)
    for index in range(10):
        steps = [make_step(worker, index) for worker in (1, 2)]
        replay.add_batch({k: np.stack([x[k] for x in steps]) for k in steps[0]}, [1, 2])
    assert len(replay) == 10
    expect = []
    for start in range(5):
        for worker in (1, 2):
            expect.append(tuple(1000 * worker + start + i for i in range(6)))
    assert all_items(replay) == expect
    replay.close()


def test_a_batch_may_hold_many_steps_of_a_worker(directory):
    replay = Replay(length=6, capacity=100, directory=directory, chunksize=4)
    for start in (0, 5, 10):  # The last one comes again in part.
        steps = [make_step(1, index) for index in range(start, start + 7)]
        batch = {k: np.stack([x[k] for x in steps]) for k in steps[0]}
        seqs = range(start, start + 7)
        assert replay.add_batch(batch, [1] * 7, seqs) == (5 if start else 7)
    expect = [tuple(1000 + start + i for i in range(6)) for start in range(12)]
    assert all_items(replay) == expect
    replay.close()


def test_fifo_eviction_deletes_files(tmp_path):
    replay = Replay(length=3, capacity=5, directory=tmp_path, chunksize=4)
    fill(replay, 1, 40)
    assert [x[0] for x in all_items(replay)] == [1033, 1034, 1035, 1036, 1037]
    assert len(list(tmp_path.glob("*.chunk"))) == 2
    assert replay.stats()["evictions"] == 33
    replay.close()


def test_short_and_silent_streams_are_dropped(directory):
    replay = Replay(length=5, capacity=10, directory=directory, chunksize=4)
    for worker in range(10, 20):
        fill(replay, worker, 3)
    fill(replay, 1, 40)
    assert replay.stats()["chunks"] <= 5
    assert len(all_items(replay)) == 10
    fill(replay, 10, 7, start=3)
    assert all_items(replay)[-1] == (10005, 10006, 10007, 10008, 10009)
    replay.close()


def test_a_new_file_costs_the_same_with_many_streams(monkeypatch):
    replay, visits = Replay(length=2, capacity=10**5, chunksize=4), []
    drop = Index._drop_stale

    def count(index):
        visits.append(len(index.chunks) + len(index.writers))
        return drop(index)

    monkeypatch.setattr(Index, "_drop_stale", count)
    fill(replay, 0, 1)
    costs = []
    for streams in (64, 640):
        before = len(visits)
        for worker in range(1, streams + 1):  # Each begins a file of its own.
            fill(replay, worker, 4)
            replay.add(make_step(worker, 4), worker)
        costs.append(sum(visits[before:]) / (2 * streams))
    assert costs[1] < 2 * costs[0]
    replay.close()


def test_log_keys_and_stepid_are_not_stored(directory):
    replay = Replay(length=2, capacity=10, directory=directory)
    for index in range(4):
        extra = {"log/x": np.ones(3), "stepid": np.zeros(3, np.int32)}
        replay.add({**make_step(0, index), **extra})
    batch = replay.sample(4)
    assert set(batch) == {*make_step(0, 0), "stepid"}
    for leaf in batch.values():
        assert leaf.flags.c_contiguous
        assert leaf.shape[:2] == (4, 2)
    replay.close()


def test_update_writes_into_the_stored_steps(directory):
    replay = Replay(length=6, capacity=100, directory=directory, chunksize=4)
    fill(replay, 1, 20)
    batch = replay.sample(8)
    stepid, code = batch["stepid"][:, 1:], batch["code"][:, 1:]
    latent = np.repeat(code[..., None] + 0.5, 4, -1).astype(np.float32)
    replay.update({"stepid": stepid, "latent": latent})
    again = replay.sample(200)
    changed = np.isin(again["code"], code)
    expect = again["code"] + np.where(changed, 0.5, 0.0)
    assert (again["latent"] == expect[..., None]).all()
    check_sequences(again)
    replay.close()


def test_update_skips_evicted_steps(directory):
    replay = Replay(length=3, capacity=4, directory=directory, chunksize=4)
    fill(replay, 1, 8)
    old = replay.sample(4)
    fill(replay, 1, 40, start=8)
    replay.update({"stepid": old["stepid"], "latent": old["latent"] - 1e6})
    assert (replay.sample(50)["latent"] > 0).all()
    stats = replay.stats()
    assert stats["update_misses"] == 12
    assert stats["updates"] == 0
    replay.close()


def test_update_of_unknown_key_or_shape_is_an_error(directory):
    replay = Replay(length=2, capacity=10, directory=directory)
    fill(replay, 1, 4)
    batch = replay.sample(2)
    with pytest.raises(StepError, match="cannot update other"):
        replay.update({"stepid": batch["stepid"], "other": np.zeros((2, 2))})
    with pytest.raises(StepError, match="latent"):
        replay.update({"stepid": batch["stepid"], "latent": np.zeros((2, 2, 3))})
    replay.close()


def test_steps_that_do_not_match_are_refused_whole(directory):
    replay = Replay(length=2, capacity=10, directory=directory)
    fill(replay, 1, 4)
    with pytest.raises(StepError, match=r"latent: got nothing, stored float32\[4\]"):
        replay.add({k: v for k, v in make_step(1, 4).items() if k != "latent"}, 1)
    with pytest.raises(StepError, match=r"image: got uint8\[9\]"):
        replay.add(make_step(1, 4, size=9), 1)
    with pytest.raises(StepError, match="code: got float32"):
        replay.add({**make_step(1, 4), "code": np.float32(1.5)}, 1)
    assert len(all_items(replay)) == 3
    replay.close()


@pytest.mark.parametrize(
    "step",
    [
        {"image": np.zeros((64, 64, 3), np.uint8)},
        {"flag": True},
        {"a": 1.0, "b": 2, "c": np.zeros((0,), np.float32)},
        {"deep": np.zeros((2, 3, 4), np.int16), "wide": np.zeros(1000, np.float64)},
    ],
)
def test_any_schema(directory, step):
    replay = Replay(length=2, capacity=10, directory=directory, chunksize=3)
    for _ in range(8):
        replay.add(step)
    batch = replay.sample(3)
    for key, value in step.items():
        assert batch[key].shape == (3, 2, *np.shape(value))
        assert (batch[key] == value).all()
    if "a" in step:
        assert batch["a"].dtype == np.float32
        assert batch["b"].dtype == np.int32
    replay.close()


def test_bfloat16(tmp_path):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    value = np.arange(300).astype(ml_dtypes.bfloat16)
    replay = Replay(length=2, capacity=10, directory=tmp_path)
    for _ in range(3):
        replay.add({"x": value, "y": value[0]})
    replay.close()
    replay = Replay(length=2, capacity=10, directory=tmp_path)
    batch = replay.sample(2)
    assert batch["x"].dtype == ml_dtypes.bfloat16
    assert (batch["x"] == value).all()
    replay.close()


def test_online_queue_serves_each_fresh_sequence_once(directory):
    replay = Replay(length=4, capacity=100, directory=directory, online=True)
    fill(replay, 1, 16)
    fill(replay, 2, 9)
    assert replay.stats()["online_queue"] == 6
    replay.sample(5, "report")
    served = replay.sample(6, "train")["code"][:, 0].tolist()
    assert served == [1000, 1004, 1008, 1012, 2000, 2004]
    assert replay.stats()["online_queue"] == 0
    assert replay.sample(3, "train")["code"].shape == (3, 4)
    replay.close()


def test_online_queue_forgets_evicted_sequences():
    replay = Replay(length=4, capacity=5, online=True)
    fill(replay, 1, 100)
    assert replay.stats()["online_queue"] <= 2
    assert replay.sample(1)["code"][0, 0] >= 1092
    replay.close()


def test_sample_waits_and_can_be_interrupted(directory):
    replay = Replay(length=4, capacity=10, directory=directory)
    with pytest.raises(TimeoutError, match="no items"):
        replay.sample(1, timeout=0.01)
    assert replay.stats()["sample_wait"] > 0
    replay.close()
    with pytest.raises(ReplayClosedError):
        replay.sample(1)
    with pytest.raises(ReplayClosedError):
        replay.add(make_step(1, 1))


def test_same_seed_same_samples():
    codes = []
    for _ in range(2):
        replay = Replay(length=4, capacity=100, seed=3)
        fill(replay, 1, 50)
        codes.append(replay.sample(20)["code"])
    assert (codes[0] == codes[1]).all()


def test_batches_that_are_held_do_not_change(directory):
    replay = Replay(length=4, capacity=100, directory=directory)
    fill(replay, 1, 50)
    held = [replay.sample(8) for _ in range(20)]
    images = [batch["image"] for batch in held]
    copies = [image.copy() for image in images]
    del held
    for _ in range(20):
        replay.sample(8)
    for image, copy in zip(images, copies, strict=True):
        assert (image == copy).all()
    replay.close()


def test_overhead_per_step_is_small(tmp_path):
    step = {
        "image": np.zeros((64, 64, 3), np.uint8),
        "latent": np.zeros(1024, np.float32),
        "vector": np.zeros(12, np.float32),
        "reward": np.float32(0),
        "is_first": np.bool_(0),
        "is_last": np.bool_(0),
        "is_terminal": np.bool_(0),
    }
    raw = sum(value.nbytes for value in step.values())
    replay = Replay(length=65, capacity=4096, directory=tmp_path)
    for _ in range(2048):
        replay.add(step)
    stats = replay.stats()
    ring = replay._index.ring._places.nbytes
    assert stats["bytes"] + ring < 1.05 * raw * stats["steps"]
    replay.close()


def test_values_of_any_memory_layout_are_stored_whole():
    image = np.arange(2 * 32 * 16, dtype=np.int32).reshape(2, 32, 16)
    strided = np.asfortranarray(image)
    replay = Replay(length=1, capacity=10, chunksize=4)
    replay.add({"image": strided[0]}, 0)
    replay.add_batch({"image": strided}, [0, 1])
    found = {x.tobytes() for x in replay.sample(64)["image"][:, 0]}
    assert found == {x.tobytes() for x in image}
    replay.close()


def test_interrupted_add_leaves_no_hole(tmp_path, monkeypatch):
    replay = Replay(length=2, capacity=10, directory=tmp_path, chunksize=4)
    fill(replay, 1, 4)
    real = Chunk.write

    def interrupted(self, row, step):
        raise KeyboardInterrupt

    for index in range(4, 7):
        monkeypatch.setattr(Chunk, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replay.add(make_step(1, index), 1)
        monkeypatch.setattr(Chunk, "write", real)
        replay.add(make_step(1, index), 1)
    replay.add_batch({}, [])
    replay.close()
    replay = Replay(length=2, capacity=10, directory=tmp_path, chunksize=4)
    assert all_items(replay) == [(1000 + i, 1001 + i) for i in range(6)]
    replay.close()


def test_memory_is_part_of_what_is_saved():
    replay = Replay(length=3, capacity=20, chunksize=4)
    fill(replay, 1, 30)
    fill(replay, 2, 9)
    state = replay.save()
    other = Replay(length=3, capacity=20, chunksize=4)
    other.load(state)
    assert all_items(other) == all_items(replay)
    batch = replay.sample(4)
    other.update({"stepid": batch["stepid"], "latent": batch["latent"]})
    assert other.stats()["updates"] == 12
    other.add(make_step(2, 9), 2, seq=9)
    assert all_items(other)[-1] == (2007, 2008, 2009)
    with pytest.raises(ValueError, match="must be empty"):
        other.load(state)


def test_contract(directory):
    testing = pytest.importorskip("embodied.testing.contracts")
    made = []

    def make_replay():
        if made:
            made[-1].close()
        made.append(Replay(length=5, capacity=100, directory=directory))
        return made[-1]

    testing.check_replay(make_replay, 5)
    made[-1].close()
