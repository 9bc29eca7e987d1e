"""Trees survive a round trip through Orbax."""

from __future__ import annotations

import numpy as np
import pytest

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
