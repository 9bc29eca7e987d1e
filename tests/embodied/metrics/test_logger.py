"""The logger and its background outputs: nothing lost, nobody held up."""

import threading

import elements
import numpy as np
import pytest

from embodied.metrics import Background, JSONLOutput, Logger, background
from embodied.testing import RecordedOutput

WAIT = 20.0  # Seconds after which a test that hangs fails.


class Gate:
    """An output that stands still until it is opened."""

    def __init__(self):
        self.entered, self.open = threading.Event(), threading.Event()
        self.written = []
        self.closed = False

    def __call__(self, summaries):
        self.entered.set()
        assert self.open.wait(WAIT)
        self.written += summaries

    def close(self):
        self.closed = True


class Broken:
    """An output that fails as often as told."""

    def __init__(self, times):
        self.times = times
        self.written = []

    def __call__(self, summaries):
        if self.times:
            self.times -= 1
            raise OSError("No space left on device\nand more")
        self.written += summaries


@pytest.fixture
def recorded():
    return RecordedOutput()


def make_logger(**outputs):
    named = [Background(name, lambda o=out: o) for name, out in outputs.items()]
    return Logger(elements.Counter(), named)


def names(summaries):
    return [name for _, name, _ in summaries]


def test_the_example_of_the_seed(recorded):
    logger = make_logger(recorded=recorded)
    logger.add({"loss/dyn": 0.5, "loss/rep": 0.3}, prefix="train")
    logger.add({"score": 42.0, "length": 1000}, prefix="episode")
    logger.write()
    logger.close()
    assert isinstance(logger, elements.Logger)
    assert recorded.values("train/loss/dyn") == [0.5]
    assert recorded.values("episode/score") == [42.0]


def test_what_was_added_but_not_written_comes_with_close(recorded):
    logger = make_logger(recorded=recorded)
    for index in range(100):
        logger.add({"a": index})
        if index % 3 == 0:
            logger.write()
    logger.close()
    logger.close()
    assert recorded.values("a") == list(range(100))


def test_many_threads(recorded):
    logger = make_logger(recorded=recorded)

    def work(number):
        for index in range(200):
            logger.add({f"a{number}": index})
            if index % 7 == 0:
                logger.write()

    threads = [threading.Thread(target=work, args=[i]) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    logger.close()
    for number in range(4):
        assert recorded.values(f"a{number}") == list(range(200))


@pytest.mark.parametrize("value", [None, b"x", np.zeros((2,) * 5), np.zeros((0, 3))])
def test_a_bad_value_is_named_and_harms_nothing(recorded, value):
    logger = make_logger(recorded=recorded)
    with pytest.raises(TypeError, match="'train/strange'"):
        logger.add({"good": 1, "strange": value}, prefix="train")
    logger.add({"good": 2}, prefix="train")
    logger.close()
    assert recorded.values("train/good") == [2]


def test_a_slow_output_blocks_nobody_and_drops_what_is_too_much(recorded, capsys):
    gate = Gate()
    slow = Background("slow", lambda: gate, limit=4000)
    logger = Logger(elements.Counter(), [slow, Background("fast", lambda: recorded)])
    logger.add({"first": np.zeros(10_000)})  # One that is too large alone is taken.
    logger.write()
    assert gate.entered.wait(WAIT)
    for index in range(5):
        logger.add({"image": np.full((16, 16, 3), index, np.uint8)})
        logger.write()
    assert slow.dropped > 5  # The images, and the counts of them.
    gate.open.set()
    logger.close()
    assert names(gate.written) == ["first"]
    assert gate.closed
    assert len(recorded.values("image")) == 5
    assert recorded.values("logger/dropped/slow")[-1] >= 4
    warning = capsys.readouterr().out
    assert warning.count("Logger output slow is too slow") == 1
    assert "logger/dropped/slow" in warning


def test_an_output_that_fails_is_told_once_and_tried_again(recorded, capsys):
    broken = Broken(times=2)
    logger = make_logger(broken=broken, recorded=recorded)
    for index in range(4):
        logger.add({"a": index, "b": index})
        logger.write()
        assert logger.outputs[0]._idle(WAIT)
    logger.close()
    assert recorded.values("a") == [0, 1, 2, 3]
    assert recorded.values("logger/dropped/broken") == [2, 5, 5, 5]
    assert names(broken.written)[:3] == ["a", "b", "logger/dropped/broken"]
    text = "Logger output broken failed with OSError: No space left on device. Training"
    assert capsys.readouterr().out.count(text) == 1


def test_an_output_that_cannot_be_made_is_made_later(recorded):
    tries = []

    def make():
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("no network")
        return recorded

    output = Background("late", make)
    for index in range(4):
        output([(index, "a", np.asarray(index))])
    output.close()
    assert recorded.values("a") == [2, 3]
    assert output.dropped == 2


def test_closing_has_a_deadline(recorded, capsys):
    gate = Gate()
    stuck, fast = Background("stuck", lambda: gate), Background("r", lambda: recorded)
    for output in (stuck, fast):
        output([(1, "a", np.asarray(1))])
    background.close_all([stuck, fast], deadline=0.1)
    text = capsys.readouterr().out
    assert "stuck did not close in 0.1 seconds; 1 metrics are lost" in text
    assert recorded.values("a") == [1]
    gate.open.set()
    stuck.close(WAIT)


def test_saving_waits_until_all_is_written(tmp_path):
    output = Background("jsonl", lambda: JSONLOutput(tmp_path))
    output([(1, "a", np.asarray(1))])
    data = output.save()
    assert data["jsonl"]["metrics.jsonl"] == (tmp_path / "metrics.jsonl").stat().st_size
    output([(2, "a", np.asarray(2))])
    output.load({"other": {"x": 1}})  # Of an output that was there before.
    output.load(data)
    output.close()
    assert (tmp_path / "metrics.jsonl").read_text().count("\n") == 1


def test_saving_waits_for_a_stuck_output_only_once(monkeypatch):
    waits = []
    monkeypatch.setattr(background, "PATIENCE", 0.01)
    gate = Gate()
    output = Background("stuck", lambda: gate)
    output([(1, "a", np.asarray(1))])
    assert gate.entered.wait(WAIT)
    idle = output._idle
    monkeypatch.setattr(output, "_idle", lambda t: waits.append(t) or idle(t))
    assert [output.save(), output.save()] == [{"stuck": None}] * 2
    assert waits == [0.01, 0]
    gate.open.set()
    output.close(WAIT)


def test_patience_keeps_lines_in_order(capsys):
    output = Background(
        "terminal", lambda: lambda summaries: print("in"), patience=WAIT
    )
    output([(1, "a", np.asarray(1))])
    print("after")
    assert capsys.readouterr().out == "in\nafter\n"
    output.close()
