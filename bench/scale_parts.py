"""The processes of `bench/scale.py`: real roles, simulated environments."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial as bind
from typing import Any, NamedTuple

import elements
import numpy as np

from embodied import replay, rpc, streams
from embodied.core import base, machine
from embodied.core.batchenv import BatchEnv
from embodied.metrics import JSONLOutput
from embodied.process.context import Context
from embodied.run.parallel import actor, launch, logger
from embodied.run.parallel import replay as replay_role
from embodied.run.parallel.env import EnvWorker
from embodied.run.settings import RunSettings
from embodied.testing import NumpyAgent

LENGTH = 64  # Steps of a sequence.
CHUNK = 256  # Steps of a file.
EPISODE = 50  # Steps.
WARM_UP = 3  # Steps of each environment before anything is measured.
TIMEOUT = 120.0  # Seconds of a call, on a busy machine.
ROLES = ("actor", "replay", "logger")  # Senders before receivers.
OBS: base.Spaces = {
    "vector": elements.Space(np.float32, (16,)),
    "log/speed": elements.Space(np.float32),
    **base.special_spaces(),
}
ACT: base.Spaces = {
    "action": elements.Space(np.int32, (), 0, 5),
    base.RESET: elements.Space(bool),
}


class Load(NamedTuple):
    """What the roles have to cope with."""

    envs: int
    rows: int  # Environments of an env process.
    batch: int  # Rows of a policy call.
    policy: float  # Seconds of a policy call.


class FakeEnvs(BatchEnv):
    """Environments that cost nothing; their episodes end at different times."""

    obs_space, act_space = OBS, ACT

    def __init__(self, envids: Sequence[int]):
        self._steps = np.asarray(envids) % EPISODE
        self._vector = np.zeros((len(envids), 16), np.float32)
        self._ones = np.ones(len(envids), np.float32)

    def __len__(self) -> int:
        return len(self._steps)

    def step(self, action: base.Batch) -> base.Batch:
        first = np.asarray(action[base.RESET])
        self._steps = np.where(first, 0, self._steps + 1)
        last = self._steps >= EPISODE
        flags = {base.IS_FIRST: first, base.IS_LAST: last, base.IS_TERMINAL: last}
        values = {"vector": self._vector, "log/speed": self._ones}
        return {**values, base.REWARD: self._ones, **flags}


class FakeAgent(NumpyAgent):
    """Takes a given time for a batch, and keeps no state on the host, as ours does."""

    def __init__(self, seconds: float):
        super().__init__(OBS, ACT)
        self._seconds = seconds

    def slots(self) -> FakePolicy:
        return FakePolicy(self, self._seconds)


class FakePolicy:
    """Knows the environments, and acts for all of them alike."""

    def __init__(self, agent: NumpyAgent, seconds: float):
        self._agent = agent
        self._seconds = seconds
        self._names: set[int] = set()
        self._pause = threading.Event()

    def __len__(self) -> int:
        return len(self._names)

    def act(
        self, names: Sequence[int], obs: base.Batch, mode: base.Mode
    ) -> tuple[base.Batch, base.Batch]:
        self._names.update(names)
        self._pause.wait(self._seconds)
        carry = self._agent.init_policy(len(names))
        _, actions, outs = self._agent.policy(carry, obs, mode)
        return actions, outs

    def free(self, names: Sequence[int]) -> None:
        self._names.difference_update(names)


def make_settings(logdir: str, load: Load) -> RunSettings:
    """Settings of the run, whose limiter lets every step in."""
    values = {"logdir": logdir, "envs": load.envs, "eval_envs": 0, "train_ratio": 0.0}
    values |= {"envs_per_process": load.rows, "actor_batch": load.batch}
    values |= {"log_every": 2.0, "batch_length": LENGTH, "replay_context": 0}
    return launch.resolve(RunSettings.of(values))


def make_replay(logdir: str, name: str) -> replay.Replay:
    return replay.Replay(LENGTH, 10**6, f"{logdir}/{name}", chunksize=CHUNK)


def make_stream(source: Any, mode: str) -> Any:
    return streams.Stateless(source.sample, 16, mode)


def make_logger(logdir: str) -> elements.Logger:
    return elements.Logger(elements.Counter(), [JSONLOutput(logdir)])


def run_role(name: str, settings: RunSettings, load: Load, pipe: Any) -> None:
    """Run a role until something comes through the pipe."""
    ctx, logdir = Context(), settings.logdir
    agent, alone = FakeAgent(load.policy), threading.Barrier(1)
    replays = [bind(make_replay, logdir, name) for name in ("replay", "replay_eval")]
    targets: dict[str, Callable[..., None]] = {
        "actor": bind(actor.parallel_actor, agent, alone),
        "replay": bind(replay_role.parallel_replay, *replays, make_stream),
        "logger": bind(logger.parallel_logger, bind(make_logger, logdir)),
    }
    threading.Thread(target=stop_later, args=(ctx, pipe), daemon=True).start()
    targets[name](settings, ctx)


def stop_later(ctx: Context, pipe: Any) -> None:
    pipe.poll(None)
    ctx.request_stop()


class EnvProcess:
    """What an env process is to the actor: a connection with a few environments.

    At random it begins a new sequence, as an environment that restarts does. So the
    replay begins a file for a constant share of the steps, whatever their number.
    """

    def __init__(self, address: str, envids: Sequence[int]):
        self._worker = EnvWorker(FakeEnvs(envids), envids, False)
        self._worker.begin(time.time_ns())
        self._client = rpc.Client(address, f"env{envids[0]}", timeout=TIMEOUT)
        self._action = self._worker.reset_action()
        self._random = random.Random(envids[0])
        self._began = 0.0

    def begin(self) -> None:
        """Step the environments and ask for the next actions."""
        if self._random.random() < 1 / CHUNK:
            self._action = self._worker.reset_action()
        rows = self._worker.step(self._action)
        self._began = time.perf_counter()
        self._future = self._client.call_rows("act", rows)

    def end(self) -> float:
        """Wait for the actions; seconds since the call."""
        self._action = self._future.result()
        return time.perf_counter() - self._began


def run_envs(address: str, groups: Sequence[range], seconds: float, pipe: Any) -> None:
    """Simulate env processes, which take turns, for some seconds after a signal."""
    machine.raise_file_limit()  # Each client has some of its own.
    processes = [EnvProcess(address, group) for group in groups]
    for _ in range(WARM_UP):
        take_turns(processes, 0.0)
    pipe.send("ready")
    pipe.recv()
    pipe.send(take_turns(processes, seconds))
    pipe.recv()  # Connected, until the roles have been measured.


def take_turns(processes: Sequence[EnvProcess], seconds: float) -> np.ndarray:
    """Latencies of all calls; each process makes at least one.

    All calls are under way at once. The actor answers them in order, so that waiting
    for them in order is hardly longer than waiting for each.
    """
    times = []
    stop = time.perf_counter() + seconds
    for each in processes:
        each.begin()
    while time.perf_counter() < stop:
        for each in processes:
            times.append(each.end())
            each.begin()
    return np.array(times + [each.end() for each in processes])
