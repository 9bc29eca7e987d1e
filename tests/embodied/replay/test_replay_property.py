"""Random interleavings of everything a replay can do, against a simple model."""

import tempfile

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from embodied.replay import Prioritized, Replay
from embodied.testing.replay_model import Model, all_items, make_step

WORKERS = st.integers(0, 3)


class ReplayMachine(RuleBasedStateMachine):
    """Drives a replay on disk or in memory and the model alike."""

    def __init__(self):
        super().__init__()
        self.replay = None
        self.counter = dict.fromkeys(range(4), 0)

    @initialize(
        disk=st.booleans(),
        compress=st.booleans(),
        prioritized=st.booleans(),
        length=st.integers(1, 7),
        capacity=st.integers(1, 40),
        chunksize=st.integers(1, 9),
    )
    def start(self, disk, compress, prioritized, length, capacity, chunksize):
        self.folder = tempfile.TemporaryDirectory() if disk else None
        self.prioritized = prioritized
        self.options = {
            "length": length,
            "capacity": capacity,
            "chunksize": chunksize,
            "compress": compress,
            "memory": 2000,
            "directory": self.folder.name if disk else None,
        }
        self.replay = self.open()
        self.model = Model(length, capacity)

    def open(self):
        selector = Prioritized(zero_on_sample=True) if self.prioritized else None
        return Replay(**self.options, selector=selector)

    def step(self, worker, seq):
        index = self.counter[worker] % 1000
        step = make_step(worker, index)
        if self.model.add(worker, int(step["code"]), seq):
            self.counter[worker] += 1
        return step

    @rule(worker=WORKERS, amount=st.integers(1, 12))
    def add(self, worker, amount):
        for _ in range(amount):
            self.model.begin()
            seq = self.model.next(worker)
            self.replay.add(self.step(worker, seq), worker, seq)

    @rule(worker=WORKERS, back=st.integers(1, 5))
    def add_again(self, worker, back):
        self.model.begin()
        seq = max(0, self.model.next(worker) - back)
        self.replay.add(self.step(worker, seq), worker, seq)

    @rule(worker=WORKERS, gap=st.integers(1, 3))
    def add_after_gap(self, worker, gap):
        self.model.begin()
        seq = self.model.next(worker) + gap
        self.replay.add(self.step(worker, seq), worker, seq)

    @rule(workers=st.lists(WORKERS, min_size=1, max_size=8))
    def add_batch(self, workers):
        self.model.begin()
        seqs, steps = [], []
        for worker in workers:
            seqs.append(self.model.next(worker))
            steps.append(self.step(worker, seqs[-1]))
        batch = {k: np.stack([x[k] for x in steps]) for k in steps[0]}
        self.replay.add_batch(batch, workers, seqs)

    @precondition(lambda self: self.replay and len(self.replay))
    @rule(batch=st.integers(1, 5), delta=st.integers(1, 100))
    def update(self, batch, delta):
        data = self.replay.sample(batch)
        codes = data["code"].reshape(-1).tolist()
        latent = (data["code"] + delta / 128.0)[..., None].repeat(4, -1)
        priority = np.full(data["code"].shape, delta, np.float32)
        values = {"latent": latent.astype(np.float32), "priority": priority}
        if delta % 10 == 0:
            values["image"] = data["image"]
        self.replay.update({"stepid": data["stepid"], **values})
        for code in codes:
            self.model.latents[code] = np.float32(code + delta / 128.0)

    @rule()
    def restart(self):
        if self.folder is not None:
            state = self.replay.save()
            self.replay.close()
            self.replay = self.open()
            self.replay.load(state)
            self.model.forget(set(self.replay._index.writers))

    @invariant()
    def same_as_model(self):
        if self.replay is None:
            return
        assert len(self.replay) == len(self.model.items)
        assert all_items(self.replay) == self.model.items

    @invariant()
    def same_latents(self):
        if self.replay is None or not len(self.replay):
            return
        batch = self.replay.sample(4, "report")
        expect = np.vectorize(self.model.latents.get)(batch["code"])
        assert (batch["latent"] == expect[..., None].astype(np.float32)).all()

    @invariant()
    def no_more_chunks_than_needed(self):
        if self.replay is not None:
            # Besides those with items: those that streams are written to, windows that
            # wait for their end, and short streams until they are too old.
            assert self.replay.stats()["chunks"] <= 2 * self.options["capacity"] + 40
            for chunk in self.replay._index.chunks.values():
                assert chunk.live >= 0

    def teardown(self):
        if self.replay is not None:
            self.replay.close()
            if self.folder is not None:
                self.folder.cleanup()


TestReplayMachine = ReplayMachine.TestCase
TestReplayMachine.settings = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
