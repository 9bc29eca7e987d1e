"""Episode statistics."""

import numpy as np

from embodied.core.episodes import MAX_FRAMES, EpisodeTracker


def steps(rewards, firsts, lasts, **extra):
    return {
        "reward": np.array(rewards, np.float32),
        "is_first": np.array(firsts),
        "is_last": np.array(lasts),
        **extra,
    }


def test_score_and_length_per_worker():
    tracker = EpisodeTracker()
    tracker.add_batch(steps([0, 0], [True, True], [False, False]), [3, 7])
    done = tracker.add_batch(steps([1, 2], [False, False], [True, False]), [3, 7])
    assert [(e.worker, e.score, e.length) for e in done] == [(3, 1.0, 1)]
    done = tracker.add_batch(steps([2], [False], [True]), [7])
    assert [(e.worker, e.score, e.length) for e in done] == [(7, 4.0, 2)]
    assert len(tracker) == 0


def test_episode_joined_in_the_middle_does_not_count():
    tracker = EpisodeTracker()
    assert not tracker.add_batch(steps([1], [False], [True]), [0])


def test_first_step_discards_an_abandoned_episode():
    tracker = EpisodeTracker()
    tracker.add_batch(steps([0], [True], [False]), [0])
    tracker.add_batch(steps([5], [False], [False]), [0])
    tracker.add_batch(steps([0], [True], [False]), [0])
    (episode,) = tracker.add_batch(steps([1], [False], [True]), [0])
    assert episode.score == 1


def test_log_keys_become_statistics():
    tracker = EpisodeTracker()
    first = {"log/speed": np.array([1.0], np.float32)}
    second = {"log/speed": np.array([3.0], np.float32)}
    tracker.add_batch(steps([0], [True], [False], **first), [0])
    (episode,) = tracker.add_batch(steps([0], [False], [True], **second), [0])
    expected = {"log/speed/avg": 2.0, "log/speed/max": 3.0, "log/speed/sum": 4.0}
    assert episode.stats == expected


def test_a_long_episode_takes_no_more_memory_than_a_short_one():
    tracker, sizes = EpisodeTracker(), []
    for index in range(1000):
        logs = {"log/speed": np.array([index], np.float32)}
        tracker.add_batch(steps([0], [index == 0], [False], **logs), [0])
        sizes.append(len(str(tracker.save())))
    assert sizes[-1] < 2 * sizes[1]


def test_statistics_continue_after_a_restart():
    one, two = EpisodeTracker(), EpisodeTracker()
    logs = {"log/speed": np.array([5.0], np.float32)}
    one.add_batch(steps([0], [True], [False], **logs), [0])
    two.load(one.save())
    logs = {"log/speed": np.array([1.0], np.float32)}
    (episode,) = two.add_batch(steps([0], [False], [True], **logs), [0])
    expected = {"log/speed/avg": 3.0, "log/speed/max": 5.0, "log/speed/sum": 6.0}
    assert episode.stats == expected


def test_values_of_a_release_0_1_are_summed_up():
    tracker = EpisodeTracker()
    saved = {"score": 1.0, "length": 2, "logs": {"log/speed": [5.0, 2.0, 2.0]}}
    tracker.load({"0": saved})
    (episode,) = tracker.add_batch(steps([0], [False], [True]), [0])
    expected = {"log/speed/avg": 3.0, "log/speed/max": 5.0, "log/speed/sum": 9.0}
    assert episode.stats == expected


def test_only_the_recorded_worker_has_a_bounded_video():
    tracker = EpisodeTracker(record=1)
    image = {"image": np.zeros((2, 4, 4, 3), np.uint8)}
    for index in range(MAX_FRAMES + 50):
        first, last = index == 0, index == MAX_FRAMES + 49
        batch = steps([0, 0], [first] * 2, [last] * 2, **image)
        done = tracker.add_batch(batch, [0, 1])
    assert [set(e.videos) for e in done] == [set(), {"image"}]
    assert len(done[1].videos["image"]) == MAX_FRAMES + 1


def test_stale_episodes_are_dropped():
    now = [0.0]
    tracker = EpisodeTracker(timeout=10, now=lambda: now[0])
    tracker.add_batch(steps([0, 0], [True, True], [False, False]), [0, 1])
    for now[0] in range(1, 13):
        assert tracker.drop_stale() == ([0] if now[0] == 11 else [])
        tracker.add_batch(steps([0], [False], [False]), [1])
    assert not tracker.add_batch(steps([1], [False], [True]), [0])
    assert len(tracker.add_batch(steps([1], [False], [True]), [1])) == 1


def test_time_in_which_the_run_holds_all_environments_back_does_not_count():
    now = [0.0]
    tracker = EpisodeTracker(timeout=10, now=lambda: now[0])
    tracker.add_batch(steps([0, 0], [True, True], [False, False]), [0, 1])
    for _ in range(3):  # A learner compiles, or the whole run is suspended.
        now[0] += 1000.0
        assert tracker.drop_stale() == []
        tracker.add_batch(steps([0], [False], [False]), [1])
        assert tracker.drop_stale() == []
    assert len(tracker.add_batch(steps([1], [False], [True]), [0])) == 1


def test_of_an_episode_with_partial_steps_only_the_score_is_known():
    logs = {"log/speed": np.array([1.0]), "image": np.zeros((1, 4, 4, 3), np.uint8)}
    tracker, restored = EpisodeTracker(record=0), EpisodeTracker(record=0)
    tracker.add_batch(steps([0], [True], [False], **logs), [0])
    tracker.add_batch(steps([2], [False], [False]), [0], partial=True)
    restored.load(tracker.save())
    for each in (tracker, restored):
        (episode,) = each.add_batch(steps([3], [False], [True], **logs), [0])
        assert (episode.score, episode.length) == (5, 2)
        assert episode.stats == episode.videos == {}
