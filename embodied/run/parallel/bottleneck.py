"""Finds the bottleneck of a run from the shares of time that the roles report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Metrics, shares of the time since the role's last report.
ENV_BUSY = "parallel/env_busy"  # Environments step.
ENV_WAIT = "parallel/env_wait"  # They wait for actions.
ACTOR_BUSY = "parallel/actor_busy"  # The policy runs.
ACTOR_WAIT = "parallel/actor_wait"  # The actor waits for the replay to take steps.
LEARNER_WAIT = "parallel/learner_wait"  # The learner waits for a batch.
INSERT_WAIT = "parallel/insert_wait"  # The limiter holds new steps back.
SAMPLE_WAIT = "parallel/sample_wait"  # The limiter holds batches back.
SHARES = (
    ENV_BUSY,
    ENV_WAIT,
    ACTOR_BUSY,
    ACTOR_WAIT,
    LEARNER_WAIT,
    INSERT_WAIT,
    SAMPLE_WAIT,
)

TRAINED = "fps/train"  # Before the first update the learner only compiles.
SLACK = 0.25  # Smallest share of time that counts as waiting.
NEWS = 0.2  # Smallest change of a share that is reported again.


class Bottleneck:
    """Tracks the newest share of each role and names the bottleneck."""

    def __init__(self) -> None:
        self._shares: dict[str, float] = {}
        self._said: tuple[str, dict[str, float]] = ("", {})  # The role and why.
        self._trains = False

    def see(self, metrics: Mapping[str, Any]) -> None:
        """Take the shares out of a role's report."""
        self._trains = self._trains or bool(metrics.get(TRAINED))
        for key in SHARES:
            if key in metrics:
                self._shares[key] = float(metrics[key])

    def line(self) -> str:
        """One plain line; nothing before the learner trains."""
        return describe(self._shares) if self._trains else ""

    def news(self) -> str:
        """The line if it says another role or clearly other shares than last time."""
        line = self.line()
        role, shares = line.partition(":")[0], dict(self._shares)
        old, before = self._said
        moved = (abs(v - before.get(k, v)) for k, v in shares.items())
        if not line or (role == old and max(moved, default=0) < NEWS):
            return ""
        self._said = role, shares
        return line


def describe(shares: Mapping[str, float]) -> str:
    """The role that the others wait for, and the figures that show it.

    A role that hardly waits is the bottleneck. A learner that waits for batches waits
    for the replay or, if the limiter holds them back, for new steps: then for the actor
    or the environments, if they are busy all the time. If neither is, the train ratio
    keeps the learner idle.
    """
    waits = shares.get(LEARNER_WAIT, 1.0)
    held, kept = shares.get(SAMPLE_WAIT, waits), shares.get(INSERT_WAIT, 0.0)
    actor, env = shares.get(ACTOR_BUSY, 0.0), shares.get(ENV_BUSY, 0.0)
    if waits < SLACK:
        return (
            f"learner: idle {waits:.0%}; the replay limiter throttles the envs "
            f"{kept:.0%} of the time"
        )
    if held < waits / 2:
        return (
            f"replay: the learner waits {waits:.0%} of the time for batches, of which "
            f"the limiter accounts for only {held:.0%}"
        )
    if actor > 1 - SLACK:
        return f"actor: busy {actor:.0%} of the time; all other roles wait for it"
    if env > 1 - SLACK:
        return (
            f"env: environments are busy {env:.0%} of the time and the learner waits "
            f"{waits:.0%} for their steps; more environments would help"
        )
    return (
        f"replay limiter: the learner waits {waits:.0%} of the time for the steps that "
        f"the train ratio asks for, the actor is busy {actor:.0%} and environments "
        f"{env:.0%}; a higher train ratio or more environments would help"
    )
