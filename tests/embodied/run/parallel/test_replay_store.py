"""The replay store: two replays behind one door, the limiter, repeats, state."""

import errno

import elements
import numpy as np
import pytest

from embodied import streams
from embodied.core.checkpoint import Checkpoint
from embodied.replay import Replay, ReplayFullError
from embodied.replay.limiter import LimiterClosedError
from embodied.run.parallel import outbox, wire
from embodied.run.parallel.outbox import STEP
from embodied.run.parallel.replay import ReplayStore
from embodied.testing import ListReplay

TIMEOUT = 10  # Seconds until a thread that should go on has failed.
MINSIZE = 2  # Steps before the first batch.
AHEAD = 4  # Steps that may be stored after that before somebody must sample.


class Setup:
    """A store where each step after the first ones earns one sequence."""

    def __init__(self, length=2, **changes):
        args = {"batch_size": 1, "batch_length": 2, "replay_context": 0}
        self.args = elements.Config({**args, "train_ratio": 2.0, **changes})
        self.replay, self.replay_eval = ListReplay(length), ListReplay(length)
        self.store = ReplayStore(
            self.replay, self.replay_eval, self.make_stream, self.args
        )

    def make_stream(self, replay, mode):
        return streams.Stateless(replay.sample, self.args.batch_size, mode)


@pytest.fixture
def fill(make_steps):
    """Stores steps of environment 0, one call each; returns the totals."""

    def add(store, seqs):
        return [store.add_batch(make_steps([0], [seq])) for seq in seqs]

    return add


def counts(replay):
    return {name: len(steps) for name, steps in replay.streams.items()}


def test_training_and_evaluation_are_kept_apart(make_steps):
    setup = Setup(train_ratio=0.0)
    for seq in range(3):
        evals = [False, True, False]
        steps = make_steps([0, 7, 1], [seq] * 3, reward=[1, 2, 3], is_eval=evals)
        assert setup.store.add_batch(steps) == 2 * (seq + 1)
    assert counts(setup.replay) == {"0": 3, "1": 3}
    assert counts(setup.replay_eval) == {"7": 3}
    assert [step["reward"] for step in setup.replay.streams["1"]] == [3, 3, 3]
    assert [step["reward"] for step in setup.replay_eval.streams["7"]] == [2, 2, 2]
    assert setup.store.total() == 6
    assert setup.store.length("train") == setup.store.length("report") == 4
    assert setup.store.length("eval") == 2
    assert setup.store.sample_batch_eval()["reward"].tolist() == [[2, 2]]
    assert 2 not in setup.store.sample_batch_report()["reward"]


def test_neither_routing_nor_logs_are_stored(make_steps):
    setup = Setup()
    steps = make_steps([0], [0], **{"log/x": np.ones(1), "latent/h": np.ones((1, 3))})
    setup.store.add_batch(steps)
    (stored,) = setup.replay.streams["0"]
    unwanted = {*wire.ROUTING, "log/x"}
    assert set(stored) == set(steps) - unwanted | {"stepid"}


def test_evaluation_steps_earn_no_training(make_steps):
    setup = Setup()
    for seq in range(MINSIZE + 1):
        assert setup.store.add_batch(make_steps([7], [seq], is_eval=True)) == 0
    stats = setup.store.stats()
    assert stats["limiter/inserts"] == 0
    assert stats["limiter/size"] == stats["limiter/avail"] == 0
    assert stats["replay_eval/items"] == MINSIZE


def test_steps_sent_again_earn_no_training(tmp_path, make_steps):
    """Neither in the same life nor after a restart, with or without a checkpoint."""
    setup = Setup()
    options = {"length": 2, "capacity": 100, "chunksize": 4}

    def open_store():
        train = Replay(directory=tmp_path, **options)
        return ReplayStore(train, Replay(**options), setup.make_stream, setup.args)

    def limiter(store):
        stats = store.stats()
        return stats["limiter/size"], stats["limiter/avail"]

    store, size = open_store(), MINSIZE + 1
    for seq in range(size):
        store.add_batch(make_steps([0], [seq]))
    assert limiter(store) == (size, 1)
    assert store.add_batch(make_steps([0], [size - 1])) == size
    assert store.add_batch(make_steps([0, 1], [size - 1, 0])) == size + 1
    assert limiter(store) == (size + 1, 2)
    saved = store.save()
    for state, avail in ((saved, 2), (None, 0)):
        store.close()
        store = open_store()
        if state:
            store.load(state)
        for seq in range(size):
            store.add_batch(make_steps([0], [seq]))
        assert limiter(store) == (size + 1, avail)
    store.close()


def test_refused_steps_earn_no_training(make_steps):
    setup = Setup()
    setup.store.add_batch(make_steps([0], [0]))

    def refuse(*args):
        raise ReplayFullError(errno.ENOSPC, "no room")

    setup.replay.add_batch = refuse
    with pytest.raises(ReplayFullError):
        setup.store.add_batch(make_steps([0], [1]))
    assert setup.store.stats()["limiter/size"] == 1


def test_sampling_waits_for_the_first_steps(fill, watch, start):
    # The limiter lets go just before the step is there, so one before must do.
    store = Setup(length=1).store
    condition = watch(store._limiter)
    batches = []
    learner = start(lambda: batches.append(store.sample_batch_train()))
    assert condition.waiting.wait(TIMEOUT)
    assert fill(store, range(MINSIZE - 1)) == [1]
    assert learner.is_alive()
    fill(store, [MINSIZE - 1])
    learner.join(TIMEOUT)
    assert [batch["reward"].shape for batch in batches] == [(1, 1)]


def test_inserting_waits_for_the_learner(fill, watch, start):
    store = Setup().store
    condition = watch(store._limiter)
    fill(store, range(MINSIZE + AHEAD))
    assert not condition.waiting.is_set()
    actor = start(lambda: fill(store, [99]))
    assert condition.waiting.wait(TIMEOUT)
    assert store.total() == MINSIZE + AHEAD
    store.sample_batch_train()
    actor.join(TIMEOUT)
    assert store.total() == MINSIZE + AHEAD + 1


def test_drain_lets_the_waiting_and_all_later_steps_in(fill, watch, start):
    store = Setup().store
    condition = watch(store._limiter)
    fill(store, range(MINSIZE + AHEAD))
    actor = start(lambda: fill(store, range(50, 70)))
    assert condition.waiting.wait(TIMEOUT)
    store.drain()
    actor.join(TIMEOUT)
    assert store.total() == MINSIZE + AHEAD + 20


def test_a_new_actor_is_limited_again(fill, watch, start):
    """An agent that failed drained the replay before it was restarted."""
    store = Setup().store
    condition = watch(store._limiter)
    store.drain()
    fill(store, range(MINSIZE + AHEAD))
    store.recent()
    actor = start(lambda: fill(store, range(50, 51)))
    assert condition.waiting.wait(TIMEOUT)
    store.drain()
    actor.join(TIMEOUT)
    assert store.total() == MINSIZE + AHEAD + 1


def test_turning_away_ends_the_waits(watch, start):
    store = Setup().store
    condition = watch(store._limiter)
    errors = []

    def learn():
        try:
            store.sample_batch_train()
        except LimiterClosedError as error:
            errors.append(error)

    learner = start(learn)
    assert condition.waiting.wait(TIMEOUT)
    store.turn_away()
    learner.join(TIMEOUT)
    assert len(errors) == 1


def test_reports_do_not_count_as_training(fill):
    store = Setup().store
    fill(store, range(MINSIZE + 1))
    for _ in range(10):
        store.sample_batch_report()
    assert store.stats()["limiter/samples"] == 0


def test_a_repeated_step_is_stored_once(fill, make_steps):
    setup = Setup(train_ratio=0.0)
    assert fill(setup.store, [5, 6, 7]) == [1, 2, 3]
    assert fill(setup.store, [6, 7]) == [3, 3]
    both = make_steps([0, 1], [7, 7])  # One row is new.
    assert setup.store.add_batch(both) == 4
    assert counts(setup.replay) == {"0": 3, "1": 1}


def test_no_sequence_crosses_a_gap(fill):
    setup = Setup(train_ratio=0.0)
    fill(setup.store, [5, 6, 7, 9, 10])
    assert counts(setup.replay) == {"0": 3, "0/9": 2}
    assert setup.store.length("train") == 3


def test_recent_tells_what_the_logger_needs(make_steps):
    store = Setup().store
    for seq in range(3):
        image = np.zeros((2, 8, 8, 3), np.uint8)
        steps = make_steps([0, 7], [seq] * 2, is_eval=[False, True], image=image)
        store.add_batch({**steps, "log/x": np.array([1.0, 2.0])})
    recent = store.recent()
    assert [steps[wire.SEQ].tolist() for steps in recent] == [[0, 0], [1, 1], [2, 2]]
    assert [steps[STEP] for steps in recent] == [1, 2, 3]
    flags = {"reward", "is_first", "is_last", "is_terminal"}
    assert set(recent[0]) == {*flags, *wire.ROUTING, "log/x", STEP}
    assert recent[0]["log/x"].tolist() == [1, 2]


def test_recent_covers_all_that_can_be_on_its_way(fill):
    store = Setup(train_ratio=0.0).store
    amount = 3 * outbox.MAX_PENDING
    fill(store, range(amount))
    steps = [each[STEP] for each in store.recent()]
    assert len(steps) >= outbox.MAX_PENDING
    assert steps == list(range(amount + 1 - len(steps), amount + 1))


def test_latents_go_to_the_training_data():
    setup = Setup()
    data = {"stepid": np.zeros((1, 2)), "latent/h": np.zeros((1, 3))}
    setup.store.update(data)
    assert setup.replay.updated == [data]
    assert setup.replay_eval.updated == []


def test_save_and_load(tmp_path, fill, make_steps):
    first = Setup()
    fill(first.store, range(MINSIZE + 3))
    first.store.add_batch(make_steps([7], [0], is_eval=True))
    first.store.sample_batch_train()
    checkpoint = Checkpoint(tmp_path, {"replay": first.store})
    checkpoint.save(wait=True)
    checkpoint.close()
    second = Setup()
    checkpoint = Checkpoint(tmp_path, {"replay": second.store})
    checkpoint.load()
    checkpoint.close()
    assert second.store.total() == MINSIZE + 3
    assert second.store.length("train") == first.store.length("train")
    assert counts(second.replay_eval) == {"7": 1}
    stats, expected = second.store.stats(), first.store.stats()
    for key in ("limiter/avail", "limiter/size", "replay/items", "replay_eval/items"):
        assert stats[key] == expected[key]
    # The next batches are the same, and the limiter goes on where it was.
    for _ in range(3):
        batch, other = (
            first.store.sample_batch_train(),
            second.store.sample_batch_train(),
        )
        np.testing.assert_array_equal(batch["stepid"], other["stepid"])


def test_steps_found_on_disk_count_as_a_start(fill):
    """A replay that has steps, but no checkpoint, lets the learner begin."""
    setup = Setup()
    fill(setup.store, range(MINSIZE))
    found = ReplayStore(setup.replay, setup.replay_eval, setup.make_stream, setup.args)
    assert found.stats()["limiter/size"] == MINSIZE
    assert found.sample_batch_train()["reward"].shape == (1, 2)


def test_many_environments_fill_the_replay_before_anybody_waits(make_steps):
    setup = Setup(length=3)
    envs = list(range(4 * (MINSIZE + AHEAD)))
    for seq in range(2):  # Nothing to sample yet, as a sequence has three steps.
        for env in envs:
            setup.store.add_batch(make_steps([env], [seq]))
    stats = setup.store.stats()
    assert (stats["limiter/size"], stats["limiter/avail"]) == (2 * len(envs), 0)
    for env in envs[: AHEAD + 1]:
        setup.store.add_batch(make_steps([env], [2]))
    assert setup.store.length("train") == AHEAD + 1
    assert setup.store.sample_batch_train()["reward"].shape == (1, 3)
