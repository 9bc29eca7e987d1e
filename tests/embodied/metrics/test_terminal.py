"""Plain lines in the terminal."""

import io

import numpy as np

from embodied.metrics import TerminalOutput


def test_matching_scalars_are_averaged_in_one_line():
    file = io.StringIO()
    output = TerminalOutput("score|fps", file=file)
    output(
        [
            (1000, "episode/score", 1.0),
            (1200, "episode/score", 2.0),
            (1200, "fps/train", 1234.5),
            (1200, "train/loss", 9),
            (1200, "episode/score_video", np.zeros((2, 4, 4, 3), np.uint8)),
        ]
    )
    assert file.getvalue() == "step 1,200  episode/score 1.5  fps/train 1.23e+03\n"


def test_nothing_to_show_prints_nothing():
    file = io.StringIO()
    TerminalOutput("score", file=file)([(1, "loss", 1.0)])
    assert file.getvalue() == ""


def test_long_lines_are_cut_and_values_may_be_nan():
    file = io.StringIO()
    TerminalOutput(limit=1, file=file)([(1, "a", np.nan), (1, "b", 2), (1, "c", 3)])
    assert file.getvalue() == "step 1  a nan  (+2 more, see metrics.jsonl)\n"


def test_texts_get_a_line_of_their_own():
    file = io.StringIO()
    TerminalOutput(file=file)([(1, "a", 1), (1, "hint", "look here")])
    assert file.getvalue() == "step 1  a 1\nhint: look here\n"
