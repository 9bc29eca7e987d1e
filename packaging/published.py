"""Makes dreamerv3/viewing/published_curves from collected scores.

    python packaging/published.py DIRECTORY    # With dmc_proprio.json and so on.

Each output has bins of equal width, labelled by their right edge, in the unit of the
source (simulator steps or frames, after action repeat), and what is known of the
protocol. README.md of the source directory says where the numbers come from.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

TARGET = (
    pathlib.Path(__file__).parents[1] / "dreamerv3" / "viewing" / "published_curves"
)
Rows = list[list[float | None]]
PROPRIO = {"env.dmc.proprio": True, "env.dmc.image": False}
VISION = {"env.dmc.proprio": False, "env.dmc.image": True}
OLD = "agent of January 2023 (two-hot targets in symlog space)"


def main(source: pathlib.Path) -> None:
    """Write one file a set of curves."""
    read = {path.stem: json.loads(path.read_text()) for path in source.glob("*.json")}
    for name, content in (
        ("dmc_proprio_2023", proprio(read["dmc_proprio"])),
        ("dmc_proprio_tdmpc2", tdmpc2(read["tdmpc2_repo_state"])),
        ("dmc_vision_nature", vision(read["dmc_vision"])),
        ("atari100k_nature", atari(read["atari100k"])),
        ("atari100k_2023", rerun(read["atari100k_harmony_repo"])),
    ):
        path = TARGET / f"{name}.json"
        path.write_text(json.dumps(content, separators=(",", ":")) + "\n")
        print(f"{path}: {len(content['tasks'])} tasks, {path.stat().st_size:,} bytes")


def proprio(data: dict[str, Any]) -> dict[str, Any]:
    """State DMC: one or two training episodes a bin and seed."""
    return {
        "title": "DreamerV3 2023",
        "source": data["source"],
        "unit": "simulator steps",
        "bin": 10_000,
        "match": PROPRIO,
        "protocol": {"repeat": 2, "envs": 4, "train_ratio": 512},
        "agent": OLD,
        "model": "published deter 512, units 512, 2 layers (2023 size small)",
        "scores": "training episodes",
        "tasks": {name: rounded(each["seeds"]) for name, each in data["tasks"].items()},
    }


def vision(data: dict[str, Any]) -> dict[str, Any]:
    """DMC from images, two bins of the source in one."""
    return {
        "title": "DreamerV3 Nature",
        "source": data["source"],
        "unit": "simulator steps",
        "bin": 20_000,
        "match": VISION,
        "protocol": {"repeat": 2, "envs": 8},
        "agent": "agent of the Nature paper, as its score files say",
        "model": "not in the score file",
        "scores": "training episodes",
        "tasks": {
            name: rounded([pairs(row) for row in each["seeds"]])
            for name, each in data["tasks"].items()
        },
    }


def atari(data: dict[str, Any]) -> dict[str, Any]:
    """Atari 100k: the source has every training episode."""
    return {
        "title": "DreamerV3 Nature",
        "source": data["source"],
        "unit": "frames",
        "bin": 20_000,
        "match": {},
        "protocol": {"repeat": 4},
        "agent": "agent of the Nature paper, as its score files say",
        "model": "not in the score file",
        "scores": "training episodes",
        "tasks": {
            name.replace("atari_", "atari100k_"): rounded(
                [binned(seed["xs"], seed["ys"], 20_000, 20) for seed in each["seeds"]]
            )
            for name, each in data["tasks"].items()
        },
    }


def rerun(data: dict[str, Any]) -> dict[str, Any]:
    """Atari 100k with the 2023 agent, as others ran it."""
    return {
        "title": "DreamerV3 2023, rerun by others",
        "source": data["source"],
        "unit": "frames",
        "bin": 20_000,
        "match": {},
        "protocol": {"repeat": 4},
        "agent": f"{OLD}, whose discrete policy mixes in 1 % of the uniform one",
        "model": "not in the score file",
        "scores": "as in the score file, which does not say how they were evaluated",
        "tasks": {f"atari100k_{k}": rounded(v) for k, v in data["dreamerv3"].items()},
    }


def tdmpc2(data: dict[str, Any]) -> dict[str, Any]:
    """State DMC as the authors of TD-MPC2 ran DreamerV3."""
    tasks = {}
    for name, each in data["methods"]["dreamerv3"].items():
        if "myo" in name:
            continue
        points = [each.get(str(100_000 * i), []) for i in range(1, 11)]
        seeds = max(map(len, points))
        rows = [[dict(enumerate(p)).get(i) for p in points] for i in range(seeds)]
        name = "ball-in-cup-catch" if name == "cup-catch" else name
        tasks[f"dmc_{name.replace('-', '_')}"] = rounded(rows)
    return {
        "title": "DreamerV3, run by the authors of TD-MPC2",
        "source": data["source"],
        "unit": "simulator steps",
        "bin": 100_000,
        "match": PROPRIO,
        "protocol": {"repeat": 2},
        "agent": "DreamerV3 as the authors of TD-MPC2 ran it",
        "model": "not in the score file",
        "scores": "evaluation episodes",
        "tasks": tasks,
    }


def binned(
    xs: Sequence[float], ys: Sequence[float], width: int, amount: int
) -> list[float | None]:
    """Mean of what lies in each bin (right edge included); none where nothing does."""
    found: list[list[float]] = [[] for _ in range(amount)]
    for x, y in zip(xs, ys, strict=True):
        place = max(0, -int(-x // width) - 1)
        if place < amount:
            found[place].append(y)
    return [sum(each) / len(each) if each else None for each in found]


def pairs(row: Sequence[float | None]) -> list[float | None]:
    """The mean of each two neighbours."""
    result: list[float | None] = []
    for index in range(0, len(row), 2):
        both = [value for value in row[index : index + 2] if value is not None]
        result.append(sum(both) / len(both) if both else None)
    return result


def rounded(rows: Rows) -> Rows:
    """Four digits are more than the seeds agree on."""
    return [[None if v is None else float(f"{v:.4g}") for v in row] for row in rows]


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
