"""The env role: steps environments with the actions that the actor chooses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.batchenv import BatchEnv, make_batch
from embodied.process.context import Context, StoppedError
from embodied.process.supervisor import Role
from embodied.run.parallel import (
    connections,
    member,
    placed,
    routing,
    run_keys,
)
from embodied.run.parallel.issued import NumberError
from embodied.run.settings import Given, RunSettings

REJOIN_PAUSE = 5.0  # Seconds before joining again right after the last time.
ACT_TIMEOUT = 600.0  # Seconds; long enough for the learner to compile.


def parallel_env(
    make_env: bytes | Callable[[int], base.Env],
    envid: int | Sequence[int],
    args: Given,
    is_eval: bool = False,
    keys: rpc.ClientKeys | None = None,
    ctx: Context | None = None,
) -> None:
    """Step one or several environments until asked to stop or the run has ended.

    `keys` defaults to the keys in the log directory, if it has any.
    """
    args, ctx = RunSettings.of(args), ctx or Context()
    envids = [envid] if isinstance(envid, int) else list(envid)
    make = connections.factory(make_env)
    numbered = args.transport != connections.PORTAL
    worker = EnvWorker(make_batch(make, envids), envids, is_eval, numbered)
    with contextlib.ExitStack() as stack:
        stack.callback(worker.close)
        stack.enter_context(contextlib.suppress(StoppedError))  # While it waits.
        name = f"env{envids[0]}"
        keys = keys or run_keys.client_keys(args, run_keys.ENV)
        client = connections.reach(args.actor_addr, keys, name, ctx, args.transport)
        stack.callback(client.close)
        worker.begin(ctx.first_number)
        run(worker, client, ctx)


def joined_env(
    make_env: bytes | Callable[[int], base.Env],
    invitation: member.Invitation,
    entry: member.Entry,
    is_eval: bool = False,
    ctx: Context | None = None,
) -> None:
    """Join a run and step environments until asked to stop or the run has ended.

    After losing its lease, the process rejoins, possibly with other numbers.
    """
    ctx = ctx or Context()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.suppress(StoppedError))
        stack.enter_context(suppress_end())
        own = member.Member(invitation, entry, ctx)
        stack.callback(own.close)
        worker = None
        while not ctx.stopping():
            found, joined = own.join(), time.monotonic()
            ctx.beat()
            numbers = found["numbers"]
            if worker is None:
                envs = make_batch(connections.factory(make_env), numbers)
                numbered = found["transport"] != connections.PORTAL
                worker = EnvWorker(envs, numbers, is_eval, numbered)
                stack.callback(worker.close)
            else:
                elements.print(f"Joined again as environments {numbers}.", flush=True)
            worker.move(numbers)
            worker.begin(found["incarnation"] << routing.INCARNATION_BITS)
            with contextlib.suppress(member.LeaseLostError), rejoin():
                place = (found["actor_addr"], invitation.keys, entry.name)
                client = connections.reach(*place, ctx, found["transport"], own.keep)
                with contextlib.closing(client):
                    run(worker, client, ctx, own.keep)
                return
            # Two processes that claim the same numbers would evict each other at once.
            soon = time.monotonic() - joined < REJOIN_PAUSE
            ctx.wait_stop(REJOIN_PAUSE if soon else 0.0)


def run(
    worker: EnvWorker,
    client: rpc.Client,
    ctx: Context,
    keep: Callable[[], None] | None = None,
) -> None:
    """Exchange observations for actions until asked to stop or the run has ended.

    `keep` (default: the heartbeat) is called throughout; its errors propagate.
    """
    keep = keep or ctx.beat
    with suppress_end():
        action = worker.reset_action()
        while not ctx.stopping():
            keep()
            action = worker.follow(action, client, ctx, keep)


@contextlib.contextmanager
def suppress_end() -> Iterator[None]:
    """Suppress the error which says that the run has ended."""
    try:
        yield
    except rpc.RemoteError as error:
        if not connections.is_over(error):
            raise


@contextlib.contextmanager
def rejoin() -> Iterator[None]:
    """Have a member join again whose numbers belong to another process by now."""
    try:
        yield
    except rpc.RemoteError as error:
        if error.kind == NumberError.__name__:
            raise member.LeaseLostError from error
        raise


class EnvWorker:
    """Several environments of one process, stepped together."""

    def __init__(
        self,
        envs: BatchEnv,
        envids: Sequence[int],
        is_eval: bool,
        numbered: bool = True,
    ):
        """Unless `numbered`, rows hold only the keys that the seeds define."""
        assert len(envs) == len(envids), (len(envs), envids)
        self._envs = envs
        self._numbered = numbered
        size = len(self._envs)
        self._seq = 0
        self._routing = {
            routing.ENVID: np.asarray(envids, np.int32),
            routing.IS_EVAL: np.full(size, is_eval),
        }

    def move(self, envids: Sequence[int]) -> None:
        """Renumber the environments."""
        assert len(envids) == len(self._envs), (len(self._envs), envids)
        self._routing[routing.ENVID] = np.asarray(envids, np.int32)

    def begin(self, first: int) -> None:
        """Start numbering at `first`, above all numbers of earlier processes."""
        self._seq = first

    def reset_action(self) -> base.Batch:
        """An action that resets every environment.

        Skips a sequence number, so the replay sees a gap and starts a new segment.
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
        if not self._numbered:
            return {**obs, **self._routing}
        counts = {
            routing.SEQ: np.full(size, self._seq, np.int64),
            routing.ENV_TIME: np.full(size, duration, np.float32),
        }
        return {**obs, **self._routing, **counts}

    def follow(
        self,
        action: base.Batch,
        client: rpc.Client,
        ctx: Context,
        keep: Callable[[], None],
    ) -> base.Batch:
        """Take a step, and return the actions that the actor chooses next.

        A restarted actor does not know the current episodes and resets their
        environments. Such episodes are abandoned, as are those whose action times out.
        """
        rows = self.step(action)
        try:
            action = ctx.wait(client.call_rows("act", rows, ACT_TIMEOUT), keep)
        except TimeoutError:
            return self.reset_action()
        abandoned = np.asarray(action[base.RESET]) & ~np.asarray(rows[base.IS_LAST])
        return self.reset_action() if abandoned.any() else action

    def close(self) -> None:
        self._envs.close()


def parallel_envs(
    make_env_train: bytes | Callable[[int], base.Env],
    make_env_eval: bytes | Callable[[int], base.Env],
    args: Given,
) -> None:
    """Run all environments of the run on this machine, supervised."""
    args = RunSettings.of(args)
    placed.supervise(env_roles(make_env_train, make_env_eval, args))


def env_roles(
    make_env_train: Any,
    make_env_eval: Any,
    args: RunSettings,
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
            target = (make, group, args, is_eval)
            roles.append(
                Role(
                    name,
                    parallel_env,
                    target,
                    budget=args.budget,
                    hang=args.env_timeout,
                    envids=group,
                )
            )
    return roles
