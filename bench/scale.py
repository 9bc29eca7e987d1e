"""Cost of a step as a run grows from 64 to 4,096 environments.

    python bench/scale.py [--envs 64,512,4096] [--seconds 5] [--repeats 2]

Actor, replay and logger are the real roles, each a process with real sockets and files.
A few processes simulate the env processes: each has many connections, one for every
`--rows` environments, over which it calls `act`. The agent is a fake that takes
`--policy-ms` for a batch. Messages and batches have the same size whatever the number
of environments, so that a cost that grows is one of their number. There is no learner,
and the limiter lets every step in.

The cost of a step is CPU time of the roles, which other work on the machine changes
least; the cheapest of the repeats counts. Steps per second and latency are wall-clock:
all environments wait for their actions all the time, so latency is about their number
divided by steps per second.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import history
import numpy as np
import psutil
import scale_parts

from embodied import rpc
from embodied.run.settings import RunSettings

SPAWN = multiprocessing.get_context("spawn")
SILENCE = 120.0  # Seconds within which a process has to answer.
END = 30.0  # Seconds that a process may take to end.
PROCESSES = 2  # That simulate environments, at least.
CONNECTIONS = 512  # Of each at most, as each needs a dozen descriptors.
GROWTH = 1.25  # Target: cost of a step with the most to the fewest environments.
Started = tuple[Any, Any]  # A process and our end of its pipe.


class Usage(NamedTuple):
    """What one role used."""

    cost: float  # CPU seconds of a step.
    memory: int  # Bytes.
    files: int  # Descriptors.


class Result(NamedTuple):
    """One measurement."""

    rate: float  # Steps per second.
    median: float  # Seconds of a call of `act`.
    p99: float
    usage: dict[str, Usage]  # By role.

    @property
    def cost(self) -> float:
        """CPU seconds of a step, in all roles."""
        return sum(each.cost for each in self.usage.values())


def measure(load: scale_parts.Load, seconds: float) -> Result:
    """One run with fresh processes and files."""
    with tempfile.TemporaryDirectory(prefix="scale-") as logdir:
        settings = scale_parts.make_settings(logdir, load)
        roles = {
            name: start(scale_parts.run_role, name, settings, load)
            for name in scale_parts.ROLES
        }
        clients = start_clients(settings, load, seconds)
        try:
            return watch(roles, clients, load, settings)
        finally:
            for process, _ in clients:
                process.kill()  # Closing hundreds of connections takes long.
            for role in roles.values():
                end(role)


def start_clients(
    settings: RunSettings, load: scale_parts.Load, seconds: float
) -> list[Started]:
    """Processes that share the simulated env processes."""
    groups = [range(i, i + load.rows) for i in range(0, load.envs, load.rows)]
    count = min(len(groups), max(PROCESSES, len(groups) // CONNECTIONS))
    return [
        start(scale_parts.run_envs, settings.actor_addr, groups[i::count], seconds)
        for i in range(count)
    ]


def watch(
    roles: dict[str, Started],
    clients: Sequence[Started],
    load: scale_parts.Load,
    settings: RunSettings,
) -> Result:
    """What the roles use for the steps that the clients make, until all are stored."""
    for client in clients:
        receive(client)
    warm_up = scale_parts.WARM_UP * load.envs
    await_stored(settings.replay_addr, warm_up)  # Files of new streams take a while.
    watched = {name: psutil.Process(role.pid) for name, (role, _) in roles.items()}
    before, begin = cpu_times(watched), time.perf_counter()
    for _, pipe in clients:
        pipe.send("go")
    times = np.concatenate([receive(client) for client in clients])
    elapsed, steps = time.perf_counter() - begin, load.rows * len(times)
    await_stored(settings.replay_addr, warm_up + steps)
    after = cpu_times(watched)
    usage = {
        name: Usage(
            (after[name] - before[name]) / steps,
            process.memory_info().rss,
            process.num_fds(),
        )
        for name, process in watched.items()
    }
    median, p99 = np.quantile(times, [0.5, 0.99]).tolist()
    return Result(steps / elapsed, median, p99, usage)


def await_stored(address: str, steps: int) -> None:
    """Wait until the replay has so many steps; the actor sends them on behind."""
    client, pause = rpc.Client(address, "bench"), threading.Event()
    stop = time.monotonic() + SILENCE
    while (total := client.total().result()) < steps:
        if time.monotonic() > stop:
            raise SystemExit(f"The replay stored {total} of {steps} steps in time.")
        pause.wait(0.05)
    client.close()


def cpu_times(watched: dict[str, psutil.Process]) -> dict[str, float]:
    found = {name: process.cpu_times() for name, process in watched.items()}
    return {name: times.user + times.system for name, times in found.items()}


def start(target: Callable[..., None], *args: Any) -> Started:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(*args, theirs), daemon=True)
    process.start()
    theirs.close()  # So that the end of the process ends our waiting.
    return process, ours


def receive(started: Started) -> Any:
    """The next message of a process; ends the benchmark if none comes."""
    process, pipe = started
    if not pipe.poll(SILENCE):
        raise SystemExit(f"A process was silent for {SILENCE:.0f} s: {process.name}.")
    try:
        return pipe.recv()
    except EOFError:
        text = f"{process.name} failed; its traceback is above."
        raise SystemExit(text) from None


def end(started: Started) -> None:
    """Have a process end; kill it if it does not."""
    process, pipe = started
    with contextlib.suppress(BrokenPipeError):  # It failed, and has said why.
        pipe.send("stop")
    process.join(END)
    if process.is_alive():
        process.kill()
        process.join()


def show(envs: int, result: Result) -> None:
    figures = f"{envs:>6d} {result.rate:>9.0f} {1e3 * result.median:>8.1f} "
    figures += f"{1e3 * result.p99:>8.1f} {1e6 * result.cost:>8.1f}"
    for name in scale_parts.ROLES:
        cost, memory, files = result.usage[name]
        figures += f"{1e6 * cost:>11.1f} {memory / 1e6:>5.0f} {files:>5d}"
    print(figures, flush=True)


def show_header() -> None:
    names = "".join(f"{name:>23s}" for name in scale_parts.ROLES)
    columns = f"{'µs/step':>11s} {'MB':>5s} {'files':>5s}" * len(scale_parts.ROLES)
    print(f"{'':43s}{names}")
    print(f"{'envs':>6s} {'steps/s':>9s} {'p50 ms':>8s} {'p99 ms':>8s} ", end="")
    print(f"{'µs/step':>8s}{columns}", flush=True)


def report(best: dict[int, Result]) -> None:
    """What growth costs, by the cheapest run of each number of environments."""
    few, many = min(best), max(best)
    growth = best[many].cost / best[few].cost
    name = f"cost of a step, {few} to {many} environments"
    history.record("scale", {name: 1 / growth})
    met = "met" if growth < GROWTH else "NOT MET"
    text = f"cost of a step with {many} to {few} environments: {growth:.2f}"
    print(f"{text}, {met}, target below {GROWTH}")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--envs", default="64,512,4096", help="numbers to compare")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each window")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--rows", type=int, default=16, help="environments a message")
    parser.add_argument("--batch", type=int, default=64, help="rows of a policy call")
    parser.add_argument("--policy-ms", type=float, default=1.0, help="of a policy call")
    args = parser.parse_args()
    args.envs = [int(text) for text in args.envs.split(",")]
    if any(envs % args.rows for envs in args.envs):
        parser.error(f"--envs {args.envs} have to be multiples of --rows {args.rows}")
    return args


def main() -> None:
    args = parse()
    show_header()
    best: dict[int, Result] = {}
    for _ in range(args.repeats):
        for envs in args.envs:
            load = scale_parts.Load(envs, args.rows, args.batch, 1e-3 * args.policy_ms)
            result = measure(load, args.seconds)
            show(envs, result)
            if envs not in best or result.cost < best[envs].cost:
                best[envs] = result
    report(best)


if __name__ == "__main__":
    main()
