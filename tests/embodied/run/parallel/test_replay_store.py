"""The replay store: two replays behind one door, the limiter, repeats, state."""

import errno
import threading

import numpy as np
import pytest

from embodied import streams
from embodied.core import disk
from embodied.core.checkpoint import Checkpoint
from embodied.replay import Replay, ReplayFullError
from embodied.replay.limiter import LimiterClosedError
from embodied.run.parallel import outbox, routing
from embodied.run.parallel import replay as replay_module
from embodied.run.parallel.outbox import STEP
from embodied.run.parallel.replay import ReplayStore
from embodied.run.parallel.steps import StepsError
from embodied.run.settings import RunSettings
from embodied.testing import ListReplay

TIMEOUT = 10  # Seconds until a thread that should go on has failed.
MINSIZE = 2  # Steps before the first batch.
AHEAD = 4  # Steps that may be stored after that before somebody must sample.


class Setup:
    """A store where each step after the first ones earns one sequence."""

    def __init__(self, length=2, **changes):
        args = {"batch_size": 1, "batch_length": 2, "replay_context": 0}
        args |= {"logdir": "unused", "train_ratio": 2.0}
        self.args = RunSettings.of({**args, **changes})
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
    unwanted = {*routing.SPACES, "log/x"}
    assert set(stored) == set(steps) - unwanted | {"stepid"}


def test_plain_steps_are_stored_in_order(make_plain_steps):
    setup = Setup(train_ratio=0.0)
    for index in range(3):
        steps = make_plain_steps([0, 7], reward=index, is_eval=[False, True])
        assert setup.store.add_batch(steps) == index + 1
    for replay in (setup.replay, setup.replay_eval):
        (stream,) = replay.streams.values()
        assert [step["reward"] for step in stream] == [0, 1, 2]
        assert routing.SEQ not in stream[0]


def test_steps_without_is_eval_are_for_training(make_plain_steps):
    setup = Setup()
    steps = make_plain_steps([0])
    del steps["is_eval"]
    assert setup.store.add_batch(steps) == 1


@pytest.mark.parametrize("on_disk", [False, True])
def test_numbered_and_plain_steps_of_one_environment(
    tmp_path, make_steps, make_plain_steps, on_disk
):
    """Neither takes a number that the other needs, not even after a restart."""
    setup = Setup(train_ratio=0.0)

    def open_store():
        replay = Replay(2, 100, tmp_path) if on_disk else setup.replay
        return ReplayStore(replay, Replay(2, 100), setup.make_stream, setup.args)

    store, total = open_store(), 0
    for seq in range(4):
        for steps in (make_steps([0], [seq]), make_plain_steps([0])):
            total += 1
            assert store.add_batch(steps) == total
        assert store.add_batch(make_steps([0], [seq])) == total  # A repetition.
        if on_disk:
            store.close()
            store = open_store()
    store.close()


def test_a_batch_may_be_numbered_in_part(make_steps):
    store = Setup(train_ratio=0.0).store
    for total in (3, 5):
        steps = make_steps([0, 1, 1], [routing.UNNUMBERED, 5, routing.UNNUMBERED])
        assert store.add_batch(steps) == total


@pytest.mark.parametrize(
    "missing", ["envid", "reward", "is_first", "is_last", "is_terminal"]
)
def test_steps_that_lack_something_are_rejected(make_plain_steps, missing):
    store = Setup().store
    steps = make_plain_steps([0])
    del steps[missing]
    with pytest.raises(StepsError, match=f"^'{missing}' is missing: .*each step"):
        store.add_batch(steps)
    assert store.total() == 0


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("envid", np.int32(0)),
        ("envid", np.zeros(1, np.float32)),
        ("envid", np.array([-1])),
        (
            "envid",
            np.array([routing.MAX_ENVS]),
        ),  # The worker of plain steps of another.
        ("is_eval", np.zeros(1, np.int32)),
        ("is_eval", np.zeros(2, bool)),
        ("seq", np.zeros(1, np.float32)),
    ],
)
def test_routing_of_another_kind_is_rejected(make_plain_steps, key, value):
    store = Setup().store
    with pytest.raises(StepsError, match=f"^'{key}' has "):
        store.add_batch({**make_plain_steps([0]), key: value})
    assert store.total() == 0


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


@pytest.fixture
def full(monkeypatch):
    """A store with one step whose disk is full until `room` is set."""
    monkeypatch.setattr(disk, "POLL", 0.01)
    setup = Setup()
    setup.room, setup.attempts = threading.Event(), 0
    add_batch = setup.replay.add_batch

    def refuse(*args):
        setup.attempts += 1
        if setup.room.is_set():
            return add_batch(*args)
        raise ReplayFullError(errno.ENOSPC, "no room")

    setup.replay.add_batch = refuse
    return setup


def test_steps_wait_for_room(full, make_steps, start, capfd):
    adding = start(lambda: full.store.add_batch(make_steps([0], [0])))
    while full.attempts < 3:
        adding.join(0.01)
    assert full.store.total() == 0
    full.room.set()
    adding.join(60)
    assert full.store.total() == 1
    assert capfd.readouterr().out.count("The replay waits: no room") == 1


def test_steps_without_room_at_the_end_are_refused_and_earn_no_training(
    full, make_steps, start
):
    errors = []

    def add():
        with pytest.raises(ReplayFullError) as info:
            full.store.add_batch(make_steps([0], [0]))
        errors.append(info.value)

    adding = start(add)
    while full.attempts < 3:
        adding.join(0.01)
    full.store.drain()
    adding.join(60)
    assert len(errors) == 1
    assert full.store.stats()["limiter/size"] == 0


def test_a_new_actor_replaces_one_whose_steps_wait_for_room(full, make_steps, start):
    adding = start(lambda: full.store.add_batch(make_steps([0], [0]), actor=1))
    while full.attempts < 3:
        adding.join(0.01)
    assert full.store.take_over(2)["actor"] == 2
    adding.join(60)
    assert not adding.is_alive()
    full.room.set()
    full.store.add_batch(make_steps([0], [0]), actor=2)
    assert full.store.total() == 1


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


def test_a_repeated_draw_spends_no_credit(fill):
    store = Setup().store
    fill(store, range(MINSIZE + AHEAD))

    def credit():
        return store.stats()["limiter/avail"]

    before = credit()
    for draw in ((7, 1), (7, 1), (7, 2), (7, 1), (7, 2)):
        assert store.sample_batch_train(draw)
    spent = before - credit()
    assert spent > 0
    assert store.sample_batch_train((7, 0))  # One that was held back has not paid.
    assert before - credit() == 1.5 * spent
    before -= spent / 2
    for draw in ((8, 1), (8, 2)):  # Another learner spends as much.
        assert store.sample_batch_train(draw)
    assert before - credit() == 2 * spent


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
    store.take_over()
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


FIRST = 1 << routing.INCARNATION_BITS  # Number of the first step of a process.


@pytest.fixture
def make_store(tmp_path):
    """A store of replays on disk, opened again each time."""
    setup, made = Setup(train_ratio=0.0), []

    def make():
        for store in made:
            store.close()
        replays = [Replay(2, 100, tmp_path / name, chunksize=4) for name in "ab"]
        made[:] = [ReplayStore(*replays, setup.make_stream, setup.args)]
        return made[0]

    yield make
    made[0].close()


def unlogged(store, **seqs):
    """Environment, number, step and mode of all that the logger lacks."""
    envids = [int(name[3:]) for name in seqs]
    seen = {routing.ENVID: np.array(envids), routing.SEQ: np.array([*seqs.values()])}
    found = store.unlogged(seen)
    rows = []
    for batch in found["steps"]:
        names = (routing.ENVID, routing.SEQ, routing.IS_EVAL)
        columns = (batch[name].tolist() for name in names)
        for envid, seq, is_eval in zip(*columns, strict=True):
            rows.append((envid, seq - FIRST, batch[STEP], is_eval))
    return rows, found["complete"]


def test_what_the_logger_lacks_is_found_also_after_a_restart(make_store, make_steps):
    store = make_store()
    for seq in range(3):
        seqs = [FIRST + seq, FIRST + 10 + seq]
        store.add_batch(make_steps([0, 7], seqs, is_eval=[False, True], reward=seq))
    for opened in (store, make_store()):
        assert unlogged(opened, env0=FIRST, env7=FIRST + 11) == (
            [(0, 1, 3, False), (0, 2, 3, False), (7, 12, 0, True)],
            True,
        )
        found = opened.unlogged({routing.ENVID: np.zeros(0), routing.SEQ: np.zeros(0)})
        assert [b["reward"].tolist() for b in found["steps"]] == [[0, 1, 2]] * 2
        assert all(batch[outbox.PARTIAL] for batch in found["steps"])


def test_the_logger_gets_steps_in_the_order_of_the_replay(
    make_store, make_steps, monkeypatch
):
    monkeypatch.setattr(replay_module, "MAX_UNLOGGED", 5)
    monkeypatch.setattr(replay_module, "UNLOGGED_BATCH", 2)
    store = make_store()
    for seq in range(3):
        for envid in (1, 0):
            store.add_batch(make_steps([envid], [FIRST + seq]))
    rows = [(1, 0), (0, 0), (1, 1), (0, 1), (1, 2)]
    steps = [2, 2, 4, 4, 5]
    expected = [(*row, step, False) for row, step in zip(rows, steps, strict=True)]
    assert unlogged(store) == (expected, False)
    assert unlogged(store, env1=FIRST + 2, env0=FIRST + 1) == ([(0, 2, 6, False)], True)


def test_steps_of_serial_runs_and_unnumbered_ones_are_not_logged_again(
    make_store, make_steps, make_plain_steps
):
    store = make_store()
    store.add_batch(make_steps([0], [3]))
    store.add_batch(make_plain_steps([1]))
    assert unlogged(store) == ([], True)


def test_steps_of_a_replaced_actor_are_ignored(make_steps, fill, watch, start):
    """They were on their way, or waited for the limiter, when it was killed."""
    store = Setup().store
    condition = watch(store._limiter)
    first = store.take_over()["actor"]
    fill(store, range(MINSIZE + AHEAD))
    waiting = start(lambda: store.add_batch(make_steps([0], [50]), first))
    assert condition.waiting.wait(TIMEOUT)
    state = store.take_over()
    store.drain()
    waiting.join(TIMEOUT)
    assert store.total() == state["total"] == MINSIZE + AHEAD
    assert store.add_batch(make_steps([0], [51]), first) == state["total"]
    assert store.add_batch(make_steps([0], [60]), state["actor"]) == state["total"] + 1
    assert store.stats()["limiter/inserts"] == state["total"] + 1


def test_a_new_actor_learns_which_steps_are_stored(make_steps):
    setup = Setup(train_ratio=0.0)
    replays = Replay(2, capacity=100), Replay(2, capacity=100)
    store = ReplayStore(*replays, setup.make_stream, setup.args)
    store.add_batch(make_steps([0, 3, 9], [4, 5, 6], is_eval=[False, False, True]))
    stored = store.take_over()["stored"]
    pairs = zip(stored["envid"].tolist(), stored["seq"].tolist(), strict=True)
    assert dict(pairs) == {0: 4, 3: 5, 9: 6}
    store.close()


def test_a_new_replay_accepts_the_actor_of_the_old_one(make_steps):
    store = Setup(train_ratio=0.0).store
    assert store.add_batch(make_steps([0], [0]), 7) == 1
    assert store.take_over()["actor"] == 8


def test_an_actor_may_take_over_twice_and_late(make_steps):
    """Its call was sent again, or an older one was read after the newer one."""
    store = Setup(train_ratio=0.0).store
    for number in (5, 9, 9, 5):
        assert store.take_over(number)["actor"] == number
    assert store.add_batch(make_steps([0], [0]), 5) == 0
    assert store.add_batch(make_steps([0], [0]), 9) == 1


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


def test_a_replay_whose_files_are_gone_fills_up_before_it_is_sampled(fill):
    before = Setup()
    fill(before.store, range(MINSIZE + 1))
    state = before.store.save()
    for name in ("replay", "replay_eval"):
        state[name] = {**ListReplay(2).save(), "total": before.replay.total}
    after = Setup()
    after.store.load(state)
    assert after.store.stats()["limiter/size"] == 0
