"""Resizing of images: area averages, or the bilinear filter of Pillow."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Resize = Callable[[np.ndarray], np.ndarray]


def make_resize(
    source: tuple[int, int], target: tuple[int, int], method: str
) -> Resize:
    """Resizes uint8 images [H, W, C] by `method` area or bilinear."""
    if method == "area":
        return AreaResize(source, target)
    from PIL import Image  # Optional.

    def bilinear(image: np.ndarray) -> np.ndarray:
        picture = Image.fromarray(image.squeeze(-1) if image.shape[2] == 1 else image)
        resized = picture.resize(target[::-1], Image.Resampling.BILINEAR)
        return np.asarray(resized).reshape(*target, image.shape[2])

    return bilinear


class AreaResize:
    """Resizes uint8 images [H, W, C] of `source` to `target` (height, width).

    A target pixel covers few source pixels, so that a sum over these is as fast as a
    product of matrices on one core and, unlike it, does not start threads.
    """

    def __init__(self, source: tuple[int, int], target: tuple[int, int]):
        self._rows = _taps(area_weights(source[0], target[0]))
        self._columns = _taps(area_weights(source[1], target[1]))

    def __call__(self, image: np.ndarray) -> np.ndarray:
        values = image.astype(np.float32)
        values = sum(values[index] * weight[:, None] for index, weight in self._rows)
        values = sum(values[:, index] * weight for index, weight in self._columns)
        return (values + 0.5).astype(np.uint8)


def area_weights(source: int, target: int) -> np.ndarray:
    """Matrix [target, source] that averages the interval each target pixel covers."""
    edges = np.linspace(0, source, target + 1)
    pixels = np.arange(source)
    upper = np.minimum(edges[1:, None], pixels[None] + 1)
    lower = np.maximum(edges[:-1, None], pixels[None])
    overlap = np.maximum(0, upper - lower)
    return (overlap / overlap.sum(1, keepdims=True)).astype(np.float32)


def _taps(weights: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Source indices [target] and weights [target, 1] whose weighted sum is the mean.

    There are as many pairs as the widest interval has pixels; narrower ones end in
    pixels of weight zero.
    """
    target, source = weights.shape
    first = (weights > 0).argmax(1)
    pairs = []
    for offset in range(int((weights > 0).sum(1).max())):
        index = np.minimum(first + offset, source - 1)
        weight = np.where(
            first + offset < source, weights[np.arange(target), index], 0
        ).astype(np.float32)
        pairs.append((index, weight[:, None]))
    return pairs
