"""TensorBoard files, read by TensorBoard."""

import io

import numpy as np
import PIL.Image
import pytest

from embodied.metrics.tensorboard import TensorBoardOutput

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator"
)
CONFIG = {"task": "bounce_32", "run.steps": 500}


def read(directory):
    # Without limits, so that nothing is thinned out.
    reader = accumulator.EventAccumulator(str(directory), {"images": 0, "scalars": 0})
    return reader.Reload()


def write(directory, *batches):
    output = TensorBoardOutput(directory, 10, CONFIG)
    for batch in batches:
        output(batch)
    output.close()


def text_of(events, tag):
    (event, *_) = events.Tensors(f"{tag}/text_summary")
    return event.tensor_proto.string_val[0].decode()


def test_every_kind(tmp_path, every_kind, frames):
    write(tmp_path, every_kind)
    events = read(tmp_path)
    scores = [(event.step, event.value) for event in events.Scalars("episode/score")]
    assert scores == [(10, 1.5), (20, 1.5), (20, 2.5)]
    assert np.isnan(events.Scalars("train/bad")[0].value)
    histogram = events.Histograms("train/dist")[0].histogram_value
    assert histogram.num == sum(histogram.bucket) == 100
    assert histogram.max == dict(enumerate(every_kind))[3][2].max()
    image = PIL.Image.open(io.BytesIO(_image(events, "report/image")))
    assert (np.array(image) == frames[0]).all()
    assert text_of(events, "parallel/bottleneck") == "actor: it is busy 90 %, é"
    assert "| task | bounce_32 |" in text_of(events, "config")


def test_videos_are_animated(tmp_path, every_kind, frames):
    write(tmp_path, every_kind)
    image = PIL.Image.open(io.BytesIO(_image(read(tmp_path), "report/openloop/image")))
    assert (image.format, image.n_frames, image.size) == ("GIF", 6, (47, 33))
    for index, frame in enumerate(frames):
        image.seek(index)
        difference = np.array(image.convert("RGB")).astype(int) - frame
        assert np.abs(difference).mean() < 4


def test_a_run_that_goes_on_replaces_what_it_repeats(tmp_path):
    steps = [[(step, "a", np.asarray(0))] for step in (1, 2, 3)]
    write(tmp_path / "run", *steps)
    (first,) = (tmp_path / "run").glob("events*")
    first.rename(first.with_name("events.out.tfevents.1.first"))  # Sorts before.
    write(tmp_path / "run", [(2, "a", np.asarray(5))], [(3, "a", np.asarray(6))])
    events = read(tmp_path / "run").Scalars("a")
    assert [(e.step, e.value) for e in events] == [(1, 0), (2, 5), (3, 6)]


def _image(events, tag):
    return events.Images(tag)[0].encoded_image_string
