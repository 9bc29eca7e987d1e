"""Each role alone, as the documents of docs/seeds.md describe it."""

import inspect
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial as bind

import cloudpickle
import elements
import numpy as np
import pytest

import embodied
from embodied import rpc
from embodied.core.checkpoint import read_item
from embodied.metrics import JSONLOutput
from embodied.run import parallel
from embodied.run.parallel import actor as actor_module
from embodied.run.parallel import agent as agent_module
from embodied.run.parallel import learner as learner_module
from embodied.run.parallel import logger as logger_module
from embodied.run.parallel import outbox
from embodied.run.settings import RunSettings
from embodied.testing import NumpyAgent

WAIT = 20.0  # Seconds after which what should happen has failed.
LOG, REPORT, SAVE = 11.0, 12.0, 13.0  # Intervals, told apart by their length.
BATCH, LENGTH = 4, 5
FORMS = {"bytes": cloudpickle.dumps, "callable": lambda make: make}
SIGNATURES = {
    "combined": "make_agent make_replay_train make_replay_eval make_env_train "
    "make_env_eval make_stream make_logger args",
    "parallel_agent": "make_agent args",
    "parallel_actor": "agent barrier args",
    "parallel_learner": "agent barrier args",
    "parallel_logger": "make_logger args",
}
OBS_SPACE = embodied.special_spaces() | {"token": elements.Space(np.int32, (), 0, 100)}
ACT_SPACE = {"reset": elements.Space(bool), "disc": elements.Space(np.int32, (), 1, 5)}


class Peer:
    """Stands for another role: answers calls and keeps what they brought."""

    def __init__(self, name, **answers):
        self.calls = {method: [] for method in answers}
        self.server = rpc.Server("{auto}", name)
        for method, answer in answers.items():
            self.server.bind(method, bind(self._take, method, answer))
        self.server.start(block=False)

    def _take(self, method, answer, *args):
        self.calls[method].append(args[0] if args else None)
        return answer

    def metrics(self):
        """All that came by `add`, the newest value of each."""
        return {k: v for metrics in list(self.calls["add"]) for k, v in metrics.items()}


@pytest.fixture
def peer():
    made = []

    def make(*args, **answers):
        made.append(Peer(*args, **answers))
        return made[-1]

    yield make
    for each in made:
        each.server.close()


@pytest.fixture
def run(ctx):
    """Runs roles in threads until they are asked to stop."""
    with ThreadPoolExecutor() as pool:
        yield bind(pool.submit, ctx=ctx)
        ctx.request_stop()


@pytest.fixture
def intervals(monkeypatch):
    """Intervals that have passed; each is due once."""
    passed = set()

    def is_due(every):
        if every not in passed:
            return False
        passed.remove(every)
        return True

    for module in (actor_module, learner_module, logger_module):
        monkeypatch.setattr(module, "Seconds", lambda every: bind(is_due, every))
    return passed


@pytest.fixture
def counted(monkeypatch):
    """Throughput as the number of steps since the last look at it."""

    class Count:
        total = 0

        def step(self, amount=1):
            self.total += amount

        def result(self):
            total, self.total = self.total, 0
            return total

    monkeypatch.setattr(elements, "FPS", Count)


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    signature = inspect.signature(getattr(parallel, name))
    given = SIGNATURES[name].split()
    rest = list(signature.parameters.values())[len(given) :]
    assert list(signature.parameters)[: len(given)] == given
    assert all(each.default is not each.empty for each in rest)


def make_logger(directory):
    """Writes to two outputs, and says each time that it is made."""
    with (directory / "made").open("a") as file:
        file.write("made\n")
    outputs = [JSONLOutput(directory / name) for name in ("one", "two")]
    return elements.Logger(elements.Counter(), outputs)


def logger_args(logdir, episode_timeout=60.0):
    return elements.Config(
        logdir=str(logdir),
        logger_addr=rpc.resolve("{auto}"),
        log_every=LOG,
        save_every=SAVE,
        episode_timeout=episode_timeout,
    )


def saved_step(logdir):
    return read_item(logdir / "ckpt" / "logger", "logger")["step"]


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("form", FORMS)
def test_the_logger_serves_add_and_tran(
    tmp_path, run, intervals, until, make_steps, form, ctx
):
    args = logger_args(tmp_path)
    factory = FORMS[form](bind(make_logger, tmp_path))
    result = run(parallel.parallel_logger, factory, args)
    client = rpc.Client(args.logger_addr, "test", timeout=WAIT)
    client.add({"train/loss": 0.5}).result()
    for index in range(3):  # Two environments, whose episodes end at the same time.
        steps = make_steps([0, 1], [index] * 2, index == 0, index == 2, reward=[1, 5])
        client.tran({**steps, outbox.STEP: 2 * (index + 1)}).result()
    assert not list(tmp_path.glob("*/*.jsonl"))
    intervals.add(LOG)
    until(lambda: saved_step(tmp_path) == 6)  # Which is after everything is written.
    for name in ("one", "two"):
        scores = rows(tmp_path / name / "scores.jsonl")
        assert [row["episode/score"] for row in scores] == [3, 15]
        metrics = rows(tmp_path / name / "metrics.jsonl")
        assert [r["train/loss"] for r in metrics if "train/loss" in r] == [0.5]
    client.close()
    ctx.request_stop()
    result.result(WAIT)
    assert (tmp_path / "made").read_text() == "made\n"


def test_the_step_counter_of_the_logger_is_saved(
    tmp_path, run, intervals, until, make_steps, ctx
):
    args = logger_args(tmp_path)
    result = run(parallel.parallel_logger, bind(make_logger, tmp_path), args)
    client = rpc.Client(args.logger_addr, "test", timeout=WAIT)
    client.tran({**make_steps([0], [1], first=True), outbox.STEP: 7}).result()
    assert saved_step(tmp_path) == 0
    intervals.add(SAVE)
    until(lambda: saved_step(tmp_path) == 7)
    client.close()
    ctx.request_stop()
    result.result(WAIT)


def test_episodes_go_stale_after_the_timeout_of_the_settings(tmp_path, make_steps):
    for index, timeout in enumerate((60.0, 0.0)):
        logdir = tmp_path / str(index)
        logdir.mkdir()
        board = logger_module.Scoreboard(
            make_logger(logdir),
            logdir / "ckpt",
            RunSettings.of(logger_args(logdir, timeout)),
        )
        board.tran({**make_steps([0], [1], first=True), outbox.STEP: 1})
        board.write()
        board.close()
        (row,) = rows(logdir / "one" / "metrics.jsonl")
        assert row["parallel/stale_episodes"] == index


@pytest.mark.parametrize("form", FORMS)
def test_actor_and_learner_share_agent_barrier_and_process(monkeypatch, form):
    met = {}

    def meet(name, *args):
        met[name] = (*args[:3], threading.get_ident())
        args[1].wait(WAIT)

    for name in ("parallel_actor", "parallel_learner"):
        half = bind(meet, name)
        half.__name__ = name
        monkeypatch.setattr(agent_module, name, half)
    make = bind(NumpyAgent, OBS_SPACE, ACT_SPACE)
    parallel.parallel_agent(FORMS[form](make), elements.Config(logdir="unused"))
    actor, learner = met["parallel_actor"], met["parallel_learner"]
    assert isinstance(actor[0], NumpyAgent)
    assert all(one is two for one, two in zip(actor[:3], learner[:3], strict=True))
    assert isinstance(actor[1], threading.Barrier)
    assert actor[1].parties == 2
    assert actor[3] != learner[3]


def act(client, envid, **flags):
    """What an environment sends for one step, with the keys of the documents."""
    routing = {"envid": np.int32(envid), "is_eval": np.bool_(False)}
    obs = embodied.special_values(reward=envid, **flags)
    return client.act({**obs, **routing, "token": np.int32(10 + envid)})


def test_the_actor_batches_acts_and_passes_steps_on(
    tmp_path, peer, run, intervals, until, counted, ctx
):
    state = {"take_over": {"actor": 1, "total": 0}, "add_batch": 2, "drain": None}
    replay = peer("replay", **state, unlogged={"steps": [], "complete": True})
    logger = peer("logger", add=None, tran=None, seen={})
    args = elements.Config(
        logdir=str(tmp_path),
        actor_addr=rpc.resolve("{auto}"),
        actor_batch=2,
        actor_threads=2,
        actor_timeout=WAIT,  # So long that only a full batch runs.
        replay_addr=replay.server.address,
        logger_addr=logger.server.address,
        log_every=LOG,
    )
    agent, barrier = NumpyAgent(OBS_SPACE, ACT_SPACE), threading.Barrier(2)
    result = run(parallel.parallel_actor, agent, barrier, args)
    barrier.wait(WAIT)
    client = rpc.Client(args.actor_addr, "test", timeout=WAIT)
    until(lambda: replay.calls["unlogged"])  # From here on steps are passed on.
    for turn in range(3):
        futures = [act(client, envid, is_first=turn == 0) for envid in range(2)]
        actions = [future.result() for future in futures]
        assert all(set(action) == {"disc", "reset"} for action in actions)
    # The logger gets images of the first environment, so that its rows come apart.
    until(lambda: len(logger.calls["tran"]) == 6)
    for turn, steps in enumerate(replay.calls["add_batch"]):
        assert steps["envid"].tolist() == [0, 1]
        assert steps["token"].tolist() == [10, 11]
        assert steps[NumpyAgent.LATENT].tolist() == [turn, turn]  # A carry for each.
        assert {"disc", "reward", "is_last"} <= set(steps)
    assert [s["reward"].item() for s in logger.calls["tran"]] == [0, 1] * 3
    intervals.add(LOG)
    until(lambda: logger.calls["add"])
    metrics = logger.metrics()
    assert (metrics["fps/policy"], metrics["parallel/ep_states"]) == (6, 2)
    assert metrics["server/actor/act/rows"] == 2
    assert metrics["client/actor/calls"] > 0
    client.close()
    ctx.request_stop()
    result.result(WAIT)


def sequences(length=LENGTH):
    shape = (BATCH, length)
    flags = {k: np.zeros(shape, bool) for k in ("is_first", "is_last", "is_terminal")}
    latents = {NumpyAgent.LATENT: np.ones(shape, np.int32)}
    stepid = np.zeros((*shape, 20), np.uint8)
    return {**flags, **latents, "reward": np.ones(shape), "stepid": stepid}


def test_the_learner_trains_reports_updates_and_saves(
    tmp_path, peer, run, intervals, until, counted, ctx
):
    batches = {f"sample_batch_{m}": sequences() for m in ("train", "report", "eval")}
    replay = peer("replay", **batches, total=0, length=BATCH, update=None)
    logger = peer("logger", add=None)
    args = elements.Config(
        logdir=str(tmp_path),
        batch_size=BATCH,
        batch_length=LENGTH,
        replay_addr=replay.server.address,
        logger_addr=logger.server.address,
        report_every=REPORT,
        save_every=SAVE,
        log_every=LOG,
        report_batches=3,
    )
    agent, barrier = NumpyAgent(OBS_SPACE, ACT_SPACE), threading.Barrier(2)
    result = run(parallel.parallel_learner, agent, barrier, args)

    def saved():
        return read_item(tmp_path / "ckpt" / "agent", "agent")["updates"]

    barrier.wait(WAIT)  # Only now it trains.
    assert saved() == 0
    until(lambda: len(replay.calls["update"]) > 2)
    assert set(replay.calls["update"][0]) == {"stepid", NumpyAgent.LATENT}
    assert not logger.calls["add"]
    intervals.add(LOG)
    until(lambda: logger.calls["add"])
    metrics = logger.metrics()
    assert {"train/loss", "timer/learner/train/share", "usage/agent/cpu"} <= {*metrics}
    updates = metrics["timer/learner/train/count"]
    assert metrics["fps/train"] == updates * BATCH * LENGTH > 0
    intervals.add(REPORT)
    until(lambda: len(logger.calls["add"]) == 3)
    assert {"report/mean_reward", "eval/mean_reward"} <= set(logger.metrics())
    assert len(replay.calls["sample_batch_report"]) == args.report_batches
    intervals.add(SAVE)
    until(saved)
    ctx.request_stop()
    result.result(WAIT)
    assert saved() == agent.updates


def test_a_role_names_the_setting_that_it_cannot_do_without():
    with pytest.raises(embodied.core.base.SetupError, match=r"args\.logdir is missing"):
        parallel.parallel_logger(make_logger, elements.Config(logger_addr="{auto}"))
