"""A whole parallel run in this process, with real sockets and the numpy agent."""

import contextlib
import itertools
import json
import threading
from functools import partial as bind

import elements
import numpy as np
import pytest

from embodied import metrics, replay, rpc, streams
from embodied.core import runfiles, spacefile, wrappers
from embodied.core.checkpoint import read_item
from embodied.envs.dummy import Dummy
from embodied.process import incarnations
from embodied.run import parallel
from embodied.run.parallel import connections, ensemble, feed, member, routing, run_keys
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
        keys = rpc.load_client(self._keys, run_keys.ENV)
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
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
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


class Impostor(wrappers.Wrapper):
    """An environment that once tries numbers which are not its own.

    It counts how often it, and any other made of this class, has to abandon an episode.
    """

    def __init__(self, env, index, address, logdir, found):
        super().__init__(env)
        self._index, self._address, self._logdir = index, address, logdir
        self._found = found
        self._steps, self._ended = 0, True

    def step(self, action):
        self._found["abandoned"] += bool(action["reset"]) and not self._ended
        obs = self.env.step(action)
        self._steps, self._ended = self._steps + 1, bool(obs["is_last"])
        if self._index == 0 and self._steps == 30:
            with contextlib.closing(rpc.Client(self._address, "impostor")) as client:
                for name, numbers in self._wrong_numbers().items():
                    error = client.act({**obs, **numbers}).exception(30)
                    self._found[name] = getattr(error, "kind", None)
        return obs

    def _wrong_numbers(self):
        holders = incarnations.read_holders(self._logdir / runfiles.ISSUED)
        other, own = np.int32(1), holders[0] << routing.INCARNATION_BITS
        later = (1 + max(holders.values())) << routing.INCARNATION_BITS
        return {
            "huge": {"envid": other, "seq": np.int64(2**62 - 1)},
            "of the sender": {"envid": other, "seq": np.int64(own + 10**6)},
            "of no process": {"envid": other, "seq": np.int64(later + 1)},
            "none": {"envid": other},
            "of no environment": {"envid": np.int32(77), "seq": np.int64(own + 10**6)},
            "negative": {"envid": np.int32(-1), "seq": np.int64(own + 10**6)},
            "of neither": {"envid": np.int32(78)},
        }


def test_numbers_of_another_environment_are_rejected_and_do_no_harm(tmp_path):
    address, found = rpc.resolve("{auto}"), {"abandoned": 0}

    def make(index):
        return Impostor(make_env(index), index, address, tmp_path, found)

    run = Run(tmp_path, make)
    assert run(actor_addr=address) == "agent completed the run"
    assert found.pop("abandoned") == 0
    assert found.pop("negative") == "SchemaError"
    assert set(found.values()) == {"NumberError"}, found
    assert len(found) == 6
    stored = run.make_replay("replay")
    assert stored.total == STEPS
    stored.close()
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    counts = [json.loads(line).get("server/actor/act/rejected", 0) for line in lines]
    assert max(counts) == 7


CORE, ENV, LEARNER = run_keys.CORE, run_keys.ENV, run_keys.LEARNER
# The keys that may call each method of each server of a run. A method that is not here
# fails the test: decide who may call it.
MAY_CALL = {
    "actor": {"act": {CORE, ENV}},
    "replay": {
        "add_batch": {CORE},
        "sample_batch_train": {CORE},
        "sample_batch_report": {CORE},
        "sample_batch_eval": {CORE},
        "update": {CORE},
        "length": {CORE},
        "total": {CORE},
        "drain": {CORE},
        "take_over": {CORE},
        "unlogged": {CORE},
        "end": {CORE},
    },
    "logger": {
        "add": {CORE},
        "tran": {CORE},
        "seen": {CORE},
        "drain": {CORE},
        "end": {CORE},
    },
    "learner": {"start": {CORE, LEARNER}, "take": {CORE, LEARNER}},
    "coordinator": {
        "describe": {CORE, ENV, LEARNER},  # Each for its own roles: see below.
        "join": {CORE, ENV, LEARNER},
        "lease": {CORE, ENV, LEARNER},
        "leave": {CORE, ENV, LEARNER},
        "learners": {CORE},
    },
}
AS_ROLE = {
    "env": ENV,
    "learner": LEARNER,
    "agent": CORE,
    "replay": CORE,
    "logger": CORE,
}
# Arguments after the role that change nothing; a member needs at least 0 environments.
HARMLESS = {"describe": (), "join": ("probe", -1), "lease": ("probe",)}
HARMLESS["leave"] = ("probe",)
TOO_MANY = (None,) * 9  # A function that may be called fails before it runs.


def try_key(server, keys):
    """Methods that a key may call, and as which role where that matters."""
    try:
        client = rpc.Client(server.address, "prober", keys=keys, connect_timeout=60)
    except rpc.HandshakeError:
        return set()
    calls = {}
    for method in bound_methods(server):
        if server.name == "coordinator" and method in HARMLESS:
            for role in AS_ROLE:
                calls[method, role] = (role, *HARMLESS[method])
        else:
            learners = method == "learners"
            calls[method, None] = (-1, 10**6) if learners else TOO_MANY
    with contextlib.closing(client):
        futures = {call: client.call(call[0], args) for call, args in calls.items()}
        errors = {call: future.exception(60) for call, future in futures.items()}
    return {c for c, e in errors.items() if getattr(e, "kind", "") != "PermissionError"}


def bound_methods(server):
    return [method.name for method in server._queues]


def expected_calls(server, key):
    calls = set()
    for method, admitted in MAY_CALL[server].items():
        if server == "coordinator" and method in HARMLESS:
            calls |= {(method, role) for role, owner in AS_ROLE.items() if owner == key}
        elif key in admitted:
            calls.add((method, None))
    return calls


def test_every_key_may_call_what_was_decided_and_nothing_else(tmp_path, monkeypatch):
    servers, found, start, lock = {}, {}, rpc.Server.start, threading.Lock()

    def record(server, block=True):
        servers[server.name] = server
        start(server, block)

    monkeypatch.setattr(rpc.Server, "start", record)
    rpc.make_keys(tmp_path / "keys", run_keys.CLIENTS)
    names = ("coordinator", "actor", "replay", "logger", "learner")
    args = {f"{n}_addr": rpc.resolve("localhost:{auto}") for n in names}
    args["key_dir"] = str(tmp_path / "keys")
    settings = RunSettings.of({"logdir": str(tmp_path), **args, "learners": 2})
    ensemble.make_server(ensemble.Ensemble(1, {}, {}), settings).start(block=False)

    class Prober(wrappers.Wrapper):
        """An environment that, before the first step of any, tries all keys."""

        def step(self, action):
            with lock:
                for name, key in itertools.product(servers, run_keys.CLIENTS):
                    if (name, key) not in found:
                        keys = rpc.load_client(tmp_path / "keys", key)
                        found[name, key] = try_key(servers[name], keys)
            return self.env.step(action)

    Run(tmp_path / "run", lambda index: Prober(make_env(index)))(**args, learners=1)
    servers["learner"].close()
    bound = {name: set(bound_methods(server)) for name, server in servers.items()}
    assert bound == {name: set(methods) for name, methods in MAY_CALL.items()}
    assert found == {
        (name, key): expected_calls(name, key)
        for name in MAY_CALL
        for key in run_keys.CLIENTS
    }
