"""Speed of the agent on this machine, beside the figures of the public code.

    python bench/agent.py                 # All cases, each in its own process.
    python bench/agent.py train:size1m:8x32 policy:size1m:8 ...
    python bench/agent.py parts:size1m:8x32   # Share of each part and FLOP floor.

Float32, image 64x64x3 and the other keys of the dummy environment. The last column
scales the target by a calibration of this machine (convolution and matrix product).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import elements
import history
import jax
import jax.numpy as jnp
import numpy as np
from elements import Space

from dreamerv3.settings import config as settings

FLAGS = {
    "reward": Space(np.float32),
    "is_first": Space(bool),
    "is_last": Space(bool),
    "is_terminal": Space(bool),
}
VECTOR_OBS = {
    "vector": Space(np.float32, (7,)),
    "token": Space(np.int32, (), 0, 256),
    "count": Space(np.float32),
    "float2d": Space(np.float32, (4, 5)),
    "int2d": Space(np.int32, (2, 3), 0, 4),
}
IMAGE_OBS = {"image": Space(np.uint8, (64, 64, 3))}
ACT = {
    "act_disc": Space(np.int32, (), 0, 5),
    "act_cont": Space(np.float32, (6,), -1, 1),
    "reset": Space(bool),
}
# Case -> (figure of the public code, target), seconds on the machine they are from.
CASES = {
    "compile:size1m:8x32": (180.0, 30.0),
    "warm:size1m:8x32": (18.0, 6.0),
    "train:size1m:8x32": (0.963, 0.32),
    "train:size1m:16x64": (4.11, 1.35),
    "train:size12m:8x32": (5.3, 1.8),
    "policy:size1m:1": (3.3e-3, 1.0e-3),
    "policy:size1m:8": (8.7e-3, 2.5e-3),
    "policy:size1m:16": (11.4e-3, 3.5e-3),
    "report:size1m:8x32": (0.28, 0.28),
    "train_vector:size1m:8x32": (None, None),
    "policy_vector:size1m:8": (None, None),
    "parts:size1m:8x32": (None, None),
}


def load_config(preset: str, batch: int, length: int, **updates: Any) -> Any:
    """The agent's part of the config."""
    blocks = settings.read_blocks()
    config = settings.to_config(blocks.defaults).update(blocks.presets[preset])
    sizes = {"batch_size": batch, "batch_length": length, "report_length": length}
    config = config.update(sizes | updates)
    top = ("seed", "jax", "batch_size", "batch_length", "report_length")
    top += ("replay_context", "logdir")
    return elements.Config(**config.agent, **{k: config[k] for k in top})


def make_agent(
    preset: str, batch: int, length: int, image: bool, **updates: Any
) -> Any:
    """A DreamerV3 agent for the dummy environment."""
    from dreamerv3.agent import Agent

    obs_space = FLAGS | VECTOR_OBS | (IMAGE_OBS if image else {})
    return Agent(obs_space, ACT, load_config(preset, batch, length, **updates))


def random_values(spaces: dict[str, Space], *shape: int) -> dict[str, np.ndarray]:
    """Random arrays with leading dimensions."""
    rng, result = np.random.default_rng(0), {}
    for key, space in spaces.items():
        full = (*shape, *space.shape)
        if space.dtype == bool:
            result[key] = np.zeros(full, bool)
        elif space.discrete:
            high = min(256, int(np.max(space.high)))
            result[key] = rng.integers(0, high, full).astype(space.dtype)
        else:
            result[key] = rng.normal(size=full).astype(np.float32)
    return result


def make_batch(agent: Any, batch: int, length: int) -> dict[str, np.ndarray]:
    """A replayed batch."""
    act_space = {k: v for k, v in ACT.items() if k != "reset"}
    spaces = agent.model.obs_space | act_space | agent.ext_space
    data = random_values(spaces, batch, length + agent.model.context)
    data["is_first"][:, 0] = True
    size = batch * (length + agent.model.context)
    data["stepid"] = np.arange(size).reshape(batch, -1)
    return data


def best(fn: Callable[[], Any], seconds: float = 6.0, least: int = 5) -> float:
    """Shortest of repeated runs after one to warm up."""
    fn()
    times: list[float] = []
    while sum(times) < seconds or len(times) < least:
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return min(times)


def train_runner(agent: Any, batch: int, length: int) -> Callable[[], Any]:
    """A function that trains one step and waits for it."""
    carry, data = (
        agent.init_train(batch),
        agent.prepare(make_batch(agent, batch, length)),
    )

    def step() -> Any:
        return jax.block_until_ready(agent.train(carry, data)[2])

    return step


def run_train(preset: str, shape: str, image: bool = True) -> float:
    batch, length = map(int, shape.split("x"))
    agent = make_agent(preset, batch, length, image)
    return best(train_runner(agent, batch, length), 10)


def run_report(preset: str, shape: str) -> float:
    batch, length = map(int, shape.split("x"))
    agent = make_agent(preset, batch, length, True)
    carry, data = agent.init_report(batch), make_batch(agent, batch, length)
    return best(lambda: agent.report(carry, data))


def run_policy(preset: str, envs: str, image: bool = True) -> float:
    agent, count = make_agent(preset, 8, 32, image), int(envs)
    slots, names = agent.slots(32), list(range(count))
    obs = random_values(agent.model.obs_space, count)
    return best(lambda: slots.act(names, obs), 3, 100)


def run_compile(preset: str, shape: str, cache: str = "off") -> float:
    """Construction, first policy call and first train step."""
    batch, length = map(int, shape.split("x"))
    start = time.perf_counter()
    agent = make_agent(preset, batch, length, True, **{"jax.cache": cache})
    agent.slots(16).act([0], random_values(agent.model.obs_space, 1))
    train_runner(agent, batch, length)()
    return time.perf_counter() - start


def run_warm(preset: str, shape: str) -> float:
    """The same in a second process with the cache that a first one filled."""
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            case = f"compile:{preset}:{shape}:{cache}"
            result = in_process(case)
    return result["seconds"]


def in_process(name: str) -> dict[str, float]:
    """Run a case in its own process."""
    command = [sys.executable, __file__, "--one", name]
    out = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(out.stdout.splitlines()[-1])


def run_parts(preset: str, shape: str, image: bool = True) -> float:
    """Print what share of a train step each part takes."""
    import parts

    batch, length = map(int, shape.split("x"))
    agent = make_agent(preset, batch, length, image)
    data = agent.prepare(make_batch(agent, batch, length))
    parts.show(agent, data, (batch, length), best)
    return 0.0


def run_case(name: str) -> dict[str, float]:
    """Seconds and peak memory of one case in this process."""
    kind, preset, *args = name.split(":")
    runners: dict[str, Callable[..., float]] = {
        "train": run_train,
        "report": run_report,
        "policy": run_policy,
        "compile": run_compile,
        "warm": run_warm,
        "parts": run_parts,
    }
    options = {"image": False} if kind.endswith("_vector") else {}
    seconds = runners[kind.removesuffix("_vector")](preset, *args, **options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"seconds": seconds, "gigabytes": peak}


def calibrate() -> float:
    """Time of this machine relative to the one the figures are from."""
    matrix = np.random.rand(2048, 2048).astype(np.float32)
    images, kernel = jnp.ones((256, 32, 32, 16)), jnp.ones((5, 5, 16, 16))
    layout = ("NHWC", "HWIO", "NHWC")

    @jax.jit
    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=layout
        )

    product = best(lambda: matrix @ matrix, 1)
    convolution = best(lambda: conv(images, kernel).block_until_ready(), 1)
    speeds = product / (2 * 2048**3 / 190e9), convolution / 34e-3
    print(
        f"This machine takes {speeds[0]:.2f} (matrix product) and {speeds[1]:.2f} "
        "(convolution) of the time of the reference machine."
    )
    return float(np.sqrt(speeds[0] * speeds[1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--one", action="store_true", help="run a case right here")
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run_case(args.cases[0])))
        return
    scale = calibrate()
    print(
        f"{'case':<28}{'ours':>10}{'public':>10}{'target':>10}{'scaled':>10}{'memory':>10}"
    )
    for name in args.cases:
        if name.startswith("parts"):
            subprocess.run([sys.executable, __file__, "--one", name], check=True)
            continue
        result = in_process(name)
        public, target = CASES.get(name, (None, None))
        row = [result["seconds"], public, target, target and target * scale]
        if public:
            ratio = public * scale / result["seconds"]
            history.record("agent", {f"{name} to public": ratio})
        cells = "".join(f"{x:>10.4f}" if x else f"{'-':>10}" for x in row)
        print(f"{name:<28}{cells}{result['gigabytes']:>8.2f}GB", flush=True)


if __name__ == "__main__":
    main()
