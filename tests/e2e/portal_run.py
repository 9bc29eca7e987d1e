"""The usage examples of the documents the product was asked for in, as they stand."""

import os
import pathlib
import sys
import threading
from functools import partial as bind

import cloudpickle
import portal

from embodied import rpc
from embodied.run.parallel import (
    parallel_actor,
    parallel_env,
    parallel_learner,
    parallel_logger,
    parallel_replay,
)
from tests.e2e import parallel_run


def exit_when_done(logdir):
    """Ends everything once there are episodes, updates and a checkpoint."""
    scores, metrics = logdir / "scores.jsonl", logdir / "metrics.jsonl"
    pause = threading.Event()
    while not (scores.exists() and "train/loss" in metrics.read_text()):
        pause.wait(0.1)
    print("done", flush=True)
    os._exit(0)


def main(logdir):
    address = f"ipc://{logdir}/{{}}"
    make_logger = bind(parallel_run.make_logger, str(logdir))
    make_replay = bind(parallel_run.make_replay, str(logdir))
    make_agent, make_env = parallel_run.make_agent, parallel_run.make_env
    args = parallel_run.make_args(
        str(logdir),
        actor_addr=rpc.resolve(address.format("a")),
        replay_addr=rpc.resolve(address.format("r")),
        logger_addr=rpc.resolve(address.format("l")),
        envs=2,
        eval_envs=0,
    )

    # Factories as cloudpickle bytes and as callables.
    processes = [
        portal.Process(parallel_logger, cloudpickle.dumps(make_logger), args),
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
        portal.Thread(parallel_actor, agent, barrier, args),
        portal.Thread(parallel_learner, agent, barrier, args),
    ]
    portal.run(workers)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
