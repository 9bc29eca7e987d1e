"""Names of the roles of a run."""

from __future__ import annotations

AGENT = "agent"  # Actor and learner; leads the hosts that learn.
ENV = "env"
LEARNER = "learner"  # Further hosts of the learner.
REPLAY = "replay"
LOGGER = "logger"
