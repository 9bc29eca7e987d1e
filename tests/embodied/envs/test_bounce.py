"""The built-in task: perfect play is possible and random play is far from it."""

import numpy as np
import pytest

from embodied.envs.bounce import BOTTOM, RIGHT, TOP, Bounce, _bounce


def landing(state):
    """Where the ball will be when it next touches the floor."""
    x, dx, y, dy = state.x, state.dx, state.y, state.dy
    while True:
        x, dx = _bounce(x + dx, dx, 0, RIGHT)
        y, dy = _bounce(y + dy, dy, TOP, BOTTOM)
        if y == BOTTOM:
            return x


def perfect(env):
    return 1 + int(np.sign(landing(env._state) - env._state.paddle))


def play(env, policy, episodes):
    scores, optimal = [], []
    for _ in range(episodes):
        obs = env.step({"reset": True})
        optimal.append(env.remaining_score)
        score = 0.0
        while not obs["is_last"]:
            obs = env.step({"reset": False, "action": policy(env)})
            score += float(obs["reward"])
        scores.append(score)
    return np.array(scores), np.array(optimal)


@pytest.mark.parametrize("length", [1, 7, 100])
def test_perfect_play_earns_the_optimal_score(length):
    scores, optimal = play(Bounce("32", length=length), perfect, 50)
    np.testing.assert_array_equal(scores, optimal)


def test_random_play_is_far_from_optimal():
    rng = np.random.default_rng(0)
    scores, optimal = play(Bounce("32"), lambda env: rng.integers(3), 100)
    assert scores.mean() < 0.4 * optimal.mean()


def test_image_shows_ball_and_paddle():
    env = Bounce("64")
    image = env.step({"reset": True})["image"]
    assert image.shape == (64, 64, 3)
    colors = {tuple(pixel) for pixel in image.reshape(-1, 3).tolist()}
    assert len(colors) == 4
