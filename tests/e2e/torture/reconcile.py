"""What the environments wrote down, compared with what replay and logger have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from embodied.run.parallel.outbox import MAX_PENDING
from tests.e2e import command
from tests.e2e.torture import journaled
from tests.e2e.torture.run import LENGTH, TortureRun

KEYS = ("action", "reward", "is_first", "is_last")  # Of a stored step.
# Steps of an environment that one agent can take along: those on their way to the
# replay, the one it was acting on, and the one that its successor does not know.
LONGEST = MAX_PENDING + 2


class Report(NamedTuple):
    """Figures of a run whose books balance."""

    made: int  # Steps that environments made.
    stored: int
    lost: int  # Steps that died with an agent, or with the environment itself.
    episodes: int


def reconcile(run: TortureRun, deaths: Sequence[float]) -> Report:
    """Raise unless each step is stored once and each finished episode logged once.

    Only the last step of an environment process, and what an agent had not handed to
    the replay when it was killed (`deaths`, in seconds of the clock), may be missing.
    """
    made, stored = journaled.read(run.journal), read_replay(run)
    rows = np.searchsorted(made["serial"], stored["serial"])
    check_stored(made, stored, rows)
    is_stored = np.zeros(len(made), bool)
    is_stored[rows] = True
    check_missing(made, is_stored, deaths)
    scores = episode_scores(stored)
    logged = np.sort(run.scores())
    assert len(logged) == len(scores), "episodes missing or counted twice"
    np.testing.assert_allclose(logged, np.sort(scores), rtol=1e-4, atol=1e-6)
    assert run.step() == len(stored), "wrong step counter"
    return Report(len(made), len(stored), len(made) - len(stored), len(scores))


def read_replay(run: TortureRun) -> np.ndarray:
    """All stored steps by their numbers."""
    replay = command.stored(run.replay_dir, LENGTH)
    chunks = list(replay._index.chunks.values())
    columns = {
        key: np.concatenate([chunk.columns[key][: chunk.count] for chunk in chunks])
        for key in (*KEYS, journaled.SERIAL)
    }
    total = replay.total
    replay.close()
    steps = np.zeros(len(columns["reward"]), journaled.RECORD)
    steps["serial"] = journaled.decode(columns.pop(journaled.SERIAL))
    for key, value in columns.items():
        steps[key] = value
    assert len(steps) == total, "steps are missing or were evicted"
    return np.sort(steps, order="serial")


def check_stored(made: np.ndarray, stored: np.ndarray, rows: np.ndarray) -> None:
    """What is stored is what the environments made, each step once."""
    assert len(np.unique(stored["serial"])) == len(stored), "stored twice"
    assert (made["serial"][rows.clip(max=len(made) - 1)] == stored["serial"]).all(), (
        "stored, but never made"
    )
    for key in ("reward", "is_first", "is_last"):
        assert (made[key][rows] == stored[key]).all(), f"{key} has changed"
    # A step is stored with the action that follows it.
    following = (np.diff(stored["serial"]) == 1) & ~stored["is_first"][1:]
    acted = made["action"][rows[1:]] == stored["action"][:-1]
    assert acted[following].all(), "an action was stored that was not taken"
    assert stored["is_first"][1:][np.diff(stored["serial"]) != 1].all(), "stitched"


def check_missing(
    made: np.ndarray, is_stored: np.ndarray, deaths: Sequence[float]
) -> None:
    """Steps are missing only where an agent or the environment itself died."""
    process = made["serial"] >> 32
    begins = np.flatnonzero(np.diff(process, prepend=-1))
    ends = np.append(begins[1:], len(made))
    for begin, end in zip(begins, ends, strict=True):
        for first, last in gaps(is_stored[begin:end]):
            where = slice(begin + first, begin + last)
            if begin + last == end and last - first == 1:
                continue  # It was on its way when the process ended.
            # The step before was answered by the agent that died, and the one after by
            # its successor.
            since = made["time"][where.start - 1] if first else 0.0
            until = made["time"][where.stop + 1] if where.stop + 1 < end else np.inf
            lost = f"{last - first} steps of {process[begin]:08x} after {since:.3f}"
            assert any(since <= death <= until for death in deaths), lost
            assert last - first <= LONGEST, lost


def gaps(is_stored: np.ndarray) -> list[tuple[int, int]]:
    """Where runs of missing steps begin and end."""
    edges = np.diff(np.concatenate([[0], ~is_stored, [0]]).astype(int))
    begins, ends = np.flatnonzero(edges > 0), np.flatnonzero(edges < 0)
    return list(zip(begins.tolist(), ends.tolist(), strict=True))


def episode_scores(stored: np.ndarray) -> np.ndarray:
    """Scores of all episodes that are stored from their first step to their last."""
    starts = np.flatnonzero(stored["is_first"])
    returns = np.add.reduceat(stored["reward"].astype(np.float64), starts)
    return returns[np.logical_or.reduceat(stored["is_last"], starts)]
