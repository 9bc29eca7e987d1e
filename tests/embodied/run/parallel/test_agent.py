"""Actor and learner around one agent: barrier, checkpoint, failure of either."""

import threading

import elements
import pytest

from embodied import rpc
from embodied.core import base
from embodied.core.checkpoint import Checkpoint
from embodied.process.context import Context
from embodied.run.parallel import agent as agent_module
from embodied.run.parallel import parallel_actor, parallel_agent, parallel_learner
from tests.e2e import parallel_run


@pytest.fixture
def servers():
    """A replay and a logger that know nothing."""
    made = [rpc.Server("{auto}", name) for name in ("replay", "logger")]
    made[0].bind("total", lambda: 0)
    made[1].bind("add", lambda metrics: None)
    for server in made:
        server.start(block=False)
    yield {f"{server.name}_addr": server.address for server in made}
    for server in made:
        server.close()


class LoadedAgent(parallel_run.NumpyAgent):
    """Notes with what it was loaded."""

    def __init__(self):
        super().__init__({}, {"reset": elements.Space(bool)})
        self.loads = []

    def load(self, data, regex=None):
        super().load(data, regex)
        self.loads.append((data["updates"], regex))


class GateError(Exception):
    """Raised where the learner would let the actor go."""


class Gate:
    """Stands for the barrier: ends whoever comes to it."""

    def wait(self):
        raise GateError


def save_agent(directory, updates):
    agent = LoadedAgent()
    agent.updates = updates
    items = {"agent": agent, "learner": Updates(updates)}
    checkpoint = Checkpoint(directory / "ckpt" / "agent", items)
    checkpoint.save(wait=True)
    checkpoint.close()


class Updates:
    """The learner's item of a checkpoint."""

    def __init__(self, updates):
        self._updates = updates

    def save(self):
        return {"updates": self._updates, "step": 0}


def test_the_actor_waits_at_the_barrier_before_it_touches_anything(tmp_path):
    args = parallel_run.make_args(str(tmp_path))  # With addresses nobody can use.
    with pytest.raises(GateError):
        parallel_actor(LoadedAgent(), Gate(), args)


def test_the_learner_restores_its_checkpoint_before_the_barrier(tmp_path, servers):
    save_agent(tmp_path, updates=5)
    agent, args = LoadedAgent(), parallel_run.make_args(str(tmp_path), **servers)
    with pytest.raises(GateError):
        parallel_learner(agent, Gate(), args)
    assert agent.loads == [(5, None)]


def test_the_learner_starts_from_another_checkpoint_by_regex(tmp_path, servers):
    save_agent(tmp_path / "other", updates=7)
    logdir = tmp_path / "run"
    changes = {"from_checkpoint": str(tmp_path / "other"), "from_checkpoint_regex": "x"}
    args = parallel_run.make_args(str(logdir), **servers, **changes)
    agent = LoadedAgent()
    with pytest.raises(GateError):
        parallel_learner(agent, Gate(), args)
    assert agent.loads == [(7, "x")]
    with pytest.raises(GateError):  # The next start goes on with its own.
        parallel_learner(agent, Gate(), args)
    assert agent.loads[1:] == [(7, None)]


@pytest.mark.parametrize("who", ["parallel_actor", "parallel_learner"])
def test_the_failure_of_one_ends_the_other_and_is_raised(monkeypatch, who):
    ended = []

    def fail(agent, barrier, args, ctx):
        raise ValueError("broken on purpose")

    def wait(agent, barrier, args, ctx):
        with pytest.raises(threading.BrokenBarrierError):
            barrier.wait(10)
        assert ctx.wait_stop(10)
        assert ctx.aborted()  # Environments must not take it for the end of the run.
        ended.append(agent)

    for name in ("parallel_actor", "parallel_learner"):
        monkeypatch.setattr(agent_module, name, fail if name == who else wait)
    with pytest.raises(ValueError, match="broken on purpose"):
        parallel_agent(lambda: "agent", elements.Config(logdir="unused"))
    assert ended == ["agent"]


class Compiling:
    """A learner in its first update, and what it does not hold up."""

    def __init__(self, unsaved=False):
        self.unsaved = unsaved  # Whether it had done updates before.
        self.release = threading.Event()
        self.ended = []  # Its thread, once it got to its end.
        self.left = []  # With what the process was left before that.

    def learn(self, agent, barrier, args, ctx):
        part = ctx.part("learner")
        part.unsaved = self.unsaved
        barrier.wait(10)
        assert self.release.wait(20)
        self.ended.append(threading.current_thread())
        part.close()

    def exit(self, ctx, error):
        self.left.append(error)
        self.release.set()  # A process would be gone now.

    def run(self, monkeypatch, act, on_exit):
        monkeypatch.setattr(agent_module, "parallel_learner", self.learn)
        monkeypatch.setattr(agent_module, "parallel_actor", act)
        monkeypatch.setattr(agent_module, "LEARNER_TIMEOUT", 0.1)
        ctx = Context(on_exit=on_exit)
        parallel_agent(lambda: "agent", elements.Config(logdir="unused"), ctx)


def test_a_learner_that_compiles_is_not_waited_for(monkeypatch, capsys):
    def act(agent, barrier, args, ctx):
        barrier.wait(10)
        ctx.request_stop()

    learner = Compiling()
    learner.run(monkeypatch, act, learner.exit)
    assert learner.left == [None]
    assert "Nothing was trained" in capsys.readouterr().out


def test_the_failure_of_the_actor_is_told_while_the_learner_compiles(
    monkeypatch, capsys
):
    def act(agent, barrier, args, ctx):
        barrier.wait(10)
        raise ValueError("broken on purpose")

    learner = Compiling()
    with pytest.raises(ValueError, match="broken on purpose"):
        learner.run(monkeypatch, act, learner.exit)
    assert [str(error) for error in learner.left] == ["broken on purpose"]
    assert "Nothing was trained" not in capsys.readouterr().out


@pytest.mark.parametrize("why", ["unsaved", "complete", "thread"])
def test_a_learner_that_must_end_by_itself_is_waited_for(monkeypatch, capsys, why):
    """One with updates to save, of a complete run, or in a process it shares."""

    def act(agent, barrier, args, ctx):
        barrier.wait(10)
        ctx.complete() if why == "complete" else ctx.request_stop()
        threading.Timer(0.5, learner.release.set).start()

    learner = Compiling(unsaved=why == "unsaved")
    learner.run(monkeypatch, act, None if why == "thread" else learner.exit)
    assert learner.left == []
    assert learner.ended == [threading.current_thread()]  # Whose memory is kept.
    assert "Nothing was trained" not in capsys.readouterr().out


def test_an_error_that_a_restart_cannot_fix_is_final():
    def make_agent():
        raise base.SetupError("jax.platform=tpu is not here")

    with pytest.raises(base.SetupError, match=r"^jax.platform=tpu is not here$"):
        parallel_agent(make_agent, elements.Config(logdir="unused"))
