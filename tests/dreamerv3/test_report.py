"""The report: layout of the videos and what else it holds."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from dreamerv3.model import report


def test_video_layout():
    truth = np.zeros((2, 4, 8, 8, 3), np.uint8)
    truth[:, :, :, :4] = 200
    pred = np.full((2, 4, 8, 8, 3), 0.5, np.float32)
    seen = jnp.array([True, True, False, False])
    frames = np.asarray(report.video(truth, pred, seen))
    assert frames.shape == (4 + 10, 3 * 8 + 4, 2 * (8 + 4), 3)
    assert frames.dtype == np.uint8
    assert (frames[4:] == frames[3]).all(), "a pause on the last frame"
    np.testing.assert_array_equal(frames[0, 0, 0], report.GREEN)
    np.testing.assert_array_equal(frames[2, 0, 0], report.RED)
    tile = frames[0, 2:-2, 2:10]
    np.testing.assert_allclose(tile[:8], truth[0, 0], atol=1)
    np.testing.assert_allclose(tile[8:16], 127, atol=1)
    error = (127.5 - truth[0, 0].astype(np.float32) + 255) / 2
    np.testing.assert_allclose(tile[16:], error, atol=1)


def test_gray_and_stacked_images_become_three_channels():
    for channels in (1, 4):
        image = np.full((1, 2, 8, 8, channels), 100, np.uint8)
        pred = np.zeros((1, 2, 8, 8, channels), np.float32)
        assert report.video(image, pred, jnp.array([True, False])).shape[-1] == 3


def test_report_holds_losses_videos_and_curves(kit):
    agent = kit.agent(**{"agent.report_gradnorms": True})
    carry, data = agent.init_report(kit.batch_size), kit.batch(agent)
    before = agent.save()
    carry, metrics = agent.report(carry, data)
    after = agent.save()
    assert all((before[k] == after[k]).all() for k in before)
    assert metrics["openloop/image"].shape == (6 + 10, 3 * 16 + 4, 4 * 20, 3)
    assert metrics["openloop/image"].dtype == np.uint8
    assert metrics["openloop_curve/vector"].shape == (6,)
    assert metrics["openloop_curve/token"].shape == (6,)
    losses = {k[5:] for k in metrics if k.startswith("loss/")} - {"total"}
    assert losses == {k[9:] for k in metrics if k.startswith("gradnorm/")}
    assert {"image", "dyn", "policy", "repval"} <= losses
    assert metrics["gradnorm/image"] > 0


def test_open_loop_ignores_later_observations(kit):
    """The imagined half depends on the actions, not on what was seen."""
    agent = kit.agent()
    data = kit.batch(agent)
    changed = {k: v.copy() for k, v in data.items()}
    half = agent.model.context + kit.length // 2
    changed["image"][:, half:] = 255 - changed["image"][:, half:]
    changed["vector"][:, half:] += 3
    videos = []
    for batch in (data, changed):
        carry = agent.init_report(kit.batch_size)
        videos.append(agent.report(carry, batch)[1]["openloop/image"])
    pred = slice(2 + 16, 2 + 32)
    np.testing.assert_array_equal(videos[0][:, pred], videos[1][:, pred])
    assert (videos[0][:, 2:18] != videos[1][:, 2:18]).any()
