"""The actor role: batches observations, runs the policy, forwards the steps."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import elements
import numpy as np

from embodied import rpc
from embodied.core import base
from embodied.core.clock import Seconds
from embodied.core.timer import Timer
from embodied.process.context import Context
from embodied.run.parallel import (
    bottleneck,
    connections,
    issued,
    metrics_client,
    routing,
    run_keys,
    shutdown,
)
from embodied.run.parallel.answers import LastAnswers
from embodied.run.parallel.feed import StepFeed, flush
from embodied.run.parallel.outbox import Outbox
from embodied.run.parallel.steps import StepNumbers
from embodied.run.settings import Given, RunSettings

FLUSH_EVERY = 1.0  # Seconds between looks whether the replay can take the last steps.
CLOSE_TIMEOUT = 5.0  # Seconds to wait for policy calls that run at the end.
UNLOGGED = (
    "The logger did not take the last steps: the replay or the next start sends them."
)


class UnstoredError(RuntimeError):
    """Steps that environments made were not stored."""


def parallel_actor(
    agent: base.Agent,
    barrier: threading.Barrier,
    args: Given,
    ctx: Context | None = None,
) -> None:
    """Serve `act` until the run has collected all steps or is asked to stop."""
    args, ctx = RunSettings.of(args), ctx or Context.of(barrier)
    barrier.wait()  # The learner has restored its checkpoint.
    replay = connections.connect(args.replay_addr, "actor", args, ctx)
    logger = metrics_client.LoggerLink("actor", args, ctx)
    state = replay.take_over(ctx.first_number).result()
    # From here on, no step of an earlier actor is stored that the feed would miss.
    feed = StepFeed(logger.tran, logger.seen, replay.unlogged)
    outbox = make_outbox(replay, feed, state, args, ctx)
    departures = make_departures(args)
    actor = Actor(
        agent,
        outbox,
        args.envs_per_process,
        partial(first_number, ctx),
        departures,
        stored_numbers(state),
    )
    server = make_server(actor, agent, args, issued.of_run(args, ctx))
    due_log, part = Seconds(args.log_every), ctx.part("actor")
    with contextlib.ExitStack() as stack:
        for each in (part, logger, replay, feed):
            stack.callback(each.close)
        server.start(block=False)
        stack.callback(server.close)
        while not outbox.wait_total(args.steps, timeout=0.5) and not ctx.stopping():
            connections.check(server)
            if actor.progressed():
                part.beat()
            if due_log():
                logger.add(stats(actor, server, replay))
        if departures and not ctx.aborted() and not departures.end():
            shutdown.warn_unacknowledged("environments")
        finish(server, outbox, replay, ctx)
        if not flush(feed, logger.patience):
            elements.print(UNLOGGED, color="yellow", flush=True)
        logger.add(stats(actor, server, replay))
        if not ctx.stopping():
            ctx.complete()


def stats(actor: Actor, server: rpc.Server, replay: rpc.Client) -> base.Metrics:
    """Metrics of the actor, its server and its client, since the last call."""
    served = connections.prefixed("server/actor", server.stats())
    return {
        **actor.stats(),
        **served,
        **connections.prefixed("client/actor", replay.stats()),
    }


def stored_numbers(state: dict[str, Any]) -> dict[int, int]:
    """Environments and the number of the last step that the replay has of each."""
    stored = state.get("stored")  # Not from a replay of another kind.
    if not stored:
        return {}
    envids, seqs = stored[routing.ENVID].tolist(), stored[routing.SEQ].tolist()
    return dict(zip(envids, seqs, strict=True))


def make_outbox(
    replay: rpc.Client,
    feed: StepFeed,
    state: dict[str, Any],
    args: RunSettings,
    ctx: Context,
) -> Outbox:
    """The way of the steps to the replay and the logger.

    The replay may hold steps back for long: while the learner compiles, or until there
    is room on its disk. The supervisor replaces a learner or a replay that hangs.
    """
    return Outbox(
        partial(add_batch, replay, state["actor"]),
        feed.put,
        recorded=(0, args.envs),
        total=state["total"],
        limit=args.steps,
        stopping=ctx.stopping,
    )


def add_batch(replay: rpc.Client, actor: int, steps: base.Batch) -> rpc.Future:
    """Send steps to the replay."""
    return replay.call("add_batch", (steps, actor), timeout=connections.STORED)


def make_departures(args: RunSettings) -> shutdown.Departures | None:
    """Shutdown notices for environments that only know the actor's address.

    Members are notified by the coordinator, local ones stopped by the supervisor.
    """
    if not args.remote_envs or args.launcher != "local":
        return None
    return shutdown.Departures(args.envs + args.eval_envs)


def first_number(ctx: Context) -> int:
    """The first sequence number for steps that arrive without one."""
    return max(ctx.first_number, time.time_ns())


def make_server(
    actor: Actor,
    agent: base.Agent,
    args: RunSettings,
    numbers: issued.Issued | None = None,
) -> rpc.BatchServer:
    """A server, not started, that acts for environments with the right numbers."""
    server = connections.serve(args.actor_addr, "actor", args, run_keys.ENV)
    server.bind(
        "act",
        actor.act,
        actor.post,
        workers=args.actor_threads,
        batch=batch_size(args),
        timeout=args.actor_timeout,
        spaces={**observed(agent), **routing.SPACES},
        defaults=routing.DEFAULTS,
        optional=base.LOG_PREFIX,  # Whatever environments log.
        check=(numbers or issued.Issued()).check,
    )
    return server


def finish(
    server: rpc.BatchServer, outbox: Outbox, replay: rpc.Client, ctx: Context
) -> None:
    """Answer pending calls and flush the remaining steps to the replay."""
    try:
        server.close(CLOSE_TIMEOUT)
    except TimeoutError as error:  # For environments that are gone by now.
        elements.print(f"Shutdown timed out: {error}.", flush=True)
    replay.drain()
    while not outbox.flush(timeout=FLUSH_EVERY):
        if ctx.gone("replay"):
            raise UnstoredError(
                f"{outbox.pending} batches of steps were not stored: the replay is gone"
            )
        replay.drain()  # Again, as it may have been restarted.


def observed(agent: base.Agent) -> base.Spaces:
    """Observations that environments must send; their logs are optional."""
    return {k: v for k, v in agent.obs_space.items() if base.is_stored(k)}


def batch_size(args: RunSettings) -> int:
    """Rows per policy call: at most all environments, by default half of them."""
    envs = args.envs + args.eval_envs
    size = args.actor_batch if args.actor_batch > 0 else max(1, envs // 2)
    return max(min(size, envs), args.envs_per_process)


class Policy(Protocol):
    """Acts for environments by their number, keeping their state."""

    def __len__(self) -> int:
        """Environments whose state is kept."""

    def act(
        self, names: Sequence[int], obs: base.Batch, mode: base.Mode
    ) -> tuple[base.Batch, base.Batch]:
        """Actions and outputs [N, ...] for one observation of each environment."""

    def free(self, names: Sequence[int]) -> None:
        """Forget environments."""


class CarryPolicy:
    """Keeps the carry of each environment on the host, for any agent."""

    def __init__(self, agent: base.Agent):
        self._agent = agent
        self._carries: dict[int, base.Carry] = {}

    def __len__(self) -> int:
        return len(self._carries)

    def act(
        self, names: Sequence[int], obs: base.Batch, mode: base.Mode
    ) -> tuple[base.Batch, base.Batch]:
        for name in names:
            if name not in self._carries:
                self._carries[name] = self._agent.init_policy(1)
        carries = [self._carries[name] for name in names]
        carry = elements.tree.map(_concatenate, *carries)
        carry, actions, outs = self._agent.policy(carry, obs, mode)
        for index, name in enumerate(names):
            self._carries[name] = elements.tree.map(_Row(index), carry)
        return actions, outs

    def free(self, names: Sequence[int]) -> None:
        for name in names:
            self._carries.pop(name, None)


class Actor:
    """Chooses actions for rows of observations and passes the steps on.

    An agent with a table of latents on its device (`slots`) keeps them there; any
    other agent's carries are kept by environment.
    """

    def __init__(
        self,
        agent: base.Agent,
        outbox: Outbox,
        envs_per_process: int = 1,
        first: Callable[[], int] = time.time_ns,
        departures: shutdown.Departures | None = None,
        stored: Mapping[int, int] | None = None,
    ):
        """With the last number of each environment that earlier actors `stored`."""
        slots = getattr(agent, "slots", None)
        self._policy: Policy = slots() if slots else CarryPolicy(agent)
        self._outbox = outbox
        self._per_process = envs_per_process
        self._numbers = StepNumbers(first)
        self._departures = departures
        self._no_reply = {
            key: np.zeros((0, *space.shape), space.dtype)
            for key, space in agent.act_space.items()
        } | {base.RESET: np.zeros(0, bool)}
        self._answers = LastAnswers(time.monotonic, stored)
        self._fps = elements.FPS()
        self._timer = Timer(time.monotonic)
        self._since = time.monotonic()
        self._env_seconds = 0.0  # That environments took for `_env_rows` steps.
        self._env_rows = 0
        self._calls = 0  # Of the policy that are under way.
        self._finished = self._finished_before = 0
        self._lock = threading.Lock()  # Of the policy and the figures.

    def act(self, rows: base.Batch, count: int) -> tuple[base.Batch, base.Batch]:
        """Actions for the first `count` rows, and the new steps for `post`."""
        if self._departures:
            self._departures.see(rows[routing.ENVID][:count].tolist())
        with self._timer.section("wait"):
            self._outbox.wait_room()
        obs = {key: value[:count] for key, value in rows.items()}
        obs[routing.SEQ] = self._numbers.fill(obs[routing.SEQ], obs[routing.ENVID])
        with self._under_way(), self._lock, self._timer.section("policy"):
            envids, seqs = obs[routing.ENVID].tolist(), obs[routing.SEQ].tolist()
            new = self._answers.find_new(envids, seqs, obs[base.IS_FIRST])
            if new.all():
                reply, steps = self._act(obs)
                self._answers.keep(envids, seqs, reply)
                return reply, steps
            return self._act_partly(obs, new)

    def _act_partly(
        self, obs: base.Batch, new: np.ndarray
    ) -> tuple[base.Batch, base.Batch]:
        """Act for the new rows, and answer the others without the policy."""
        part = {key: value[new] for key, value in obs.items()}
        envids, seqs = part[routing.ENVID].tolist(), part[routing.SEQ].tolist()
        if len(envids):
            reply, steps = self._act(part)
            self._answers.keep(envids, seqs, reply)
        else:
            reply, steps = self._no_reply, part
        envids, seqs = obs[routing.ENVID].tolist(), obs[routing.SEQ].tolist()
        return self._answers.complete(envids, seqs, new, reply), steps

    def _act(self, obs: base.Batch) -> tuple[base.Batch, base.Batch]:
        """Replies and steps of rows that are all new."""
        count = len(obs[routing.ENVID])
        actions, outs = self._choose(obs)
        self._fps.step(count - int(np.count_nonzero(obs[routing.IS_EVAL])))
        self._env_seconds += float(obs[routing.ENV_TIME].sum())
        self._env_rows += count
        # The action of a last step is never applied, so it must carry no signal.
        last = obs[base.IS_LAST]
        actions = {k: _mask(v, ~last) for k, v in actions.items()}
        return {**actions, base.RESET: last.copy()}, {**obs, **actions, **outs}

    def post(self, steps: base.Batch) -> None:
        """Queue steps for sending, after their actions were returned."""
        with self._timer.section("post"):
            self._outbox.send(steps)

    def progressed(self) -> bool:
        """Whether the policy returned since the last call or has nothing to do."""
        before, self._finished_before = self._finished_before, self._finished
        return self._calls == 0 or self._finished_before > before

    def stats(self) -> base.Metrics:
        """Speed, states kept, and where the time of actor and environments goes.

        `fps/env` is how fast the environments would be without waiting for actions;
        environments that share a process take turns.
        """
        timer = self._timer.stats()
        with self._lock:
            now = time.monotonic()
            elapsed, self._since = max(now - self._since, 1e-9), now
            seconds, self._env_seconds = self._env_seconds, 0.0
            rows, self._env_rows = self._env_rows, 0
            states = len(self._policy)
            processes = states / self._per_process
            stats = {
                "fps/policy": self._fps.result(),
                "fps/env": processes * rows / seconds if seconds else 0.0,
                "parallel/ep_states": states,
            }
        if processes:
            busy = min(1.0, seconds / elapsed / processes)
            stats |= {bottleneck.ENV_BUSY: busy, bottleneck.ENV_WAIT: 1 - busy}
        busy = min(1.0, timer.get("policy/share", 0.0))
        wait = min(1.0, timer.get("wait/share", 0.0))
        stats |= {bottleneck.ACTOR_BUSY: busy, bottleneck.ACTOR_WAIT: wait}
        return stats | connections.prefixed("timer/actor", timer)

    @contextlib.contextmanager
    def _under_way(self) -> Iterator[None]:
        with self._lock:
            self._calls += 1
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._finished += 1

    def _choose(self, obs: base.Batch) -> tuple[base.Batch, base.Batch]:
        """Actions and outputs; one policy call per mode and per repeated row."""
        names = obs[routing.ENVID].tolist()
        self._policy.free(self._answers.forget_silent())
        groups = split(names, obs[routing.IS_EVAL].tolist())
        seen = {k: v for k, v in obs.items() if base.is_stored(k)}
        if len(groups) == 1:
            return self._policy.act(names, seen, groups[0][0])
        parts = [
            self._policy.act(
                [names[i] for i in rows], {k: v[rows] for k, v in seen.items()}, mode
            )
            for mode, rows in groups
        ]
        order = np.argsort(np.concatenate([rows for _, rows in groups]))
        return _merge([a for a, _ in parts], order), _merge(
            [o for _, o in parts], order
        )


def split(
    names: Sequence[int], evals: Sequence[bool]
) -> list[tuple[base.Mode, list[int]]]:
    """Rows by mode, each environment at most once per group.

    A restarted environment may occur twice in a batch, once per incarnation.
    """
    groups: dict[tuple[int, bool], list[int]] = {}
    counts: dict[int, int] = {}
    for row, (name, is_eval) in enumerate(zip(names, evals, strict=True)):
        turn = counts.get(name, 0)
        counts[name] = turn + 1
        groups.setdefault((turn, is_eval), []).append(row)
    ordered = sorted(groups.items())
    return [("eval" if is_eval else "train", rows) for (_, is_eval), rows in ordered]


def _mask(value: Any, live: np.ndarray) -> np.ndarray:
    value = np.asarray(value)
    return value * live.reshape(live.shape + (1,) * (value.ndim - 1))


def _merge(parts: Sequence[base.Batch], order: np.ndarray) -> base.Batch:
    return {k: np.concatenate([part[k] for part in parts])[order] for k in parts[0]}


def _concatenate(*leaves: Any) -> Any:
    return np.concatenate([np.asarray(leaf) for leaf in leaves])


class _Row:
    """Cuts one row out of a leaf, keeping its leading dimension."""

    def __init__(self, index: int):
        self._index = index

    def __call__(self, leaf: Any) -> Any:
        return leaf[self._index : self._index + 1]
