"""The contracts every environment, agent, replay and stream is written against.

The loop that calls them, without logging and checkpoints:

    env, agent, replay = make_env(), make_agent(), make_replay()
    action = {k: zeros(v) for k, v in env.act_space.items()} | {'reset': True}
    carry, train_carry = agent.init_policy(1), agent.init_train(batch_size)
    stream = agent.stream(make_stream(replay, 'train'))
    while True:
        obs = env.step(action)
        carry, actions, outs = agent.policy(carry, batch_of_one(obs), 'train')
        action, outs = first_row(actions), first_row(outs)
        replay.add({**obs, **action, **outs}, worker=0)
        action |= {'reset': obs['is_last']}
        train_carry, outs, metrics = agent.train(train_carry, next(stream))
        replay.update(outs['replay'])

A *step* is the observation the environment returned together with the action the
agent chose after seeing it, so `reward` of a step was caused by the action of the
step before.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from elements import Space

Spaces = dict[str, Space]
Array = np.ndarray
Step = Mapping[str, Any]  # One step of one environment: key -> array or scalar.
Batch = dict[str, Any]  # Stacked steps or sequences: key -> [B, ...] or [B, T, ...].
Carry = Any  # Recurrent state of an agent: any pytree.
Metrics = dict[str, Any]
Mode = Literal["train", "report", "eval", "greedy"]  # Greedy: most likely action.

# Keys every observation space holds besides the environment's own.
REWARD, IS_FIRST, IS_LAST, IS_TERMINAL = "reward", "is_first", "is_last", "is_terminal"
# The one key every action space holds besides the environment's own.
RESET = "reset"
# Added by the replay to each stored step: opaque, unique, of fixed shape and dtype.
STEPID = "stepid"
# Prefix of observation keys that are logged but neither learned from nor stored.
LOG_PREFIX = "log/"
# What a parallel run sends along with each observation.
ENVID, IS_EVAL, SEQ, ENV_TIME = "envid", "is_eval", "seq", "env_time"
ROUTING = frozenset({ENVID, IS_EVAL, SEQ, ENV_TIME})
# Keys with a meaning of their own, which an environment must not use for anything else.
RESERVED = {REWARD, IS_FIRST, IS_LAST, IS_TERMINAL, RESET, STEPID, *ROUTING, "consec"}


class SetupError(Exception):
    """A requirement is not met on this machine; the message names the remedy.

    A retry would fail as well, so a role that raises it is not restarted.
    """


def is_logged(key: str) -> bool:
    """Whether a key of an observation is only for the logs."""
    return key.startswith(LOG_PREFIX)


def is_stored(key: str) -> bool:
    """Whether a key of a step is stored, and shown to the agent if it is observed.

    The rest is for the logs, or added by the replay or on the way between processes.
    """
    return key != STEPID and key not in ROUTING and not is_logged(key)


def special_spaces() -> Spaces:
    """The spaces every observation holds besides the environment's own."""
    return {
        REWARD: Space(np.float32),
        IS_FIRST: Space(bool),
        IS_LAST: Space(bool),
        IS_TERMINAL: Space(bool),
    }


def special_values(
    reward: float = 0.0,
    is_first: bool = False,
    is_last: bool = False,
    is_terminal: bool = False,
) -> dict[str, Any]:
    """The values of `special_spaces`."""
    return {
        REWARD: np.float32(reward),
        IS_FIRST: np.bool_(is_first),
        IS_LAST: np.bool_(is_last),
        IS_TERMINAL: np.bool_(is_terminal),
    }


class Env(abc.ABC):
    """One environment.

    `step` with `reset=True` starts a new episode and ignores the other action keys;
    its observation has `is_first=True` and reward 0. The last observation of an
    episode has `is_last=True`, and `is_terminal=True` only if the episode truly ended
    (no bootstrapping) rather than being cut by a time limit. Observation keys that
    start with `log/` are logged but neither learned from nor stored.
    """

    @property
    @abc.abstractmethod
    def obs_space(self) -> Spaces:
        """Spaces by key, including reward, is_first, is_last and is_terminal."""

    @property
    @abc.abstractmethod
    def act_space(self) -> Spaces:
        """Spaces by key, including the boolean `reset`."""

    @abc.abstractmethod
    def step(self, action: Mapping[str, Any]) -> dict[str, Any]:
        """Apply an action (or reset) and return the next observation."""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks for users on how observations and actions were converted."""
        return ()

    def render(self) -> Array | None:
        """A uint8 image [H, W, 3] of the current state for people, if there is one."""
        return None

    def close(self) -> None:
        """Release what the environment holds. Safe to call more than once."""


class Agent(abc.ABC):
    """Chooses actions and learns from sequences.

    Leaves of all observations, actions and outputs have a leading batch dimension.
    A carry is any pytree whose leaves have that dimension too.
    """

    # What the agent was made for, as the environment gave it; `log/` keys may be left
    # out, since the agent never gets them.
    obs_space: Spaces
    act_space: Spaces
    learns: bool = True  # Whether `train` changes anything.

    @property
    def ext_space(self) -> Spaces:
        """Extra keys each stored step holds beyond observation and action.

        For example the latents of the policy. `policy` returns them in its outputs
        and `train` may return refreshed ones under `outs['replay']`.
        """
        return {}

    @abc.abstractmethod
    def init_policy(self, batch_size: int) -> Carry:
        """The policy's recurrent state at the start of an episode."""

    @abc.abstractmethod
    def init_train(self, batch_size: int) -> Carry:
        """The training carry before the first batch."""

    @abc.abstractmethod
    def init_report(self, batch_size: int) -> Carry:
        """The report carry before the first batch."""

    @abc.abstractmethod
    def policy(
        self, carry: Carry, obs: Batch, mode: Mode = "train"
    ) -> tuple[Carry, Batch, Batch]:
        """Choose actions for a batch of observations.

        Returns the next carry, the actions (without `reset`) and further outputs:
        the keys of `ext_space`, and `log/` keys for the logger.
        """

    @abc.abstractmethod
    def train(self, carry: Carry, data: Batch) -> tuple[Carry, Batch, Metrics]:
        """Learn from a batch of sequences [B, T, ...].

        Returns the next carry, outputs and metrics. `outs['replay']`, if present, is
        handed to `Replay.update`: `stepid` and the values to write back.
        """

    @abc.abstractmethod
    def report(self, carry: Carry, data: Batch) -> tuple[Carry, Metrics]:
        """Metrics and videos on a batch of sequences, without learning from it."""

    def stream(self, source: Iterator[Batch]) -> Iterator[Batch]:
        """Wrap the batches on their way to the agent, for example with a prefetch."""
        return source

    @abc.abstractmethod
    def save(self) -> Any:
        """The state as a tree of arrays and plain values."""

    @abc.abstractmethod
    def load(self, data: Any, regex: str | None = None) -> None:
        """Restore what `save` returned; with `regex` only matching parameter paths."""


class Replay(abc.ABC):
    """A store of steps that serves sequences of consecutive steps of one worker."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Number of sequences that can be sampled."""

    @property
    @abc.abstractmethod
    def total(self) -> int:
        """Number of steps ever added, including evicted ones."""

    @abc.abstractmethod
    def add(self, step: Step, worker: int = 0, seq: int | None = None) -> bool:
        """Append a step to the stream of a worker; once it returns, it is safe.

        `seq` numbers the steps of a worker. A number not above the last one marks a
        duplicate, which is ignored; a gap starts a new segment.
        Returns whether the step was new.
        """

    def add_batch(
        self,
        steps: Batch,
        workers: Sequence[int],
        seqs: Sequence[int | None] | None = None,
    ) -> int:
        """Append one step per worker; leaves of `steps` are [len(workers), ...].

        Steps of a worker that occurs several times are appended in order; a step
        whose number is None has none. Returns how many of them were new.
        """
        added = 0
        for index, worker in enumerate(workers):
            step = {key: value[index] for key, value in steps.items()}
            new = self.add(step, worker, None if seqs is None else seqs[index])
            added += new is not False  # Without a return value every step counts.
        return added

    @abc.abstractmethod
    def sample(self, batch: int, mode: Mode = "train") -> Batch:
        """Sequences [batch, length, ...] with `stepid`; waits until there are any."""

    def update(self, data: Batch) -> None:
        """Write values back into stored steps by `stepid`; evicted steps are skipped.

        The default keeps nothing, which is right for agents without latents.
        """
        del data

    def stats(self) -> Metrics:
        """Metrics since the last call."""
        return {}

    @abc.abstractmethod
    def save(self) -> Any:
        """The state that `load` restores, as a tree of arrays and plain values."""

    @abc.abstractmethod
    def load(self, data: Any) -> None:
        """Restore what `save` returned."""

    def close(self) -> None:
        """Release what the replay holds. Safe to call more than once."""


class Stream(abc.ABC, Iterator[Any]):
    """An endless iterator whose position can be saved."""

    def __iter__(self) -> Stream:
        return self

    @abc.abstractmethod
    def __next__(self) -> Any:
        """The next element."""

    @abc.abstractmethod
    def save(self) -> Any:
        """The position as a tree of arrays and plain values."""

    @abc.abstractmethod
    def load(self, data: Any) -> None:
        """Resume from a saved position."""
