"""Weights & Biases, through its package."""

from __future__ import annotations

import io
import os
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import wandb

from embodied.core import files
from embodied.metrics import video
from embodied.metrics.summary import Summary, group, kind, read_id

FILE = "wandb_id.txt"  # Holds the id of the run, to resume it.
DIGITS = 12  # Of the id.


class WandbOutput:
    """Logs all kinds of metrics over `step`; a log directory is always one run."""

    def __init__(
        self,
        logdir: str | os.PathLike,
        fps: int,
        config: Mapping[str, Any],
        project: str,
        entity: str = "",
        mode: str = "",
    ):
        directory = pathlib.Path(logdir).absolute()
        self._fps = fps
        options: dict[str, Any] = {"mode": mode} if mode else {}
        self._run = wandb.init(
            dir=directory,
            project=project,
            entity=entity or None,
            id=kept_id(directory / FILE),
            name=directory.name,
            resume="allow",
            config=dict(config),
            settings=wandb.Settings(console="off", x_disable_stats=True),
            **options,
        )
        # Not the package's own step, which must not decrease when a run resumes.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def __call__(self, summaries: Sequence[Summary]) -> None:
        for step, metrics in group(summaries):
            values = {k: _convert(k, v, self._fps) for k, v in metrics.items()}
            self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


def kept_id(path: pathlib.Path) -> str:
    """The id stored in a file, created on first use or if the file is damaged."""
    if found := read_id(path, DIGITS):
        return found
    new = uuid.uuid4().hex[:DIGITS]
    files.write_text(path, new, durable=True)
    return new


def _convert(name: str, value: Any, fps: int) -> Any:
    match kind(name, value):
        case "scalar":
            return np.asarray(value).item()
        case "histogram":
            values = np.asarray(value, np.float64)
            return wandb.Histogram(values[np.isfinite(values)].tolist())
        case "image":
            pixels = video.to_pixels(value)
            return wandb.Image(pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
        case "video":
            content = video.encode_mp4(video.to_pixels(value), fps)
            return wandb.Video(io.BytesIO(content), format="mp4")
    return value
