"""A whole parallel run in this process, with real sockets and the numpy agent."""

import contextlib
import json
from functools import partial as bind

import elements
import numpy as np
import pytest

from embodied import metrics, replay, rpc, streams
from embodied.core import spacefile, wrappers
from embodied.core.checkpoint import read_item
from embodied.envs.dummy import Dummy
from embodied.run import parallel
from embodied.run.parallel import connections, ensemble, feed, member
from embodied.run.parallel import replay as replay_module
from embodied.run.parallel.env import joined_env
from embodied.run.parallel.launch import Factories
from embodied.run.settings import RunSettings
from embodied.testing import NumpyAgent
from embodied.testing.threads import run_in_threads

LENGTH, BATCH, STEPS = 5, 4, 300


def make_env(index):
    return Dummy("disc", size=(16, 16), length=20, seed=index)


def make_stream(source, mode):
    sampled = streams.Stateless(source.sample, BATCH, mode)
    return streams.Consec(sampled, LENGTH, strict=mode == "train")


class Run:
    """What a run is made of, and what it leaves behind."""

    def __init__(self, logdir, make_env=make_env, transport=connections.ZMQ):
        self.logdir = logdir
        self.transport = transport
        self.make_env = make_env
        self.agents = []

    def make_agent(self):
        env = make_env(0)
        self.agents.append(NumpyAgent(env.obs_space, env.act_space))
        return self.agents[-1]

    def make_replay(self, name):
        return replay.Replay(LENGTH, 10**4, self.logdir / name, chunksize=64)

    def make_logger(self):
        return elements.Logger(elements.Counter(), [metrics.JSONLOutput(self.logdir)])

    def __call__(self, **changes):
        return self.start(self.args(**changes))

    def args(self, **changes):
        args = {"logdir": str(self.logdir), "batch_size": BATCH, "batch_length": LENGTH}
        args |= {
            "report_length": LENGTH,
            "replay_context": 0,
            "envs": 3,
            "steps": STEPS,
        }
        args |= {
            "eval_envs": 1,
            "train_ratio": 8.0,
            "log_every": 0.1,
            "save_every": 0.1,
        }
        args |= {"report_every": 0.1, "transport": self.transport}
        return elements.Config({**args, **changes})

    def start(self, args):
        replays = (bind(self.make_replay, name) for name in ("replay", "replay_eval"))
        make = Factories(
            self.make_agent,
            *replays,
            self.make_env,
            self.make_env,
            make_stream,
            self.make_logger,
        )
        return run_in_threads(make, args)

    def scores(self):
        lines = (self.logdir / "scores.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def test_a_run_collects_learns_logs_and_saves(run):
    assert run() == "agent completed the run"
    (agent,) = run.agents
    assert agent.updates > 0
    stored = run.make_replay("replay")
    assert stored.total == STEPS
    assert np.isfinite(stored.sample(2)["reward"]).all()
    stored.close()
    state = read_item(run.logdir / "ckpt" / "agent", "learner")
    assert state["step"] == STEPS
    assert state["updates"] == agent.updates
    steps = [line["step"] for line in run.scores()]
    assert steps == sorted(steps)
    assert len(steps) >= 3 * (STEPS // 3 // 21)


def test_a_run_resumes(run):
    run()
    episodes, updates = len(run.scores()), run.agents[0].updates
    run(steps=2 * STEPS)
    assert run.agents[1].updates > updates
    assert len(run.scores()) > episodes
    stored = run.make_replay("replay")
    assert stored.total == 2 * STEPS
    stored.close()


class HungOutput:
    """Blocks the logger, once, with the first score."""

    def __init__(self, wait):
        self._wait = wait
        self._hung = False

    def __call__(self, summaries):
        if not self._hung and any(name == "episode/score" for _, name, _ in summaries):
            self._hung = True
            self._wait()


def test_a_logger_that_hangs_holds_nothing_up_and_gets_every_score(
    run, until, monkeypatch
):
    monkeypatch.setattr(feed, "MAX_BYTES", 4000)  # A few batches.
    replays = []
    make_replay, make_logger = run.make_replay, run.make_logger

    def make_hung():
        logger = make_logger()
        logger.outputs.append(HungOutput(wait_steps))
        return logger

    def wait_steps():
        goal = min(replays[0].total + STEPS // 2, 2 * STEPS)
        until(lambda: replays[0].total >= goal, 60)

    def make_kept(name):
        replays.append(make_replay(name))
        return replays[-1]

    run.make_replay, run.make_logger = make_kept, make_hung
    run(steps=2 * STEPS)
    stored = make_replay("replay")
    last = stored.after({}, ["is_last"], 10**6).steps["is_last"]
    stored.close()
    assert len(run.scores()) == last.sum() > 0


@pytest.mark.process  # It starts none, but polls as if it had the machine to itself.
def test_a_run_over_portal_trains_reports_saves_and_resumes(tmp_path):
    run = Run(tmp_path, transport=connections.PORTAL)
    for steps in (80, 160):
        assert run(steps=steps) == "agent completed the run"
        stored = run.make_replay("replay")
        assert stored.total == steps
        stored.close()
        state = read_item(run.logdir / "ckpt" / "agent", "learner")
        assert (state["step"], state["updates"]) == (steps, run.agents[-1].updates)
    assert run.agents[1].updates > run.agents[0].updates > 0
    logged = (run.logdir / "metrics.jsonl").read_text()
    assert "report/" in logged
    assert run.scores()


def test_environments_join_and_end_with_the_run(run, start):
    """The run has none of its own, and learns of theirs from the coordinator."""
    address = rpc.resolve("ipc://{auto}")
    env = make_env(0)
    spaces = spacefile.encode(env.obs_space, env.act_space)
    threads = []
    for name in ("one", "two"):
        entry = member.Entry("env", name, 2, spaces)
        invitation = member.Invitation(address, None)
        threads.append(start(bind(joined_env, make_env, invitation, entry)))
    reason = run(coordinator_addr=address, remote_envs=True, envs=4, eval_envs=0)
    assert reason == "agent completed the run"
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    stored = run.make_replay("replay")
    assert stored.total == STEPS
    stored.close()
    assert len(run.scores()) > 0
    assert not (run.logdir / "members.json").exists()


def test_roles_with_explicit_addresses_end_with_the_run(run, start, capsys):
    """As the seeds start them: environments, replay and logger know no coordinator."""
    names = ("actor", "replay", "logger")
    addresses = {f"{name}_addr": rpc.resolve("ipc://{auto}") for name in names}
    remote = {f"remote_{name}": True for name in ("envs", "replay", "logger")}
    args = run.args(**addresses, **remote, envs=2, eval_envs=0)
    replays = (bind(run.make_replay, name) for name in ("replay", "replay_eval"))
    threads = [
        start(bind(parallel.parallel_logger, run.make_logger, args)),
        start(bind(parallel.parallel_replay, *replays, make_stream, args)),
        *(start(bind(parallel.parallel_env, make_env, i, args)) for i in range(2)),
    ]
    assert run.start(args) == "agent completed the run"
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    stored = run.make_replay("replay")
    assert stored.total == STEPS
    stored.close()
    output = capsys.readouterr().out
    assert "did not" not in output


class Intruder(wrappers.Wrapper):
    """An environment that tries its key on every server, once."""

    def __init__(self, env, addresses, keys, found):
        super().__init__(env)
        self._addresses, self._keys, self._found = addresses, keys, found

    def step(self, action):
        while self._addresses:
            name, address = self._addresses.popitem()
            self._found[name] = self._try(address)
        return self.env.step(action)

    def _try(self, address):
        keys = rpc.load_client(self._keys, connections.ENV)
        try:
            client = rpc.Client(address, "intruder", keys=keys, connect_timeout=30)
        except rpc.HandshakeError:
            return "denied"
        with contextlib.closing(client):
            return {name: call(client) for name, call in FOREIGN.items()}


def fails(method, *args):
    """Calls a method and returns the kind of its error."""

    def call(client):
        return client.call(method, args).exception(30).kind

    return call


# Methods of replay, logger and learner, and those of the coordinator for other roles.
SERVED = (*replay_module.METHODS, "add", "tran", "seen", "end", "start", "take")
ROLES = ("replay", "logger", "learner", "agent")
FOREIGN = {name: fails(name) for name in SERVED}
FOREIGN |= {f"describe {role}": fails("describe", role) for role in ROLES}
for each in ("join", "lease", "leave"):
    FOREIGN |= {f"{each} {role}": fails(each, role, "name") for role in ROLES}
FOREIGN["learners"] = fails("learners", 1, 1)


def test_the_key_of_an_environment_reaches_what_it_needs_only(tmp_path):
    names = ("coordinator", "actor", "replay", "logger")
    addresses = {f"{n}_addr": rpc.resolve("localhost:{auto}") for n in names}
    rpc.make_keys(tmp_path / "keys", connections.CLIENTS)
    left, found = dict(addresses), {}
    args = {**addresses, "key_dir": str(tmp_path / "keys"), "learners": 2}
    args["learner_addr"] = left["learner_addr"] = rpc.resolve("localhost:{auto}")
    settings = RunSettings.of({"logdir": str(tmp_path), **args})
    learner = ensemble.make_server(ensemble.Ensemble(1, {}, {}), settings)
    learner.start(block=False)

    def make(index):
        return Intruder(make_env(index), left, tmp_path / "keys", found)

    Run(tmp_path / "run", make)(**{**args, "learners": 1})
    learner.close()
    denied = {
        name: "AttributeError" if name in SERVED else "PermissionError"
        for name in FOREIGN
    }
    assert found == {
        "coordinator_addr": denied,
        "actor_addr": dict.fromkeys(FOREIGN, "AttributeError"),
        "replay_addr": "denied",
        "logger_addr": "denied",
        "learner_addr": "denied",
    }
