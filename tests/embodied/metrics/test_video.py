"""Encoded images and videos, decoded again by PyAV and Pillow."""

import io

import av
import numpy as np
import PIL.Image
import pytest

from embodied.metrics import video


def make_frames(length=6, height=33, width=47, channels=3):
    """A bright disc that moves over a gradient."""
    y, x = np.mgrid[:height, :width]
    frames = []
    for t in range(length):
        disc = (x - 6 * t - 5) ** 2 + (y - height // 2) ** 2 < 30
        planes = [np.where(disc, 255, 3 * x), np.where(disc, 255, 4 * y), 255 * disc]
        frames.append(np.stack(planes[:channels], -1))
    return np.stack(frames).astype(np.uint8)


def distance(left, right):
    return np.abs(left.astype(int) - right.astype(int)).mean()


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [(32, 48), (33, 47), (1, 1)])
def test_mp4(size, channels):
    frames = make_frames(6, *size, channels)
    with av.open(io.BytesIO(video.encode_mp4(frames, 15))) as file:
        context = file.streams.video[0].codec_context
        assert (context.name, context.pix_fmt) == ("h264", "yuv420p")
        assert file.streams.video[0].average_rate == 15
        decoded = np.stack([f.to_ndarray(format="rgb24") for f in file.decode(video=0)])
    height, width = size
    assert decoded.shape == (6, height + height % 2, width + width % 2, 3)
    assert distance(decoded[:, :height, :width], frames) < 8


@pytest.mark.parametrize("channels", [1, 3])
def test_gif(channels):
    frames = make_frames(channels=channels)
    image = PIL.Image.open(io.BytesIO(video.encode_gif(frames, 20)))
    assert (image.n_frames, image.info["loop"], image.info["duration"]) == (6, 0, 50)
    for index, frame in enumerate(frames):
        image.seek(index)
        assert distance(np.array(image.convert("RGB")), frame) < 4


def test_a_gif_without_motion_keeps_its_length():
    frames = np.zeros((5, 8, 8, 3), np.uint8)
    image = PIL.Image.open(io.BytesIO(video.encode_gif(frames, 10)))
    durations = []
    for index in range(image.n_frames):
        image.seek(index)
        durations.append(image.info["duration"])
    assert sum(durations) == 500


@pytest.mark.parametrize("channels", [1, 3])
def test_png(channels):
    image = make_frames(channels=channels)[0]
    decoded = np.array(PIL.Image.open(io.BytesIO(video.encode_png(image))))
    assert (decoded.reshape(image.shape) == image).all()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 4, 4, 3), np.float32),
        np.zeros((4, 4, 3), np.uint8),
        np.zeros((2, 4, 4, 2), np.uint8),
        np.zeros((0, 4, 4, 3), np.uint8),
    ],
)
def test_what_cannot_be_encoded_is_refused(array):
    with pytest.raises(ValueError, match="shape"):
        video.encode_mp4(array, 15)


def test_pixels():
    ones = np.ones((2, 4, 4, 3))
    assert (video.to_pixels(ones * 0.2) == 51).all()
    assert (video.to_pixels(ones * 9) == 255).all()
    assert (video.to_pixels(ones * np.nan) == 0).all()
    assert (video.to_pixels(ones.astype(bool)) == 255).all()
    assert (video.to_pixels(ones.astype(int) * 300) == 255).all()
    assert (video.to_pixels(ones.astype(np.uint8)) == 1).all()
    assert video.to_pixels(np.ones((4, 5))).shape == (4, 5, 1)


def test_other_channels_are_side_by_side():
    stacked = np.zeros((2, 4, 5, 4), np.uint8)
    stacked[..., 2] = 9
    pixels = video.to_pixels(stacked)
    assert pixels.shape == (2, 4, 20, 1)
    assert (pixels[:, :, 10:15] == 9).all()
    assert pixels.sum() == 9 * 2 * 4 * 5
