"""The scoreboard: episodes, steps, what a killed logger must not lose or repeat."""

import json

import elements
import numpy as np
import pytest

from embodied.metrics import JSONLOutput
from embodied.run.parallel.bottleneck import ACTOR_BUSY, LEARNER_WAIT
from embodied.run.parallel.logger import Scoreboard
from embodied.run.parallel.outbox import PARTIAL, STEP
from embodied.run.parallel.steps import StepsError
from embodied.run.settings import RunSettings
from embodied.testing import RecordedOutput

ENVS = 2  # Training environments; the evaluation ids follow.


class Life:
    """One life of the logger process on a directory."""

    def __init__(self, directory):
        self.directory = directory
        self.output = RecordedOutput()
        outputs = [self.output, JSONLOutput(directory, clock=lambda: 0.0)]
        self.logger = elements.Logger(elements.Counter(), outputs)
        args = RunSettings.of(
            {"logdir": "unused", "envs": ENVS, "episode_timeout": 1e9}
        )
        self.board = Scoreboard(self.logger, directory / "ckpt" / "logger", args)

    def do(self, call):
        method, *args = call
        getattr(self.board, method)(*args)

    def values(self, name):
        return [np.asarray(value).item() for value in self.output.values(name)]

    def files(self):
        names = ("scores.jsonl", "metrics.jsonl")
        return {name: (self.directory / name).read_text() for name in names}


class Killed(BaseException):
    """Stands for the end of the process at this point."""


def kill(*args, **kwargs):
    raise Killed


@pytest.fixture
def episode(make_steps):
    """The calls that tell one episode of an environment, with rewards 0.1, 0.2..."""

    def make(envid, seq, step, length=3, **more):
        for index in range(length + 1):
            steps = make_steps(
                [envid],
                [seq + index],
                first=index == 0,
                last=index == length,
                reward=0.1 * index,
                **{key: value[index : index + 1] for key, value in more.items()},
            )
            yield "tran", {**steps, STEP: step + index}

    return make


@pytest.fixture
def script(make_steps):
    """All calls of a small run: two environments, metrics, and writes in between."""
    rng = np.random.default_rng(0)
    calls = []
    ages = np.zeros(2, int)
    for seq in range(12):
        last = rng.random(2) < 0.3
        steps = make_steps(
            [0, 1], [seq, seq], ages == 0, last, reward=rng.standard_normal(2)
        )
        steps["log/speed"] = rng.standard_normal(2)
        calls.append(("tran", {**steps, STEP: 2 * (seq + 1)}))
        ages = np.where(last, 0, ages + 1)
        if seq % 4 == 1:
            calls.append(("add", {"train/loss": 1 / (seq + 1)}, ("learner", seq)))
        if seq % 5 == 3:
            calls.append(("write",))
    return [*calls, ("write",)]


@pytest.fixture
def expected(tmp_path, script):
    """The files of a run that nobody interrupts."""
    life = Life(tmp_path / "uninterrupted")
    for call in script:
        life.do(call)
    life.board.close()
    files = life.files()
    assert files["scores.jsonl"].count("\n") >= 5
    return files


def test_episodes_and_steps(tmp_path, episode):
    life = Life(tmp_path)
    for call in [*episode(0, 5, step=1), *episode(1, 5, step=5, length=1)]:
        life.do(call)
    life.board.write()
    assert life.values("episode/score") == pytest.approx([0.6, 0.1])
    assert life.values("episode/length") == [3, 1]
    rows = life.files()["scores.jsonl"].splitlines()
    assert [json.loads(row)["step"] for row in rows] == [4, 6]
    assert int(life.logger.step) == 6


def test_evaluation_is_logged_apart(tmp_path, make_steps):
    life = Life(tmp_path)
    for index in range(3):
        steps = make_steps(
            [0, ENVS],
            [index, index],
            index == 0,
            index == 2,
            [1, 10],
            is_eval=[False, True],
        )
        steps["log/speed"] = np.array([2.0, 20.0])
        life.board.tran({**steps, STEP: index + 1})
    life.board.write()
    assert life.values("episode/score") == [3]
    assert life.values("eval/episode/score") == [30]
    assert life.values("epstats/log/speed/avg") == [2]
    assert life.values("eval/epstats/log/speed/avg") == [20]


def test_videos_of_the_first_environment_of_each_kind(tmp_path, episode):
    life = Life(tmp_path)
    images = np.zeros((4, 8, 8, 3), np.uint8)
    for envid in range(ENVS):
        for call in episode(envid, 0, step=1, image=images):
            life.do(call)
    life.board.write()
    assert [v.shape for v in life.output.values("epstats/image")] == [(4, 8, 8, 3)]


def test_a_step_told_twice_counts_once(tmp_path, episode):
    life = Life(tmp_path)
    calls = list(episode(0, 5, step=1))
    for call in [*calls[:2], *calls[:3], *calls, *calls]:
        life.do(call)
    life.board.write()
    assert life.values("episode/score") == pytest.approx([0.6])
    assert int(life.logger.step) == 4


def test_plain_steps_are_counted_here(tmp_path, make_plain_steps):
    """Without `seq`, `env_time` and `step`, as the documents of the product send them.

    Also after a kill, which has the journal do the calls again.
    """
    life = Life(tmp_path)
    for index in range(3):
        first, last = index == 0, index == 2
        evals = [False, False, True]
        steps = make_plain_steps(
            [0, 1, 2], first=first, last=last, reward=[1, 2, 3], is_eval=evals
        )
        steps.pop("is_terminal")
        life.board.tran(steps)
    again = Life(tmp_path)
    for each in (life, again):
        each.board.write()
        assert each.values("episode/score") == [3, 6]
        assert each.values("eval/episode/score") == [9]
        assert int(each.logger.step) == 6


def test_steps_without_is_eval_are_for_training(tmp_path, make_plain_steps):
    life = Life(tmp_path)
    steps = make_plain_steps([0], first=True, last=True)
    del steps["is_eval"]
    life.board.tran(steps)
    life.board.write()
    assert (len(life.values("episode/score")), int(life.logger.step)) == (1, 1)


def test_numbered_and_plain_steps_of_one_environment(
    tmp_path, make_steps, make_plain_steps
):
    life = Life(tmp_path)
    for seq in (5, 6, 5):  # The last one is a repetition.
        life.board.tran(make_steps([0], [seq], first=True, last=True, reward=seq))
        life.board.tran(make_plain_steps([0], first=True, last=True, reward=1))
    life.board.write()
    assert life.values("episode/score") == [5, 1, 6, 1, 1]
    assert int(life.logger.step) == 5


def test_a_batch_may_be_new_in_part(tmp_path, make_steps):
    life = Life(tmp_path)
    life.board.tran({**make_steps([0], [1], first=True, reward=1), STEP: 1})
    both = make_steps([0, 1], [1, 1], first=True, last=True, reward=[5, 7])
    life.board.tran({**both, STEP: 2})
    life.board.write()
    assert life.values("episode/score") == [7]


def test_the_step_never_falls(tmp_path, episode):
    life = Life(tmp_path)
    for call in [*episode(0, 0, step=100), *episode(0, 10, step=7)]:
        life.do(call)
    assert int(life.logger.step) == 103


@pytest.mark.parametrize("torn", [b"", b'{"step": 3, "episode/sc'])
def test_a_kill_between_any_two_calls_changes_nothing(tmp_path, script, expected, torn):
    for point in range(len(script) + 1):
        directory = tmp_path / f"killed{point}"
        life = Life(directory)
        for call in script[:point]:
            life.do(call)
        with (directory / "scores.jsonl").open("ab") as file:
            file.write(torn)
        life = Life(directory)
        for call in script[point:]:
            life.do(call)
        assert life.files() == expected, point


@pytest.mark.parametrize(
    ("owner", "method"),
    [
        ("_logger", "write"),
        ("_checkpoint", "save"),  # The outputs have it, the checkpoint not.
        ("_journal", "clear"),  # The checkpoint has it, so has the journal.
    ],
)
def test_a_kill_within_a_write_changes_nothing(
    tmp_path, script, expected, monkeypatch, owner, method
):
    points = [index for index, call in enumerate(script) if call == ("write",)]
    for point in points:
        directory = tmp_path / f"killed{point}"
        life = Life(directory)
        for call in script[:point]:
            life.do(call)
        monkeypatch.setattr(getattr(life.board, owner), method, kill)
        with pytest.raises(Killed):
            life.board.write()
        saved = owner == "_journal"
        life = Life(directory)
        for call in script[point + saved :]:
            life.do(call)
        assert life.files() == expected, point


def test_a_kill_before_the_answer_makes_the_sender_repeat(
    tmp_path, script, expected, monkeypatch
):
    points = [index for index, call in enumerate(script) if call[0] != "write"]
    for point in points:
        for noted in (False, True):
            directory = tmp_path / f"killed{point}{noted}"
            life = Life(directory)
            for call in script[:point]:
                life.do(call)
            if noted:
                life.do(script[point])
            else:
                monkeypatch.setattr(life.board._journal, "append", kill)
                with pytest.raises(Killed):
                    life.do(script[point])
            life = Life(directory)
            for call in script[point:]:
                life.do(call)
            assert life.files() == expected, (point, noted)


def test_two_kills_in_a_row_change_nothing(tmp_path, script, expected):
    life = Life(tmp_path / "killed")
    for index, call in enumerate(script):
        life.do(call)
        if index % 3 == 0:
            Life(life.directory)
            life = Life(life.directory)
    assert life.files() == expected


def test_a_clean_end_and_a_new_start_go_on(tmp_path, script, expected):
    half = len(script) // 2
    life = Life(tmp_path / "resumed")
    for call in script[:half]:
        life.do(call)
    life.board.write()
    life.board.close()
    life = Life(life.directory)
    for call in script[half:]:
        life.do(call)
    assert life.files()["scores.jsonl"] == expected["scores.jsonl"]


@pytest.mark.parametrize(
    "bad",
    [None, b"bytes", {"nested": 1}, [[1], [2, 3]], 1j, object(), np.zeros((1,) * 5)],
    ids=lambda value: type(value).__name__,
)
def test_a_metric_that_cannot_be_written_is_refused(tmp_path, bad):
    life = Life(tmp_path)
    life.board.add({"before": 1})
    with pytest.raises((TypeError, ValueError)):
        life.board.add({"bad": bad})
    life.board.add({"after": 2})
    again = Life(tmp_path)
    for each in (life, again):
        each.board.write()
        assert (each.values("before"), each.values("after")) == ([1], [2])
        assert each.values("bad") == []


@pytest.mark.parametrize("missing", ["reward", "is_first", "is_last", "envid"])
def test_steps_that_lack_something_are_refused(tmp_path, episode, missing):
    life = Life(tmp_path)
    for call in episode(0, 5, step=1):
        life.do(call)
    (_, steps), *_ = episode(1, 5, step=5)
    del steps[missing]
    with pytest.raises(StepsError, match=f"^'{missing}' is missing: .*each step"):
        life.board.tran(steps)
    for call in episode(1, 6, step=6):
        life.do(call)
    again = Life(tmp_path)
    for each in (life, again):
        each.board.write()
        assert each.values("episode/score") == pytest.approx([0.6, 0.6])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log/x", np.zeros(3)),  # For one row.
        ("log/x", np.array(["text"])),
        ("log/x", [1.0]),
        ("image", np.zeros((2, 8, 8, 3), np.uint8)),
        ("is_last", np.zeros((1, 1), bool)),
        ("is_eval", np.zeros(1, np.int32)),
        ("seq", np.zeros(2, np.int64)),
        (STEP, "soon"),
    ],
)
def test_steps_that_are_refused_leave_no_trace(tmp_path, episode, key, value):
    life = Life(tmp_path)
    before = life.board.save()
    (_, steps), *rest = episode(0, 5, step=7)
    with pytest.raises((TypeError, ValueError)):
        life.board.tran({**steps, key: value})
    assert life.board.save() == before
    life.board.tran(steps)  # As it should be: it was not seen before.
    for call in rest:
        life.do(call)
    life.board.write()
    assert life.values("episode/score") == pytest.approx([0.6])


@pytest.mark.parametrize("name", ["fps/train", "parallel/learner_wait"])
def test_metrics_that_are_refused_leave_no_trace(tmp_path, name):
    life = Life(tmp_path)
    with pytest.raises((TypeError, ValueError)):
        life.board.add({"other": 1, name: np.zeros(3)})
    life.board.write()
    assert life.values("other") == []


def test_metrics_of_all_kinds_are_accepted(tmp_path):
    metrics = {
        "text": "words",
        "flag": True,
        "float": np.float32(0.5),
        "vector": [1, 2],
        "image": np.zeros((4, 4, 3), np.uint8),
    }
    life = Life(tmp_path)
    life.board.add(metrics)
    life.board.write()
    for name in metrics:
        assert len(life.output.values(name)) == 1


def test_stale_episodes_are_dropped_and_counted(tmp_path, episode):
    life = Life(tmp_path)
    now = [0.0]
    life.board._train._now = lambda: now[0]
    life.board._train._timeout = 60
    calls = list(episode(0, 5, step=1))
    for call in calls[:2]:
        life.do(call)
    life.board.write()
    for call in episode(1, 5, step=3, length=61):  # One second each.
        life.do(call)
        now[0] += 1
    life.board.write()
    for call in calls[2:]:
        life.do(call)
    life.board.write()
    assert life.values("parallel/stale_episodes") == [0, 1, 0]
    assert life.values("episode/length") == [61]


def test_the_last_steps_that_were_seen_survive_a_kill(tmp_path, episode):
    life = Life(tmp_path)
    assert [len(value) for value in life.board.seen().values()] == [0, 0]
    for call in [*episode(1, 5, step=1), *episode(0, 2**40, step=5, length=1)]:
        life.do(call)
    for board in (life.board, Life(tmp_path).board):
        seen = board.seen()
        assert seen["envid"].tolist() == [1, 0]
        assert seen["seq"].tolist() == [8, 2**40 + 1]


def test_partial_steps_complete_an_episode(tmp_path, episode):
    life = Life(tmp_path)
    speed = {"log/speed": np.arange(4.0)}
    *calls, (method, last) = episode(0, 5, step=1, **speed)
    for call in [*calls, (method, {**last, PARTIAL: True})]:
        life.do(call)
    life.board.write()
    assert life.values("episode/score") == pytest.approx([0.6])
    assert life.values("epstats/log/speed/avg") == []


def test_metrics_that_are_sent_again_count_once(tmp_path):
    life = Life(tmp_path)
    for number in (1, 2, 2, 1, 3):
        life.board.add({"some/metric": float(number)}, ("sender", number))
        life.board.write()
    life.board.add({"some/metric": 10.0}, ("another", 1))
    life.board.write()
    assert life.values("some/metric") == [1, 2, 3, 10]
    again = Life(tmp_path)
    again.board.add({"some/metric": 3.0}, ("sender", 3))
    again.board.write()
    assert again.values("some/metric") == []


def test_the_bottleneck_is_logged_from_the_newest_figures(tmp_path):
    life = Life(tmp_path)
    life.board.write()
    assert life.output.values("parallel/bottleneck") == []
    for wait in (0.9, 0.01):
        life.board.add({LEARNER_WAIT: wait, "fps/train": 9.0})
        life.board.add({ACTOR_BUSY: 0.9})
        life.board.write()
    lines = life.output.values("parallel/bottleneck")
    assert [line.split(":")[0] for line in lines] == ["actor", "learner"]
