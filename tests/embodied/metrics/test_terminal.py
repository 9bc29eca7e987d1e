"""Plain lines in the terminal, and what is known of a run."""

import io
import math

import numpy as np
import pytest

from embodied.metrics import Status, TerminalOutput, formatting
from embodied.metrics.status import Curve, Progress


def make_output(pattern=".*", **options):
    file, now = io.StringIO(), [0.0]
    status = Status(pattern, steps=1000, clock=lambda: now[0])
    return TerminalOutput(status=status, file=file, **options), file, now


def test_matching_scalars_are_averaged_in_one_line():
    output, file, now = make_output("score|fps")
    now[0] = 42.9
    output(
        [
            (1000, "fps/train", 1234.5),
            (1000, "episode/score", 1.0),
            (1200, "episode/score", 2.0),
            (1200, "fps/policy", 51.26),
            (1200, "train/loss", 9),
            (1200, "episode/score_video", np.zeros((2, 4, 4, 3), np.uint8)),
        ]
    )
    assert file.getvalue() == (
        "step 1,200  0:42  score 1.5  policy 51.3 env steps/s  "
        "train 1,234 replayed steps/s\n"
    )


def test_the_order_of_columns_is_fixed():
    output, file, _ = make_output()
    output([(1, "b", 1), (1, "fps/policy", 2), (1, "a", 3), (1, "episode/score", 4)])
    output([(1, "episode/score", 4), (1, "a", 3), (1, "b", 1), (1, "fps/policy", 2)])
    first, second = file.getvalue().splitlines()
    assert first == second == "step 1  0:00  score 4  policy 2 env steps/s  a 3  b 1"


def test_nothing_to_show_prints_nothing():
    output, file, _ = make_output("score")
    output([(1, "loss", 1.0)])
    output([])
    assert file.getvalue() == ""


def test_long_lines_are_cut_and_values_may_be_nan():
    output, file, _ = make_output(limit=1)
    output([(1, "a", np.nan), (1, "b", 2), (1, "c", 3)])
    assert file.getvalue() == "step 1  0:00  a nan  (+2 more, see metrics.jsonl)\n"


def test_texts_get_a_line_of_their_own_when_they_come():
    output, file, _ = make_output()
    output([(1, "a", 1), (1, "hint", "look here")])
    output([(2, "a", 1)])
    lines = ["step 1  0:00  a 1", "hint: look here", "step 2  0:00  a 1"]
    assert file.getvalue().splitlines() == lines


def test_what_a_run_waits_for_is_told_until_it_trains():
    def waiting(status):
        return "" if status.trained else "for updates"

    output, file, _ = make_output(waiting=waiting)
    assert file.getvalue() == "Waiting: for updates.\n"
    output([(5, "fps/policy", 0.0), (5, "replay/items", 0)])
    output([(6, "fps/policy", 3.0), (6, "fps/train", 2.0)])
    output([(6, "fps/policy", 0.0), (6, "fps/train", 2.0)])
    assert file.getvalue().splitlines()[1:] == [
        "step 5  0:00  replay 0 sequences  waiting for updates",
        "step 6  0:00  policy 3 env steps/s  train 2 replayed steps/s",
        "step 6  0:00  policy 0 env steps/s  train 2 replayed steps/s",
    ]


def test_the_time_left_follows_from_counts():
    progress = Progress(1000)
    for second in range(60):
        progress.see(second, 0)  # It compiles.
    assert progress.left(60) == math.inf
    for second in range(60, 81):
        progress.see(second, (second - 60) * 10)
    assert progress.fraction == 0.2
    assert progress.rate() == 10
    assert progress.left(80) == 80


def test_a_run_that_goes_on_is_not_infinitely_fast():
    progress = Progress(1000)
    progress.see(1, 0)
    progress.see(2, 500)  # The count of its checkpoint.
    progress.see(50, 500)
    assert progress.rate() == 0
    progress.see(60, 510)
    assert progress.rate() == 1


def test_the_time_to_compile_does_not_count():
    now = [0.0]
    status = Status(steps=1000, clock=lambda: now[0])
    recorded = [(1, 20, 0), (100, 21, 0), (101, 22, 9.0), (111, 32, 9.0)]
    for now[0], step, trained in recorded:
        status.add([(step, "fps/train", trained)])
    assert status.progress.rate() == 1


def test_old_speed_is_forgotten():
    progress = Progress(10**6)
    for second in range(0, 1000, 5):
        progress.see(second, 100 * min(second, 500) + max(0, second - 500) + 1)
    assert progress.rate() == pytest.approx(1, rel=0.01)


def test_the_end_may_be_one_of_time():
    progress = Progress(1000, duration=100)
    progress.see(1, 1)
    progress.see(30, 30)
    assert progress.left(30) == 70


def test_a_long_curve_keeps_its_shape():
    curve = Curve(size=16)
    for value in range(10000):
        curve.add(value)
    points = curve.points(8)
    assert len(points) == 8
    assert points == sorted(points)
    assert points[0] < 2000
    assert points[-1] > 8000


def test_sparklines():
    assert formatting.sparkline(range(8)) == "▁▂▃▄▅▆▇█"
    assert formatting.sparkline([1, -1, 0]) == "█▁▅"
    assert formatting.sparkline([]) == ""
    assert formatting.sparkline([3.0, 3.0]) == "▁▁"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9, "0:09"),
        (3723, "1:02:03"),
        (90000, "1 d 1:00"),
        (1e10, "more than 99 d"),
        (math.inf, "more than 99 d"),
    ],
)
def test_durations(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(2, "2"), (2.41799, "2.42"), (12345.6, "12,346"), (1e12, "1e+12"), (-0.5, "-0.5")],
)
def test_numbers(value, text):
    assert formatting.number(value) == text
