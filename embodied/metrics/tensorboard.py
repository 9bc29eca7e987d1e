"""TensorBoard event files, without TensorFlow."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from tensorboardX import summary as tbx
from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary as Proto

from embodied.metrics import video
from embodied.metrics.summary import Summary, kind

BINS = 64  # Of histograms.


class TensorBoardOutput:
    """Writes all kinds of metrics; videos are animated images.

    Each start opens a new file. Its first event tells TensorBoard to forget what older
    files say on later steps, since a run resumed from a checkpoint repeats them.
    """

    def __init__(self, logdir: str | os.PathLike, fps: int, config: Mapping[str, Any]):
        pathlib.Path(logdir).mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(pathlib.Path(logdir) / "events"))
        self._fps = fps
        self._config = dict(config)
        self._started = False

    def __call__(self, summaries: Sequence[Summary]) -> None:
        if not self._started and summaries:
            self._start(min(step for step, _, _ in summaries))
        for step, name, value in summaries:
            proto = _proto(name, value, self._fps)
            self._write(Event(summary=proto), step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _start(self, step: int) -> None:
        self._write(Event(session_log=SessionLog(status=SessionLog.START)), step)
        rows = "".join(f"| {k} | {v} |\n" for k, v in sorted(self._config.items()))
        text = tbx.text("config", f"| key | value |\n|---|---|\n{rows}")
        self._write(Event(summary=text), step)
        self._started = True

    def _write(self, event: Event, step: int) -> None:
        event.step, event.wall_time = step, time.time()
        self._writer.write_event(event)


def _proto(name: str, value: Any, fps: int) -> Proto:
    match kind(name, value):
        case "scalar":
            number = np.asarray(value).item()
            return Proto(value=[Proto.Value(tag=name, simple_value=number)])
        case "histogram":
            values = np.asarray(value, np.float64)
            values = values[np.isfinite(values)]
            return tbx.histogram(name, values if values.size else np.zeros(1), BINS)
        case "text":
            return tbx.text(name, value)
        case "image":
            pixels = video.to_pixels(value)
            return _image(name, video.encode_png(pixels), pixels.shape)
        case "video":
            pixels = video.to_pixels(value)
            return _image(name, video.encode_gif(pixels, fps), pixels.shape[1:])
    raise AssertionError(name)


def _image(name: str, content: bytes, shape: Sequence[int]) -> Proto:
    height, width, channels = shape
    image = Proto.Image(
        height=height,
        width=width,
        colorspace=channels,
        encoded_image_string=content,
    )
    return Proto(value=[Proto.Value(tag=name, image=image)])
