"""Trees survive a round trip through Orbax."""

from __future__ import annotations

import numpy as np
import pytest

from embodied.core.checkpoint import Checkpoint, Codec
from embodied.core.disk import DiskFullError
from embodied.jax import orbax_tree


def test_round_trip(tmp_path):
    tree = {
        "params/enc/0": np.arange(6, dtype=np.float32).reshape(2, 3),
        "nested": {"flag": np.array([True, False]), "step": np.int32(7)},
        "plain": [1, 2.5, "text", None, True],
    }
    orbax_tree.write(tmp_path / "ckpt", tree)
    result = orbax_tree.read(tmp_path / "ckpt")
    np.testing.assert_array_equal(result["params/enc/0"], tree["params/enc/0"])
    assert result["params/enc/0"].dtype == np.float32
    assert result["nested"]["flag"].dtype == bool
    assert int(result["nested"]["step"]) == 7
    assert result["plain"] == tree["plain"]


def test_refuses_what_it_cannot_store(tmp_path):
    with pytest.raises(TypeError, match="cannot store set at '/x'"):
        orbax_tree.write(tmp_path / "ckpt", {"x": {1, 2}})


@pytest.mark.process
def test_a_checkpoint_on_a_full_disk_fails_as_any_other(small_disk):
    class Item:
        codec = Codec(orbax_tree.write, orbax_tree.read)

        def save(self):
            return np.random.default_rng(0).random(1 << 20)

    disk = small_disk(2)
    checkpoint = Checkpoint(disk / "ckpt", {"agent": Item()})
    with pytest.raises(DiskFullError, match="no room for a checkpoint"):
        checkpoint.save(wait=True)
    assert not list((disk / "ckpt").iterdir())
