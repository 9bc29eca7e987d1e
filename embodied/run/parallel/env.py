"""The env role: steps environments with the actions it is told."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.batchenv import BatchEnv, make_batch
from embodied.run import role
from embodied.run.parallel import options, placed, wire
from embodied.run.supervisor import Role

ACT_TIMEOUT = 600.0  # Seconds; a learner that compiles keeps everybody waiting.
AWAY = (rpc.ServerRestarted, TimeoutError)  # Nobody knows what the actor has seen.


def parallel_env(
    make_env: bytes | Callable[[int], base.Env],
    envid: int | Sequence[int],
    args: elements.Config,
    is_eval: bool = False,
    keys: rpc.ClientKeys | None = None,
) -> None:
    """Step one or several environments until asked to stop or the run is over.

    Without `keys` to connect with, those in the log directory are taken, if any.
    """
    args = options.complete(args)
    envids = [envid] if isinstance(envid, int) else list(envid)
    make = wire.factory(make_env)
    worker = EnvWorker(make_batch(make, envids), envids, is_eval)
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        stack.enter_context(contextlib.suppress(role.StoppedError))  # While it waits.
        name = f"env{envids[0]}"
        keys = keys or wire.client_keys(args)
        client = wire.reach(args.actor_addr, keys, name, on_restart="fail")
        stack.callback(client.close)
        run(worker, client)


def run(worker: EnvWorker, client: rpc.Client) -> None:
    """Exchange observations for actions, until the run is over."""
    try:
        worker.begin(enroll(client))
        action = worker.reset_action()
        while not role.stopping():
            rows = worker.step(action)
            future = client.call("act", (rows,), timeout=ACT_TIMEOUT)
            try:
                action = role.await_result(future)
            except AWAY:
                # The next actor does not know these episodes: abandon them.
                action = worker.reset_action()
    except rpc.RemoteError as error:
        if not wire.is_over(error):
            raise


def enroll(client: rpc.Client) -> int:
    """The number of this life, asked for until there is an actor that answers."""
    while True:
        try:
            return role.await_result(client.call("enroll", timeout=ACT_TIMEOUT))
        except AWAY:
            continue


class EnvWorker:
    """Several environments of one process, stepped together."""

    def __init__(self, envs: BatchEnv, envids: Sequence[int], is_eval: bool):
        assert len(envs) == len(envids), (len(envs), envids)
        self._envs = envs
        size = len(self._envs)
        self._seq = 0
        self._routing = {
            wire.ENVID: np.asarray(envids, np.int32),
            wire.IS_EVAL: np.full(size, is_eval),
        }

    def move(self, envids: Sequence[int]) -> None:
        """Call the environments by other numbers from here on."""
        assert len(envids) == len(self._envs), (len(self._envs), envids)
        self._routing[wire.ENVID] = np.asarray(envids, np.int32)

    def begin(self, life: int) -> None:
        """Number steps from here on as those of a life of this process.

        Numbers of an earlier life are smaller, so that its steps are never mistaken
        for these.
        """
        self._seq = life << wire.LIFE_BITS

    def reset_action(self) -> base.Batch:
        """The action that starts a new episode everywhere.

        It leaves out a sequence number, which tells the replay that steps are missing.
        """
        self._seq += 1
        size = len(self._envs)
        action = {
            key: np.zeros((size, *space.shape), space.dtype)
            for key, space in self._envs.act_space.items()
        }
        return {**action, base.RESET: np.ones(size, bool)}

    def step(self, action: base.Batch) -> base.Batch:
        """Observations [N, ...] with their routing, after one step of each."""
        start = time.monotonic()
        obs = self._envs.step(action)
        size = len(self._envs)
        duration = (time.monotonic() - start) / size
        self._seq += 1
        counts = {
            wire.SEQ: np.full(size, self._seq, np.int64),
            wire.ENV_TIME: np.full(size, duration, np.float32),
        }
        return {**obs, **self._routing, **counts}

    def close(self) -> None:
        self._envs.close()


def parallel_envs(
    make_env_train: bytes | Callable[[int], base.Env],
    make_env_eval: bytes | Callable[[int], base.Env],
    args: elements.Config,
) -> None:
    """Run all environments of the run on this machine, supervised."""
    args = options.complete(args)
    placed.supervise(env_roles(make_env_train, make_env_eval, args))


def env_roles(
    make_env_train: Any,
    make_env_eval: Any,
    args: elements.Config,
    keys: rpc.ClientKeys | None = None,
) -> list[Role]:
    """One role per env process; evaluation ids follow the training ones."""
    train = range(args.envs)
    evaluation = range(args.envs, args.envs + args.eval_envs)
    roles = []
    for make, ids, is_eval in (
        (make_env_train, train, False),
        (make_env_eval, evaluation, True),
    ):
        for start in range(ids.start, ids.stop, args.envs_per_process):
            group = tuple(ids[start - ids.start :][: args.envs_per_process])
            name = f"{'eval' if is_eval else 'env'}{group[0]}"
            target = (make, group, args, is_eval, keys)
            roles.append(
                Role(
                    name,
                    parallel_env,
                    target,
                    budget=args.budget,
                    hang=args.env_timeout,
                )
            )
    return roles
