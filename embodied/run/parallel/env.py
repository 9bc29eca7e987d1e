"""The env role: steps environments with the actions it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.batchenv import BatchEnv, make_batch
from embodied.run import role
from embodied.run.parallel import wire
from embodied.run.supervisor import Role, Supervisor

ACT_TIMEOUT = 600.0  # Seconds; a learner that compiles keeps everybody waiting.


def parallel_env(
    make_env: bytes | Callable[[int], base.Env],
    envid: int | Sequence[int],
    args: elements.Config,
    is_eval: bool = False,
) -> None:
    """Step one or several environments until asked to stop."""
    envids = [envid] if isinstance(envid, int) else list(envid)
    make = wire.factory(make_env)
    worker = EnvWorker(make_batch(make, envids), envids, is_eval)
    name = f"env{envids[0]}"
    client = wire.connect(args.actor_addr, name, args, on_restart="fail")
    try:
        run(worker, client)
    except role.StoppedError:
        pass  # While waiting for an action.
    finally:
        worker.close()
        client.close()


def run(worker: EnvWorker, client: rpc.Client) -> None:
    """Exchange observations for actions."""
    action = worker.reset_action()
    while not role.stopping():
        rows = worker.step(action)
        try:
            action = role.await_result(client.call("act", (rows,), timeout=ACT_TIMEOUT))
        except rpc.ServerRestarted:
            # The new actor does not know these episodes: abandon them.
            action = worker.reset_action()


class EnvWorker:
    """Several environments of one process, stepped together."""

    def __init__(self, envs: BatchEnv, envids: Sequence[int], is_eval: bool):
        assert len(envs) == len(envids), (len(envs), envids)
        self._envs = envs
        size = len(self._envs)
        # Numbers of an earlier life of this process are smaller, so that its steps are
        # never mistaken for these.
        self._seq = time.time_ns()
        self._routing = {
            wire.ENVID: np.asarray(envids, np.int32),
            wire.IS_EVAL: np.full(size, is_eval),
        }

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
    Supervisor(env_roles(make_env_train, make_env_eval, args)).run()


def env_roles(make_env_train: Any, make_env_eval: Any, args: elements.Config) -> list:
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
            target = (make, group, args, is_eval)
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
