"""Serial loops end to end: metrics, checkpoint, resume, signals, evaluation."""

import json
import multiprocessing
import os
import signal

import elements
import numpy as np
import pytest

from embodied import run, streams
from embodied.core import wrappers
from embodied.core.checkpoint import CheckpointError, read_item
from embodied.envs.dummy import Dummy
from embodied.metrics import JSONLOutput
from embodied.testing import BrokenEnv, ListReplay, NumpyAgent, RecordedOutput

LENGTH = 9  # Steps per episode, not counting the first.
ALWAYS = 1e-9  # Seconds that have passed with every iteration.


def make_dummy(index):
    return Dummy("disc", size=(8, 8), length=LENGTH, seed=index)


class Setup:
    """Factories that keep what they made, so that a test can look at it."""

    def __init__(self, logdir, **changes):
        args = {
            "logdir": str(logdir),
            "steps": 200,
            "duration": 0,
            "envs": 2,
            "eval_envs": 2,
            "eval_episodes": 3,
            "train_ratio": 8.0,
            "log_every": 1000,
            "report_every": 1000,
            "save_every": 1000,
            "report_batches": 2,
            "env_processes": False,
            "from_checkpoint": "",
            "from_checkpoint_regex": ".*",
            "batch_size": 4,
            "batch_length": 5,
            "report_length": 3,
            "replay_context": 1,
        }
        self.args = elements.Config({**args, **changes})
        self.output = RecordedOutput()

    def make_agent(self):
        env = self.make_env(0)
        self.agent = NumpyAgent(env.obs_space, env.act_space)
        return self.agent

    def make_replay(self):
        self.replay = ListReplay(6)
        return self.replay

    def make_replay_eval(self):
        self.replay_eval = ListReplay(6)
        return self.replay_eval

    def make_env(self, index):
        return make_dummy(index)

    def make_stream(self, replay, mode):
        length = 5 if mode == "train" else 3
        source = streams.Stateless(replay.sample, self.args.batch_size, mode)
        return streams.Consec(source, length, prefix=1, strict=mode == "train")

    def make_logger(self):
        outputs = [self.output, JSONLOutput(self.args.logdir)]
        self.logger = elements.Logger(elements.Counter(), outputs)
        return self.logger

    def train(self):
        run.train(
            self.make_agent,
            self.make_replay,
            self.make_env,
            self.make_stream,
            self.make_logger,
            self.args,
        )

    def train_eval(self):
        run.train_eval(
            self.make_agent,
            self.make_replay,
            self.make_replay_eval,
            self.make_env,
            self.make_env,
            self.make_stream,
            self.make_logger,
            self.args,
        )

    def eval_only(self):
        run.eval_only(self.make_agent, self.make_env, self.make_logger, self.args)


def test_train_counts_steps_updates_and_episodes(tmp_path):
    setup = Setup(tmp_path)
    setup.train()
    assert int(setup.logger.step) == 200
    assert {w: len(s) for w, s in setup.replay.streams.items()} == {"0": 100, "1": 100}
    # Eight replayed steps per step, 20 steps per batch, once there are as many steps as
    # a batch has with its context.
    assert setup.agent.updates == (200 - 4 * (5 + 1)) * 8 // 20
    assert len(setup.output.values("episode/score")) == 2 * (100 // (LENGTH + 1))
    assert set(np.array(setup.output.values("episode/length")).tolist()) == {LENGTH}
    assert len(setup.replay.updated) == setup.agent.updates
    names = {name for _, name, _ in setup.output.summaries}
    expected = {"train/loss", "report/mean_reward", "replay/items", "fps/policy"}
    assert expected | {"fps/train", "epstats/image"} <= names


class LoggingEnv(wrappers.Wrapper):
    """Logs a number that the agent does not declare."""

    @property
    def obs_space(self):
        return {**self.env.obs_space, "log/speed": elements.Space(np.float32)}

    def step(self, action):
        return {**self.env.step(action), "log/speed": np.float32(3)}


def test_logs_that_the_agent_does_not_know(tmp_path):
    setup = Setup(tmp_path)
    agent = setup.make_agent()
    assert not [key for key in agent.obs_space if key.startswith("log/")]
    setup.make_agent = lambda: agent
    setup.make_env = lambda index: LoggingEnv(make_dummy(index))
    setup.train_eval()
    for prefix in ("", "eval/"):
        assert setup.output.values(f"{prefix}epstats/log/speed/avg")[0] == 3


def test_updates_wait_for_sequences_to_be_complete(tmp_path):
    setup = Setup(tmp_path, envs=20)  # 24 steps are soon there, sequences after six.
    setup.train()
    assert setup.agent.updates == (200 - 20 * 6) * 8 // 20


def test_metrics_are_on_disk(tmp_path):
    Setup(tmp_path).train()
    rows = [
        json.loads(x) for x in (tmp_path / "metrics.jsonl").read_text().split("\n")[:-1]
    ]
    assert any("train/loss" in row for row in rows)
    scores = (tmp_path / "scores.jsonl").read_text().splitlines()
    # Each at the step at which its episode ended, two environments at a time.
    ends = [20 * (index // 2 + 1) for index in range(20)]
    assert [json.loads(row)["step"] for row in scores] == ends


def test_same_command_goes_on(tmp_path):
    first = Setup(tmp_path)
    first.train()
    second = Setup(tmp_path, steps=300)
    second.train()
    assert int(second.logger.step) == 300
    assert sum(map(len, second.replay.streams.values())) == 300
    whole = Setup(tmp_path / "whole", steps=300)
    whole.train()
    assert second.agent.updates == whole.agent.updates
    steps = [
        step for step, name, _ in second.output.summaries if name == "episode/score"
    ]
    assert min(steps) > 200


class Killing(Dummy):
    """Kills its process at a step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 25:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def train_until_killed(logdir, script):
    setup = Setup(logdir, steps=10**6, log_every=ALWAYS)
    setup.make_env = lambda index: Killing("disc", size=(8, 8), length=LENGTH)
    getattr(setup, script)()


def steps_of(path):
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


@pytest.mark.process
@pytest.mark.parametrize("script", ["train", "train_eval"])
def test_a_killed_run_repeats_no_rows(tmp_path, script):
    """The first start ends at step 100, the second is killed, the third ends at 200."""
    getattr(Setup(tmp_path, steps=100), script)()
    before = (tmp_path / "metrics.jsonl").read_text()
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=train_until_killed, args=(tmp_path, script))
    killed.start()
    killed.join(60)
    assert killed.exitcode == -signal.SIGKILL
    assert max(steps_of(tmp_path / "scores.jsonl")) > 100
    getattr(Setup(tmp_path, log_every=ALWAYS), script)()
    # Each at the step at which its episode ended, two environments at a time.
    ends = [20 * (index // 2 + 1) for index in range(20)]
    assert steps_of(tmp_path / "scores.jsonl") == ends
    assert (tmp_path / "metrics.jsonl").read_text().startswith(before)
    after = steps_of(tmp_path / "metrics.jsonl")[before.count("\n") :]
    assert sorted(set(after)) == list(range(102, 201, 2))
    assert after == sorted(after)


def test_a_finished_run_stays_as_it_is(tmp_path):
    Setup(tmp_path).train()
    names = ("metrics.jsonl", "scores.jsonl")
    before = [(tmp_path / name).read_text() for name in names]
    again = Setup(tmp_path)
    again.train()
    assert int(again.logger.step) == 200
    assert again.output.values("episode/score") == []
    after = [(tmp_path / name).read_text() for name in names]
    assert all(map(str.startswith, after, before))


@pytest.mark.parametrize("steps", [10, 60])
def test_a_run_that_never_trained_says_so(tmp_path, steps, capsys):
    setup = Setup(tmp_path, steps=steps)
    setup.train()
    said = "Nothing was trained" in capsys.readouterr().out
    assert said == (setup.agent.updates == 0) == (steps == 10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_returns(tmp_path, number, capsys):
    setup = Setup(tmp_path, steps=10**9)

    class Interrupting(Dummy):
        steps = 0

        def step(self, action):
            Interrupting.steps += 1
            if Interrupting.steps == 50:
                signal.raise_signal(number)  # Handled when it returns.
                signal.raise_signal(number)  # Passed on by another program.
            return super().step(action)

    setup.make_env = lambda index: Interrupting("disc", size=(8, 8), length=LENGTH)
    before = signal.getsignal(number)
    setup.train()
    assert signal.getsignal(number) is before
    step = int(setup.logger.step)
    assert 48 <= step <= 52
    assert read_item(tmp_path / "ckpt" / "agent", "step") == step
    assert signal.Signals(number).name in capsys.readouterr().out


def test_duration_ends_the_run(tmp_path):
    setup = Setup(tmp_path, steps=10**9, duration=0.2)
    setup.train()
    assert 0 < int(setup.logger.step) < 10**9


@pytest.mark.process
def test_environments_in_processes(tmp_path):
    setup = Setup(tmp_path, env_processes=True, steps=60)
    setup.make_env = make_dummy
    setup.train()
    assert int(setup.logger.step) == 60


def test_a_failing_environment_ends_the_run_with_its_error(tmp_path):
    setup = Setup(tmp_path)
    setup.make_env = lambda index: BrokenEnv(Dummy("disc"), 30)
    with pytest.raises(RuntimeError, match="broken on purpose"):
        setup.train()


def test_train_eval_keeps_evaluation_apart(tmp_path):
    setup = Setup(tmp_path, steps=100)
    setup.train_eval()
    assert int(setup.logger.step) == 100
    assert sum(map(len, setup.replay.streams.values())) == 100
    assert len(setup.output.values("eval/episode/score")) == 3
    assert len(setup.output.values("eval/mean_reward")) == 1
    assert len(setup.replay_eval) > 0
    again = Setup(tmp_path, steps=120)
    again.train_eval()
    assert len(again.replay_eval) > len(setup.replay_eval)


def test_eval_only_plays_exactly_the_episodes(tmp_path, capsys):
    Setup(tmp_path).train()
    setup = Setup(tmp_path, eval_episodes=7, eval_envs=3)
    setup.eval_only()
    assert len(setup.output.values("eval/episode/score")) == 7
    assert setup.agent.updates > 0
    assert "Score of 7 episodes: mean" in capsys.readouterr().out


def test_eval_only_needs_a_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        Setup(tmp_path).eval_only()


def test_from_checkpoint_takes_the_agent_only(tmp_path):
    first = Setup(tmp_path / "first")
    first.train()
    source = str(tmp_path / "first" / "ckpt")
    second = Setup(tmp_path / "second", from_checkpoint=source, steps=2)
    second.train()
    assert int(second.logger.step) == 2
    assert second.agent.updates == first.agent.updates


def test_evaluation_counts_short_and_long_episodes_alike(tmp_path):
    """Counting whichever episodes end first would only see the short ones."""
    Setup(tmp_path).train()
    setup = Setup(tmp_path, eval_episodes=4, eval_envs=2)
    setup.make_env = lambda index: wrappers.TimeLimit(
        Dummy("disc", size=(8, 8), length=60), (50, 2)[index]
    )
    setup.eval_only()
    lengths = np.array(setup.output.values("eval/episode/length")).tolist()
    assert sorted(lengths) == [2, 2, 50, 50]
