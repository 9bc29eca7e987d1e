"""Latents in the form in which the replay stores them."""

from types import SimpleNamespace

import numpy as np
import pytest

from dreamerv3.model import latents


@pytest.mark.parametrize(("classes", "kind"), [(4, np.uint8), (300, np.uint16)])
def test_packing_is_reversible_and_fits_the_spaces(classes, kind):
    sizes = SimpleNamespace(deter=5, stoch=3, classes=classes)
    rng = np.random.default_rng(0)
    stoch = np.eye(classes, dtype=np.float32)[rng.integers(0, classes, (2, 3))]
    latent = latents.Latent(rng.normal(size=(2, 5)).astype(np.float32), stoch)
    stored = latents.pack(latent)
    for key, space in latents.spaces(sizes).items():
        assert stored[key].shape == (2, *space.shape)
        assert stored[key].dtype == space.dtype
    assert stored[latents.STOCH].dtype == kind
    for one, two in zip(latents.unpack(stored, classes), latent, strict=True):
        np.testing.assert_array_equal(one, two)
