"""Contract suites: what every environment, agent, replay and stream must do.

Each takes a factory, raises `AssertionError` with the broken rule, and decides from
counts and values, never from time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from embodied.core import base, env_rules, wrappers
from embodied.core.random_agent import draw
from embodied.testing.walk import Walk


def check_env(make_env: Callable[[], base.Env], steps: int = 300, seed: int = 0) -> int:
    """Step an environment with random actions; returns the episodes completed."""
    env = make_env()
    try:
        for fault in env_rules.space_faults(env):
            raise AssertionError(str(fault))
        return _check_steps(env, steps, seed)
    finally:
        env.close()
        env.close()  # Closing twice is allowed.


def _check_steps(env: base.Env, steps: int, seed: int) -> int:
    episodes, walk, spaces = 0, Walk(env, seed), env.obs_space
    for _ in range(steps):
        obs = walk.step()
        for fault in env_rules.step_faults(obs, spaces, walk.reset):
            raise AssertionError(str(fault))
        episodes += bool(obs[base.IS_LAST])
    return episodes


def check_agent(
    make_agent: Callable[[], base.Agent],
    obs_space: base.Spaces,
    act_space: base.Spaces,
    batch_size: int = 2,
    length: int = 8,
) -> None:
    """Act, train, report, save and load."""
    agent = make_agent()
    rng = np.random.default_rng(0)
    carry = agent.init_policy(batch_size)
    obs = _observation(obs_space, batch_size, rng)
    carry, action, outs = agent.policy(carry, obs, "train")
    expected = set(act_space) - {base.RESET}
    assert set(action) == expected, f"actions {set(action)} != {expected}"
    for key, value in action.items():
        for row in np.asarray(value):
            wrappers.check_values({key: row}, {key: act_space[key]}, "action")
    missing = set(agent.ext_space) - set(outs)
    assert not missing, f"policy outputs lack {missing} of ext_space"
    data = _sequences(agent, obs_space, act_space, (batch_size, length), rng)
    train_carry, outs, metrics = agent.train(agent.init_train(batch_size), data)
    agent.train(train_carry, data)
    assert all(isinstance(key, str) for key in metrics), "metric names are strings"
    agent.report(agent.init_report(batch_size), data)
    state = agent.save()
    other = make_agent()
    other.load(state)
    _assert_same(state, other.save())


def _observation(
    spaces: base.Spaces, batch_size: int, rng: np.random.Generator
) -> base.Batch:
    kept = {k: v for k, v in spaces.items() if base.is_stored(k)}
    obs = {key: draw(rng, space, batch_size) for key, space in kept.items()}
    zeros = np.zeros(batch_size, bool)
    return {
        **obs,
        base.IS_FIRST: ~zeros,
        base.IS_LAST: zeros,
        base.IS_TERMINAL: zeros,
    }


def _sequences(
    agent: base.Agent,
    obs_space: base.Spaces,
    act_space: base.Spaces,
    shape: tuple[int, int],
    rng: np.random.Generator,
) -> base.Batch:
    size = shape[0] * shape[1]
    data = _observation(obs_space, size, rng)
    data[base.IS_FIRST] = np.zeros(size, bool)
    spaces = {k: v for k, v in act_space.items() if k != base.RESET} | agent.ext_space
    data.update({key: draw(rng, space, size) for key, space in spaces.items()})
    data[base.STEPID] = np.arange(size, dtype=np.int32)
    return {k: v.reshape((*shape, *v.shape[1:])) for k, v in data.items()}


def check_replay(make_replay: Callable[[], base.Replay], length: int) -> None:
    """Add, sample, update, save and load, for a replay of sequences of `length`."""
    replay = make_replay()
    workers, steps = 3, 2 * length
    for index in range(steps):
        added = replay.add_batch(_counted(index, workers), range(workers))
        assert added == workers, "add_batch returns how many steps were new"
    new = replay.add({k: v[0] for k, v in _counted(steps, 1).items()}, 0)
    assert new is True, "add returns whether the step was new"
    assert len(replay) == workers * (steps - length + 1) + 1, "one item per window"
    assert replay.total == workers * steps + 1, "every step counts"
    batch = replay.sample(16)
    assert batch["count"].shape == (16, length), batch["count"].shape
    assert (np.diff(batch["count"], axis=1) == 1).all(), "steps must be consecutive"
    assert (batch["worker"] == batch["worker"][:, :1]).all(), "one stream per sequence"
    assert "log/extra" not in batch, "log/ keys are not stored"
    ids = batch[base.STEPID].reshape(16 * length, -1)
    names = np.stack([batch["worker"], batch["count"]], -1).reshape(16 * length, 2)
    pairs = {
        tuple(i.tolist()): tuple(n.tolist()) for i, n in zip(ids, names, strict=True)
    }
    assert len(set(pairs.values())) == len(pairs), "a step id names one step"
    replay.update({base.STEPID: batch[base.STEPID], "count": batch["count"]})
    assert all(isinstance(key, str) for key in replay.stats()), "named statistics"
    state = replay.save()
    other = make_replay()
    other.load(state)
    assert len(other) == len(replay), "loading restores all items"


def _counted(index: int, workers: int) -> base.Batch:
    return {
        "count": np.full(workers, index, np.int32),
        "worker": np.arange(workers, dtype=np.int32),
        "reward": np.zeros(workers, np.float32),
        "is_first": np.full(workers, index == 0),
        "is_last": np.zeros(workers, bool),
        "is_terminal": np.zeros(workers, bool),
        "log/extra": np.zeros(workers, np.float32),
    }


def check_stream(make_stream: Callable[[], base.Stream], elements: int = 7) -> None:
    """A restored stream continues with the elements that followed the save."""
    for position in range(elements):
        stream = make_stream()
        assert iter(stream) is stream, "a stream is its own iterator"
        list(itertools.islice(stream, position))
        state = stream.save()
        expected = list(itertools.islice(stream, 3))
        restored = make_stream()
        restored.load(state)
        _assert_same(expected, list(itertools.islice(restored, 3)))


def _assert_same(left: Any, right: Any, path: str = "") -> None:
    """Equal structure and values; arrays compare by dtype, shape and content."""
    if isinstance(left, dict):
        assert set(left) == set(right), f"keys differ at '{path}'"
        for key, value in left.items():
            _assert_same(value, right[key], f"{path}/{key}")
    elif isinstance(left, list | tuple):
        assert len(left) == len(right), f"lengths differ at '{path}'"
        for index, (a, b) in enumerate(zip(left, right, strict=True)):
            _assert_same(a, b, f"{path}/{index}")
    else:
        assert np.asarray(left).dtype == np.asarray(right).dtype, f"dtype at '{path}'"
        np.testing.assert_array_equal(left, right, err_msg=f"at '{path}'")
