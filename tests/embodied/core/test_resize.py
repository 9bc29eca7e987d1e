"""Resizing averages areas exactly."""

import numpy as np
import pytest

from embodied.core.resize import AreaResize, area_weights, make_resize

CASES = [
    ((210, 160), (96, 96)),
    ((7, 5), (64, 64)),
    ((64, 64), (64, 64)),
    ((9, 4), (1, 2)),
]


@pytest.mark.parametrize(("source", "target"), CASES)
def test_it_equals_the_product_with_the_weights(source, target):
    image = np.random.default_rng(0).integers(0, 256, (*source, 3), np.uint8)
    rows, columns = map(area_weights, source, target)
    expected = np.einsum("ih,jw,hwc->ijc", rows, columns, image, optimize=True)
    result = AreaResize(source, target)(image)
    assert result.dtype == np.uint8
    np.testing.assert_allclose(result, expected, atol=0.51)


@pytest.mark.parametrize(("source", "target"), CASES)
def test_constant_images_stay_constant(source, target):
    image = np.full((*source, 1), 255, np.uint8)
    assert (AreaResize(source, target)(image) == 255).all()


def test_bilinear_interpolates_between_pixels_where_area_repeats_them():
    image = np.array([[[0], [90]]], np.uint8)
    area = make_resize((1, 2), (1, 4), "area")(image)
    bilinear = make_resize((1, 2), (1, 4), "bilinear")(image)
    assert area.flatten().tolist() == [0, 0, 90, 90]
    assert bilinear.shape == (1, 4, 1)
    assert 0 < bilinear[0, 1, 0] < bilinear[0, 2, 0] < 90
