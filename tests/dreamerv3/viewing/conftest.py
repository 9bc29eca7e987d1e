"""Log directories as runs write them."""

import json

import numpy as np
import pytest

from embodied.metrics import video


class FakeRun:
    """Writes the files of a run."""

    def __init__(self, path, task="bounce_32", method="dreamerv3", seed=0, **config):
        self.path = path
        path.mkdir(parents=True)
        lines = {"script": "parallel", "task": task, "seed": seed, "method": method}
        lines |= config
        text = "".join(f"{key}: {value}\n" for key, value in lines.items())
        (path / "config.yaml").write_text(text)

    def add(self, step, time=None, **metrics):
        """Append a row; `__` in names stands for `/`."""
        row = {"step": step} | ({} if time is None else {"time": time})
        row |= {key.replace("__", "/"): value for key, value in metrics.items()}
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        if "episode/score" in row:
            kept = {
                k: v for k, v in row.items() if k in ("step", "time", "episode/score")
            }
            with (self.path / "scores.jsonl").open("a") as file:
                file.write(json.dumps(kept) + "\n")

    def add_episodes(self, amount=50, start=1.7e9, offset=0.0):
        for index in range(amount):
            score = offset + index / 10
            step = 100 * (index + 1)
            self.add(step, start + index, episode__score=score, episode__length=100)
            self.add(step, start + index, train__loss__total=100 / (index + 1))

    def add_video(self, key, step, seed=0, frames=30):
        random = np.random.default_rng(seed)
        images = random.integers(0, 255, (frames, 32, 48, 3), np.uint8)
        self.add_file(key, f"{step:012d}.mp4", video.encode_mp4(images, 15))

    def add_file(self, key, name, content):
        folder = self.path / "media" / key
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    def add_roles(self, **roles):
        """Name to pid and restarts."""
        data = {name: {"pid": p, "restarts": r} for name, (p, r) in roles.items()}
        (self.path / "roles.json").write_text(json.dumps(data))


@pytest.fixture
def make_run(tmp_path):
    def make(name="run", **options):
        return FakeRun(tmp_path / "logdir" / name, **options)

    return make
