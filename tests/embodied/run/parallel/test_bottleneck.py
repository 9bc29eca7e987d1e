"""Who keeps the others waiting: one plain line."""

import pytest

from embodied.run.parallel.bottleneck import (
    ACTOR_BUSY,
    ENV_BUSY,
    INSERT_WAIT,
    LEARNER_WAIT,
    SAMPLE_WAIT,
    Bottleneck,
    describe,
)


@pytest.mark.parametrize(
    ("wait", "held", "actor", "env", "who"),
    [
        (0.0, 0.0, 0.9, 0.9, "learner"),
        (0.24, 0.2, 0.1, 0.1, "learner"),
        (0.9, 0.9, 0.76, 0.9, "actor"),
        (0.9, 0.9, 0.75, 0.76, "env"),
        (0.5, 0.9, 0.1, 0.1, "replay limiter"),
        (0.5, 0.2, 0.1, 0.9, "replay"),
    ],
)
def test_one_line_names_the_bottleneck(wait, held, actor, env, who):
    shares = {LEARNER_WAIT: wait, SAMPLE_WAIT: held, ACTOR_BUSY: actor, ENV_BUSY: env}
    line = describe(shares)
    assert line.startswith(f"{who}: ")
    assert f"{actor if who == 'actor' else wait:.0%}" in line
    assert "\n" not in line


def test_a_busy_learner_tells_how_long_others_are_held_back():
    assert "throttles the envs 60%" in describe({LEARNER_WAIT: 0.1, INSERT_WAIT: 0.6})


def test_nothing_is_said_before_the_first_update():
    bottleneck = Bottleneck()
    bottleneck.see({ACTOR_BUSY: 0.9, SAMPLE_WAIT: 1.0})
    bottleneck.see({LEARNER_WAIT: 1.0, "fps/train": 0.0})  # It compiles.
    assert bottleneck.line() == ""
    bottleneck.see({LEARNER_WAIT: 0.9, "fps/train": 3.0})
    assert bottleneck.line().startswith("actor: ")


def test_the_newest_figures_count():
    bottleneck = Bottleneck()
    for env in (0.9, 0.1):
        bottleneck.see({LEARNER_WAIT: 0.9, "fps/train": 3.0})
        bottleneck.see({ACTOR_BUSY: 0.1, ENV_BUSY: env})
        bottleneck.see({SAMPLE_WAIT: 0.9})
    assert bottleneck.line().startswith("replay limiter: ")


def test_a_learner_that_stopped_training_waits():
    """No update in an interval is no figure of a start, once it has trained."""
    bottleneck = Bottleneck()
    bottleneck.see({LEARNER_WAIT: 0.1, "fps/train": 3.0})
    bottleneck.see({LEARNER_WAIT: 1.0, "fps/train": 0.0})
    assert bottleneck.line().startswith("replay limiter: ")


def test_only_news_is_told():
    bottleneck = Bottleneck()
    told = []
    for actor in (0.9, 0.85, 0.76, 0.99, 0.5, 0.45):
        shares = {LEARNER_WAIT: 0.9, SAMPLE_WAIT: 0.9, ENV_BUSY: 0.1}
        bottleneck.see({**shares, ACTOR_BUSY: actor, "fps/train": 3.0})
        told.append(bottleneck.news())
    assert "actor: busy 90%" in told[0]
    assert told[1] == told[2] == told[3] == ""
    assert told[4].startswith("replay limiter: ")
    assert told[5] == ""
    bottleneck.see({ACTOR_BUSY: 0.2})
    assert "the actor is busy 20%" in bottleneck.news()


def test_a_learner_without_shares():
    bottleneck = Bottleneck()
    bottleneck.see({"fps/train": 3.0})
    assert bottleneck.news()
    assert bottleneck.news() == ""
