"""Plain files: where they are and what is in them."""

import av
import numpy as np
import PIL.Image
import pytest

from embodied.metrics import MediaOutput
from embodied.metrics.summary import kind


def test_files(tmp_path):
    output = MediaOutput(tmp_path, fps=7)
    output(
        [
            (12, "report/openloop/image", np.zeros((3, 5, 6, 3), np.uint8)),
            (12, "map", np.full((4, 6, 3), 0.2)),
            (13, "plane", np.ones((4, 6))),
            (14, "parallel/bottleneck", "actor: é"),
            (14, "episode/score", 3.0),
            (14, "histogram", np.arange(9)),
        ]
    )
    root = tmp_path / "media"
    names = {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
    assert names == {
        "report/openloop/image/000000000012.mp4",
        "map/000000000012.png",
        "plane/000000000013.png",
        "parallel/bottleneck/000000000014.txt",
    }
    with av.open(root / "report/openloop/image/000000000012.mp4") as file:
        assert len(list(file.decode(video=0))) == 3
        assert file.streams.video[0].average_rate == 7
    assert PIL.Image.open(root / "map/000000000012.png").getpixel((0, 0)) == (51,) * 3
    text = root / "parallel/bottleneck/000000000014.txt"
    assert text.read_text(encoding="utf-8") == "actor: é"


def test_names_stay_in_the_folder(tmp_path):
    MediaOutput(tmp_path / "a")([(1, "../../../x", "1"), (1, "/b//c d/.e", "2")])
    files = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.txt")}
    assert files == {
        "a/media/_./_./_./x/000000000001.txt",
        "a/media/b/c_d/_e/000000000001.txt",
    }


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1.0, "scalar"),
        (np.int32(1), "scalar"),
        (True, "scalar"),
        (np.zeros(3), "histogram"),
        (np.zeros((2, 3)), "image"),
        (np.zeros((2, 3, 1)), "image"),
        (np.zeros((4, 2, 3, 1)), "video"),
        ("", "text"),
    ],
)
def test_kinds(value, expected):
    assert kind("a", value) == expected


@pytest.mark.parametrize(
    "value", [None, object(), b"x", np.zeros((1,) * 5), np.zeros((0, 4, 4, 3)), 1j]
)
def test_a_bad_value_is_named(value):
    with pytest.raises(TypeError, match="'train/strange'"):
        kind("train/strange", value)
