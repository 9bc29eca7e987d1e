"""Flipped bits in the checkpoint of an agent, whose arrays Orbax writes."""

import random

import numpy as np
import pytest

from embodied.core.checkpoint import Checkpoint, Codec, complete, read_item
from embodied.jax import orbax_tree

FLIPS = 60


class Agent:
    codec = Codec(orbax_tree.write, orbax_tree.read)

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.state = {"params/w": rng.normal(size=(64, 64)).astype(np.float32)}
        self.state |= {"opt/step": np.int32(seed), "params/b": np.zeros(7, np.float32)}

    def save(self):
        return {key: np.array(value) for key, value in self.state.items()}

    def load(self, data):
        self.state = data


class Learner:
    def __init__(self, step):
        self.step = step

    def save(self):
        return {"step": self.step, "updates": 7}

    def load(self, data):
        self.step = data["step"]


@pytest.fixture
def logdir(tmp_path):
    agent, learner = Agent(1), Learner(1)
    checkpoint = Checkpoint(tmp_path, {"agent": agent, "learner": learner})
    checkpoint.save(wait=True)
    agent.state, learner.step = Agent(2).state, 2
    checkpoint.save(wait=True)
    checkpoint.close()
    return tmp_path


def test_every_flipped_bit_is_noticed(logdir, capsys):
    """As many flips as there are files at least, so that each file gets one."""
    before, newest = complete(logdir)
    paths = sorted(p for p in newest.rglob("*") if p.is_file() and p.stat().st_size)
    assert {"meta.json", "plain.json", "tree.json"} <= {path.name for path in paths}
    assert len(paths) <= FLIPS
    rng = random.Random(0)
    chosen = paths + rng.choices(paths, [p.stat().st_size for p in paths], k=FLIPS)
    for path in chosen[:FLIPS]:
        content = path.read_bytes()
        place, bit = rng.randrange(len(content)), rng.randrange(8)
        changed = bytearray(content)
        changed[place] ^= 1 << bit
        path.write_bytes(changed)
        assert read_item(logdir, "learner")["step"] == 1, (path, place, bit)
        line = capsys.readouterr().out
        assert line.count("\n") == 1
        for part in (str(path), "instead of", str(before)):
            assert part in line
        path.write_bytes(content)
    assert read_item(logdir, "learner")["step"] == 2


def test_an_agent_resumes_from_the_checkpoint_before_a_damaged_one(logdir):
    _, newest = complete(logdir)
    data = max((newest / "agent").rglob("d/*"), key=lambda path: path.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 1
    data.write_bytes(content)
    agent, learner = Agent(3), Learner(3)
    Checkpoint(logdir, {"agent": agent, "learner": learner}).load()
    assert learner.step == 1
    for key, value in Agent(1).state.items():
        np.testing.assert_array_equal(agent.state[key], value)
