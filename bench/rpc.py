"""Measures `embodied.rpc` against bare ZeroMQ, portal and the public figures.

    python bench/rpc.py [--seconds 3] [--repeats 2] [--only act,sample_batch]

Each case runs ours and the floor in turn and reports the best of some repeats, as other
work on the machine only ever slows things down. The floor sends the same bytes through
ROUTER and DEALER sockets with nothing else done in Python. Portal has neither partial
batches nor several environments in a call. Public figures were measured on another
machine: see `../tools/calibrate.py`.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import history
import numpy as np
import rpc_portal
import zmq

from embodied import rpc

SPAWN = multiprocessing.get_context("spawn")
START_TIMEOUT = 60.0
IMAGE = (64, 64, 3)
SPACES = {
    "image": (np.uint8, IMAGE),
    "reward": (np.float32, ()),
    "is_first": (bool, ()),
    "is_last": (bool, ()),
    "is_terminal": (bool, ()),
    "envid": (np.int32, ()),
}
STEPS, STEP_BYTES = 16, 16_400
SAMPLE = (16, 65, STEP_BYTES)  # 17 MB.


class Case(NamedTuple):
    """One line of the report; the figures are per second, if not said otherwise."""

    name: str
    method: str  # What clients call.
    clients: int
    ahead: int  # Calls in flight of each client.
    scale: int  # Counted units of one call.
    public: float | None
    target: float
    batch: int = 0
    rows: int = 0  # Environments of one client; 0 for requests without leading axis.


CASES = [
    Case("round trip (median µs)", "tiny", 1, 1, 1, 600, 150),
    Case("pipelined tiny calls", "tiny", 1, 64, 1, 2_200, 2_200),
    Case("act, 16 processes, batch 8", "act", 16, 1, 1, 247, 6_000, batch=8),
    Case(
        "act, 16 x 16 envs, steps", "act", 16, 1, 16, None, 30_000, batch=128, rows=16
    ),
    Case("add_batch, 16 steps", "add_batch", 1, 4, 1, 199, 2_000),
    Case("sample_batch 16x65, 17 MB", "sample_batch", 1, 2, 1, 5.9, 60),
]


class Result(NamedTuple):
    """What the clients of one run saw."""

    rate: float  # Calls per second, all clients.
    median: float  # Seconds.
    p99: float


def request(case: Case) -> Any:
    """The argument of a call."""
    if case.method == "act":
        lead = (case.rows,) if case.rows else ()
        return {k: np.zeros(lead + shape, dt) for k, (dt, shape) in SPACES.items()}
    if case.method == "add_batch":
        return {"step": np.zeros((STEPS, STEP_BYTES), np.uint8)}
    return 1


def functions() -> dict[str, Callable[..., Any]]:
    """What is called, but for `act`."""
    sample = {"step": np.zeros(SAMPLE, np.uint8)}
    return {"tiny": abs, "add_batch": len, "sample_batch": lambda _: sample}


def serve_portal(case: Case, address: str, pipe: Any) -> None:
    rpc_portal.serve(functions(), {"act": act_whole}, case.batch, pipe)


def call_portal(case: Case, address: str) -> Callable[[], Callable[[], Any]]:
    return rpc_portal.caller(case.method, request(case), address)


def serve_ours(case: Case, address: str, pipe: Any) -> None:
    server = rpc.BatchServer(address, "bench")
    for name, function in functions().items():
        server.bind(name, function)
    if case.batch:
        args = {"batch": case.batch, "timeout": 0.01, "spaces": SPACES}
        server.bind("act", act, **args)
    server.start(block=False)
    pipe.send(server.address)
    pipe.recv()
    server.close()


def act(batch: dict[str, np.ndarray], rows: int) -> dict[str, np.ndarray]:
    return {"action": batch["envid"][:rows], "reset": batch["is_last"][:rows]}


def act_whole(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return act(batch, len(batch["envid"]))


def call_ours(case: Case, address: str) -> Callable[[], Callable[[], Any]]:
    """A function that begins a call and returns one that waits for its end."""
    client = rpc.Client(address)
    value = request(case)
    method = getattr(client, case.method)

    def begin() -> Callable[[], Any]:
        return method(value).result

    return begin


def serve_floor(case: Case, address: str, pipe: Any) -> None:
    address = rpc.resolve(address)
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.set(zmq.LINGER, 0)
    socket.bind(address)
    pipe.send(address)
    sample = np.zeros(SAMPLE, np.uint8)
    reply = [b"r" * 100, sample] if case.method == "sample_batch" else [b"r" * 100]
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLIN)
    poller.register(pipe.fileno(), zmq.POLLIN)
    routes = []
    while pipe.fileno() not in (ready := dict(poller.poll(10))):
        if ready:
            routes.append(socket.recv_multipart(copy=False)[0])
        if not ready or len(routes) >= (case.batch // (case.rows or 1) or 1):
            for route in routes:
                socket.send_multipart([route, *reply], copy=False)
            routes.clear()
    socket.close()


def call_floor(case: Case, address: str) -> Callable[[], Callable[[], Any]]:
    socket = zmq.Context().socket(zmq.DEALER)
    socket.connect(address)
    size = {"tiny": 0, "sample_batch": 0, "add_batch": STEPS * STEP_BYTES}
    size["act"] = max(1, case.rows) * int(np.prod(IMAGE))
    frames = [b"r" * 100]
    if size[case.method]:
        frames.append(np.zeros(size[case.method], np.uint8))

    def end() -> Any:
        return socket.recv_multipart(copy=False)

    def begin() -> Callable[[], Any]:
        socket.send_multipart(frames, copy=False)
        return end

    return begin


KINDS = {
    "ours": (serve_ours, call_ours),
    "floor": (serve_floor, call_floor),
    "portal": (serve_portal, call_portal),
}


def run_client(case: Case, kind: str, address: str, seconds: float, pipe: Any) -> None:
    begin = KINDS[kind][1](case, address)
    pipe.send("ready")
    pipe.recv()
    times, calls = [], []
    stop = time.perf_counter() + seconds
    while (now := time.perf_counter()) < stop:
        calls.append((now, begin()))
        if len(calls) >= case.ahead:
            start, end = calls.pop(0)
            try:
                end()
            except TimeoutError:  # No full batch any more.
                break
            times.append(time.perf_counter() - start)
    for _, end in calls:
        end()
    pipe.send(np.array(times))


def measure(case: Case, kind: str, seconds: float) -> Result:
    """One run with fresh processes."""
    address = "{auto}"
    server, pipe = start(KINDS[kind][0], case, address)
    address = receive(pipe)
    made = [
        start(run_client, case, kind, address, seconds) for _ in range(case.clients)
    ]
    for _, client in made:
        receive(client)
    for _, client in made:
        client.send("go")
    times = [receive(client) for _, client in made]
    pipe.send("stop")
    for process, _ in [*made, (server, pipe)]:
        process.join(START_TIMEOUT)
    merged = np.concatenate(times)
    rate = len(merged) / seconds
    return Result(rate, float(np.median(merged)), float(np.quantile(merged, 0.99)))


def start(target: Callable[..., None], *args: Any) -> tuple[Any, Any]:
    ours, theirs = SPAWN.Pipe()
    alone = target is not serve_portal  # Which has a child.
    process = SPAWN.Process(target=target, args=(*args, theirs), daemon=alone)
    process.start()
    return process, ours


def receive(pipe: Any) -> Any:
    if not pipe.poll(START_TIMEOUT):
        raise TimeoutError(f"a benchmark process was silent for {START_TIMEOUT} s")
    return pipe.recv()


def report(case: Case, args: argparse.Namespace) -> None:
    better = min if case.scale == 1 and "µs" in case.name else max
    found: dict[str, tuple[float, Result]] = {}
    for _ in range(args.repeats):
        for kind in KINDS if not case.rows else ("ours", "floor"):
            result = measure(case, kind, args.seconds)
            value = result.rate * case.scale
            value = 1e6 * result.median if better is min else value
            found[kind] = better(found.get(kind, (value, result)), (value, result))
    ours, result = found["ours"]
    public = f"{case.public:8.0f}" if case.public else "       -"
    ratio = ours / case.public if case.public else float("nan")
    ratio = 1 / ratio if better is min else ratio
    ratios = {f"{case.name} to {k}": ours / v for k, (v, _) in found.items()}
    ratios = {k: 1 / v if better is min else v for k, v in ratios.items()}
    del ratios[f"{case.name} to ours"]
    history.record("rpc", ratios)
    portal = f"{found['portal'][0]:8.0f}" if "portal" in found else "       -"
    met = ours <= case.target if better is min else ours >= case.target
    print(
        f"{case.name:28s} {ours:8.0f} {found['floor'][0]:8.0f} "
        f"{portal} {public} {ratio:6.1f}x {case.target:8.0f} "
        f"{'met' if met else 'NOT MET':8s}"
        f"{1e3 * result.median:7.2f} {1e3 * result.p99:7.2f}",
        flush=True,
    )


def report_idle(seconds: float) -> None:
    server = rpc.Server("{auto}")
    server.bind("tiny", abs)
    server.start(block=False)
    client = rpc.Client(server.address)
    client.tiny(1).result()
    time.sleep(0.5)  # Until the client has acknowledged and parked.
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    share = 100 * used / seconds
    print(f"idle server and client: {share:.2f} % of a core, public 24 %, target 2 %")
    client.close()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--only", default="", help="methods, separated by commas")
    args = parser.parse_args()
    print(
        f"{'':28s} {'ours':>8s} {'floor':>8s} {'portal':>8s} {'public':>8s} "
        f"{'ratio':>7s} {'target':>8s} {'':8s}{'median':>7s} {'p99 ms':>7s}"
    )
    for case in CASES:
        if not args.only or case.method in args.only.split(","):
            report(case, args)
    if not args.only:
        report_idle(args.seconds)


if __name__ == "__main__":
    main()
