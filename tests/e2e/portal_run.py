"""The usage examples of the documents the product was asked for in, as they stand."""

import os
import pathlib
import sys
import threading
from functools import partial as bind

import cloudpickle
import elements
import numpy as np
import portal

from embodied.core import wrappers
from embodied.run.parallel import (
    parallel_actor,
    parallel_env,
    parallel_learner,
    parallel_logger,
    parallel_replay,
)
from tests.e2e import parallel_run

# What those documents say that each role reads.
LOGGER = ("logger_addr", "log_every", "save_every", "episode_timeout")
ACTOR = (
    "actor_addr", "actor_batch", "actor_threads", "replay_addr", "logger_addr",
    "log_every",
)  # fmt: skip
LEARNER = (
    "batch_size", "batch_length", "replay_addr", "logger_addr", "report_every",
    "save_every", "log_every", "report_batches", "from_checkpoint",
    "from_checkpoint_regex",
)  # fmt: skip


def only(args, *names):
    """Settings of a role, and where its files are."""
    return elements.Config({name: args[name] for name in (*names, "logdir")})


class LoggingEnv(wrappers.Wrapper):
    """Logs a number that the agent is not told of."""

    def step(self, action):
        return {**self.env.step(action), "log/speed": np.float32(3)}


def make_env(index):
    return LoggingEnv(parallel_run.make_env(index))


def found(path, *names):
    """Whether a file has all these names."""
    return path.exists() and all(name in path.read_text() for name in names)


def exit_when_done(logdir):
    """Ends everything once there are episodes, what they log, and updates."""
    scores, metrics = logdir / "scores.jsonl", logdir / "metrics.jsonl"
    pause = threading.Event()
    while not (scores.exists() and found(metrics, "train/loss", "epstats/log/speed")):
        pause.wait(0.1)
    print("done", flush=True)
    os._exit(0)


def main(logdir):
    make_logger = bind(parallel_run.make_logger, str(logdir))
    make_replay = bind(parallel_run.make_replay, str(logdir))
    make_agent = parallel_run.make_agent
    # Ways to write an address: as the launcher of those documents makes it, and a port.
    whole = parallel_run.make_args(
        str(logdir),
        actor_addr=f"localhost:{portal.free_port()}",
        replay_addr=f"localhost:{portal.free_port()}",
        logger_addr=str(portal.free_port()),
        envs=2,
        eval_envs=0,
    )
    args = only(
        whole,
        "replay_addr",
        "logger_addr",
        "actor_addr",
        "envs",
        "eval_envs",
        "batch_size",
        "batch_length",
        "replay_context",
        "train_ratio",
    )

    # Factories as cloudpickle bytes and as callables.
    processes = [
        portal.Process(
            parallel_logger, cloudpickle.dumps(make_logger), only(whole, *LOGGER)
        ),
        portal.Process(
            parallel_replay,
            bind(make_replay, "replay"),
            cloudpickle.dumps(bind(make_replay, "replay_eval")),
            parallel_run.make_stream,
            args,
        ),
        *[portal.Process(parallel_env, make_env, index, args) for index in range(2)],
    ]
    for process in processes:
        process.start()

    threading.Thread(target=exit_when_done, args=(logdir,), daemon=True).start()
    agent = make_agent()
    barrier = threading.Barrier(2)
    workers = [
        portal.Thread(parallel_actor, agent, barrier, only(whole, *ACTOR)),
        portal.Thread(parallel_learner, agent, barrier, only(whole, *LEARNER)),
    ]
    portal.run(workers)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
