"""A picture of what an agent sees: images as a strip, everything else as traces."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from embodied.core import base, wrappers
from embodied.testing.walk import Walk

STEPS = 100  # Of random actions.
FRAMES = 8  # Images shown of them.
TRACES = 16  # Elements shown of a vector.


def draw(env: base.Env, path: pathlib.Path, steps: int = STEPS) -> None:
    """Step the environment and write the picture as a PNG file."""
    walk = Walk(env)
    record = [walk.step() for _ in range(steps)]
    hidden = {base.IS_FIRST, base.IS_LAST, base.IS_TERMINAL}
    spaces = {k: v for k, v in env.obs_space.items() if k not in hidden}
    images = [k for k, v in spaces.items() if wrappers.is_image(v)]
    others = [k for k in spaces if k not in images]
    import matplotlib.figure  # Only here: it takes long to import.

    heights = [1.6] * len(images) + [1.2] * len(others)
    figure = matplotlib.figure.Figure((11, sum(heights) + 0.6), layout="constrained")
    rows = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    for axes, key in zip(rows, [*images, *others], strict=True):
        values = np.stack([np.asarray(step[key]) for step in record])
        if key in images:
            _strip(axes, key, values)
        else:
            _traces(axes, key, values, record)
    rows[-1].set_xlabel("step, with a line at each first step of an episode")
    figure.savefig(path, dpi=100)


def _strip(axes: Any, key: str, values: np.ndarray) -> None:
    """Some of the images side by side, pixels as they are."""
    chosen = np.linspace(0, len(values) - 1, FRAMES).round().astype(int)
    frames = values[chosen][..., :3]  # Stacks of frames show their first.
    if frames.shape[-1] != 3:
        frames = frames[..., :1].repeat(3, -1)
    gap = np.full((*frames.shape[:2], max(1, frames.shape[2] // 16), 3), 255, np.uint8)
    strip = np.concatenate([frames, gap], 2)
    axes.imshow(np.concatenate(list(strip), 1), interpolation="nearest")
    shape = "x".join(map(str, values.shape[1:]))
    axes.set_title(f"{key}, {shape}, steps {', '.join(map(str, chosen))}", loc="left")
    axes.axis("off")


def _traces(axes: Any, key: str, values: np.ndarray, record: list) -> None:
    """Each element over time."""
    flat = values.reshape(len(values), -1)
    axes.plot(flat[:, :TRACES], linewidth=1, drawstyle="steps-post")
    for index, step in enumerate(record):
        if step[base.IS_FIRST]:
            axes.axvline(index, color="lightgray", linewidth=1, zorder=0)
    shape = "x".join(map(str, values.shape[1:])) or "scalar"
    cut = f", first {TRACES} of {flat.shape[1]}" if flat.shape[1] > TRACES else ""
    axes.set_title(f"{key}, {shape}{cut}", loc="left")
    axes.set_xlim(0, len(values) - 1)
