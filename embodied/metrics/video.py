"""Images and videos as bytes: mp4 (h264), GIF and PNG, through PyAV."""

from __future__ import annotations

import fractions
import io
from collections.abc import Iterator

import av
import av.filter
import numpy as np

FORMATS = {1: "gray", 3: "rgb24"}  # Channels to PyAV's name of the pixel format.


def encode_mp4(frames: np.ndarray, fps: int) -> bytes:
    """An mp4 (h264, yuv420p) of frames [T, H, W, C] that browsers play."""
    frames = _even(_checked(frames, 4))
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        stream = output.add_stream("h264", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.options = {"crf": "18", "preset": "veryfast"}
        for image in frames:
            output.mux(stream.encode(_frame(image)))
        output.mux(stream.encode())
    return file.getvalue()


def encode_gif(frames: np.ndarray, fps: int) -> bytes:
    """An endless GIF of frames [T, H, W, C] with colours chosen for this video."""
    frames = _checked(frames, 4)
    file = io.BytesIO()
    with av.open(file, "w", format="gif", options={"loop": "0"}) as output:
        stream = output.add_stream("gif", rate=fps)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = "pal8"
        for image in _with_palette(frames, fps):
            output.mux(stream.encode(image))
        output.mux(stream.encode())
    return file.getvalue()


def encode_png(image: np.ndarray) -> bytes:
    """A PNG of an image [H, W, C]."""
    image = _checked(image, 3)
    codec = av.CodecContext.create("png", "w")
    codec.height, codec.width = image.shape[:2]
    codec.pix_fmt = FORMATS[image.shape[2]]
    codec.time_base = fractions.Fraction(1)
    packets = [*codec.encode(_frame(image)), *codec.encode()]
    return b"".join(bytes(packet) for packet in packets)


def to_pixels(array: np.ndarray) -> np.ndarray:
    """Pixels [..., H, W, C] with one or three channels, for people to look at.

    Whole numbers are cut to 0 to 255; others are dark at 0 and bright at 1. An image
    [H, W] is gray, and so are channels that are neither one nor three, such as stacked
    frames, which are put side by side.
    """
    array = np.asarray(array)
    array = array[..., None] if array.ndim == 2 else array
    if array.dtype.kind in "iu":
        array = np.clip(array, 0, 255).astype(np.uint8)
    else:
        numbers = np.nan_to_num(array.astype(np.float32), nan=0, posinf=1, neginf=0)
        array = (255 * np.clip(numbers, 0, 1)).round().astype(np.uint8)
    if array.shape[-1] not in FORMATS:
        array = np.moveaxis(array, -1, -2)  # [..., H, C, W]
        array = array.reshape(*array.shape[:-2], -1, 1)
    return array


def _checked(array: np.ndarray, rank: int) -> np.ndarray:
    if array.dtype != np.uint8 or array.ndim != rank or array.shape[-1] not in FORMATS:
        raise ValueError(
            f"expected uint8 of rank {rank} with 1 or 3 channels, "
            f"got {array.dtype} of shape {array.shape}; see to_pixels"
        )
    if 0 in array.shape:
        raise ValueError(f"nothing to encode in shape {array.shape}")
    return array


def _even(frames: np.ndarray) -> np.ndarray:
    """Height and width with the last row or column repeated; h264 needs even sizes."""
    rows, columns = frames.shape[1] % 2, frames.shape[2] % 2
    return np.pad(frames, ((0, 0), (0, rows), (0, columns), (0, 0)), mode="edge")


def _frame(image: np.ndarray) -> av.VideoFrame:
    name = FORMATS[image.shape[-1]]
    image = image[..., 0] if name == "gray" else image
    return av.VideoFrame.from_ndarray(np.ascontiguousarray(image), name)


def _with_palette(frames: np.ndarray, fps: int) -> Iterator[av.VideoFrame]:
    """Frames with the 256 colours that suit them best."""
    height, width = frames.shape[1:3]
    graph = av.filter.Graph()
    source = graph.add_buffer(
        width=width,
        height=height,
        format=av.VideoFormat("rgb24"),
        time_base=fractions.Fraction(1, fps),
    )
    split, palette = graph.add("split"), graph.add("palettegen", "stats_mode=full")
    use, sink = graph.add("paletteuse", "dither=none"), graph.add("buffersink")
    source.link_to(split)
    split.link_to(palette, 0, 0)
    split.link_to(use, 1, 0)
    palette.link_to(use, 0, 1)
    use.link_to(sink)
    graph.configure()
    for index, image in enumerate(frames):
        frame = _frame(np.repeat(image, 3 // image.shape[-1], -1))
        frame.pts = index
        graph.push(frame)
    graph.push(None)
    for _ in frames:
        yield graph.vpull()
