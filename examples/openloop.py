"""Write a picture of what a trained agent predicts: python examples/openloop.py LOGDIR.

Each column is a moment. The upper row of a sequence is the truth, the middle one the
prediction (green border while the agent observes, red while it imagines) and the lower
one the error.
"""

import argparse
import pathlib

import numpy as np
from PIL import Image

from dreamerv3 import main
from dreamerv3.model.report import PAUSE
from dreamerv3.settings import config as settings
from dreamerv3.settings import logdir
from embodied.core.checkpoint import complete
from embodied.run import restore


def report(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """The agent's report on a batch of its own replay."""
    config = settings.to_config(logdir.load(directory))
    agent = main.make_agent(config)
    agent.load(restore.read_agent(agent, restore.find_agent(directory)))
    replay = main.make_replay(config, "replay")
    stream = agent.stream(main.make_stream(config, replay, "report"))
    _, metrics = agent.report(agent.init_report(config.batch_size), next(stream))
    replay.close()
    return metrics


def picture(video: np.ndarray, columns: int, scale: int) -> Image.Image:
    """Evenly spaced frames of the first sequence side by side, enlarged."""
    frames = video[: len(video) - PAUSE]  # Without the pause at the end.
    width = video.shape[1] // 3  # Three rows of square images.
    chosen = np.linspace(0, len(frames) - 1, columns).astype(int)
    strip = np.concatenate([frames[i][:, :width] for i in chosen], 1)
    return Image.fromarray(strip.repeat(scale, 0).repeat(scale, 1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logdir", type=pathlib.Path)
    parser.add_argument("--output", type=pathlib.Path, default="openloop.png")
    parser.add_argument("--columns", type=int, default=14)
    parser.add_argument("--scale", type=int, default=2)
    args = parser.parse_args()
    if not complete(restore.find_agent(args.logdir)):
        parser.error(f"{args.logdir} holds no checkpoint")
    videos = {k: v for k, v in report(args.logdir).items() if k.startswith("openloop/")}
    if not videos:
        parser.error(f"the task of {args.logdir} has no images")
    for key, value in videos.items():
        picture(value, args.columns, args.scale).save(args.output)
        print(f"{key} -> {args.output}")
