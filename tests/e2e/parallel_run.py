"""A small parallel run on the dummy environment, as a script that tests can kill."""

import argparse
import json
import os
import pathlib
import secrets
import time
from functools import partial as bind

import elements
import numpy as np

from dreamerv3.settings import config as settings
from embodied import replay, run, streams
from embodied.core import wrappers
from embodied.envs.dummy import Dummy
from embodied.metrics import JSONLOutput, TerminalOutput
from embodied.testing import NumpyAgent

BATCH, LENGTH, CONTEXT = 4, 5, 1
ENVS = 4  # Training environments, unless the flag says otherwise.
PAUSE = 0.2  # Seconds, much longer than anything else takes here.
TURN = 0.05  # The same where two take turns.
LIVED = 30  # Steps after which an environment says that it takes part.
NOTED = 0.25  # Seconds of waiting from which on an environment notes it.


class Watched(wrappers.Wrapper):
    """Numbers its steps unlike any other process, and notes how long it waited."""

    def __init__(self, env, path):
        super().__init__(env)
        self._serial = secrets.randbits(30) << 32
        self._path = pathlib.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._last = time.monotonic()

    @property
    def obs_space(self):
        return {**self.env.obs_space, "serial": elements.Space(np.int64)}

    def step(self, action):
        now = time.monotonic()
        if now - self._last > NOTED:
            with self._path.open("a") as file:
                file.write(json.dumps([self._last, now]) + "\n")
        obs = self.env.step(action)
        self._serial += 1
        if self._serial % 2**32 == LIVED:
            self._path.with_suffix(".lived").touch()
        self._last = time.monotonic()
        return {**obs, "serial": np.int64(self._serial)}


def make_env(index):
    return Dummy("disc", size=(16, 16), length=20, seed=index)


def make_watched(logdir, index):
    return Watched(make_env(index), f"{logdir}/pauses/{index}-{os.getpid()}.jsonl")


class Faulty(wrappers.Wrapper):
    """Does something wrong at its 30th step, once if there is a file to note it in."""

    def __init__(self, env, fault, marker):
        super().__init__(env)
        if fault == "start":
            raise OSError("no simulator here")
        self._fault = fault
        self._marker = pathlib.Path(marker)
        self._steps = 0

    def step(self, action):
        obs = self.env.step(action)
        self._steps += 1
        if self._steps == 30 and not self._marker.exists():
            self._marker.touch()
            obs = self._break(obs)
        return obs

    def _break(self, obs):
        match self._fault:
            case "raise":
                raise RuntimeError("broken on purpose")
            case "nan":
                obs["vector"] = obs["vector"] * np.nan
            case "shape":
                obs["vector"] = obs["vector"][:3]
            case "missing":
                del obs["vector"]
        return obs


def make_faulty(fault, logdir, index):
    env = make_watched(logdir, index)
    if index == 0:
        env = Faulty(env, fault, f"{logdir}/fault")
    return wrappers.CheckSpaces(env)


class SlowEnv(wrappers.Wrapper):
    """Takes a while for each step."""

    def __init__(self, env, pause):
        super().__init__(env)
        self._pause = pause

    def step(self, action):
        time.sleep(self._pause)
        return self.env.step(action)


class SlowAgent(NumpyAgent):
    """Takes a while to train or to act, as `slow` says."""

    slow = ""

    def train(self, carry, data):
        time.sleep(PAUSE if self.slow == "train" else 0)
        return super().train(carry, data)

    def policy(self, carry, obs, mode="train"):
        time.sleep({"policy": PAUSE, "both": TURN}.get(self.slow, 0))
        return super().policy(carry, obs, mode)


def make_slow_env(pause, logdir, index):
    return SlowEnv(make_watched(logdir, index), pause)


def make_agent(slow="", watched=False):
    env = make_env(0)
    space = {"serial": elements.Space(np.int64)} if watched else {}
    agent = SlowAgent({**env.obs_space, **space}, env.act_space)
    agent.slow = slow
    return agent


def make_replay(logdir, name):
    directory = f"{logdir}/{name}"
    return replay.Replay(CONTEXT + LENGTH, 10**6, directory, chunksize=64, online=True)


def make_stream(source, mode):
    length = LENGTH if mode == "train" else 3
    sampled = streams.Stateless(source.sample, BATCH, mode)
    strict = mode == "train"
    return streams.Consec(sampled, length, prefix=CONTEXT, strict=strict)


def make_logger(logdir):
    outputs = [JSONLOutput(logdir), TerminalOutput("bottleneck")]
    return elements.Logger(elements.Counter(), outputs)


def make_args(logdir, **changes):
    args = settings.nest(settings.read_blocks().defaults)["run"]
    args |= {"logdir": logdir, "batch_size": BATCH, "batch_length": LENGTH}
    args |= {
        "report_length": 3,
        "replay_context": CONTEXT,
        "envs": ENVS,
        "eval_envs": 1,
    }
    args |= {"log_every": 1.0, "report_every": 2.0, "save_every": 2.0}
    args |= {"train_ratio": 16.0, "env_timeout": 5.0}
    return elements.Config({**args, **changes})


def main(logdir, make_env, slow="", **changes):
    run.parallel.combined(
        bind(make_agent, slow, watched=True),
        bind(make_replay, logdir, "replay"),
        bind(make_replay, logdir, "replay_eval"),
        make_env,
        make_env,
        make_stream,
        bind(make_logger, logdir),
        make_args(logdir, **changes),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("logdir")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--duration", type=float, default=0.0)
    parser.add_argument("--budget", type=int, default=5)
    parser.add_argument("--fault", default="")
    parser.add_argument("--slow", default="")
    parser.add_argument("--agent_process", type=json.loads, default=True)
    parser.add_argument("--train_ratio", type=float, default=16.0)
    parser.add_argument("--actor_threads", type=int, default=1)
    parser.add_argument("--actor_batch", type=int, default=-1)
    parser.add_argument("--envs", type=int, default=ENVS)
    parser.add_argument("--eval_envs", type=int, default=1)
    parser.add_argument("--episode_timeout", type=float, default=180.0)
    options = vars(parser.parse_args())
    fault = options.pop("fault")
    maker = make_watched
    if options["slow"] in ("env", "both"):
        maker = bind(make_slow_env, PAUSE if options["slow"] == "env" else TURN)
    if fault:
        maker = bind(make_faulty, fault)
    main(make_env=bind(maker, options["logdir"]), **options)
