"""Each check of an environment finds the environment that breaks it, and no other."""

import itertools
import os
import sys
import threading

import cloudpickle
import elements
import numpy as np
import pytest

from embodied.core import env_rules, watch, wrappers
from embodied.envs.dummy import Dummy
from embodied.testing import env_report

STEPS = 120

# Other processes cannot import this file.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def examine(make_env, steps=STEPS):
    return {f.name: f for f in env_report.examine(make_env, make_env, steps)}


def failed(make_env, steps=STEPS):
    found = examine(make_env, steps)
    for finding in found.values():
        assert finding.ok is not False or finding.remedy, finding
    return {name: f.text for name, f in found.items() if f.ok is False}


def make_dummy(seed=0):
    return Dummy("both", size=(8, 8), length=10, seed=seed)


class Changed(wrappers.Wrapper):
    """Changes observations or spaces."""

    def __init__(self, change=None, obs_space=None, act_space=None):
        super().__init__(make_dummy())
        self._change = change
        self._spaces = obs_space or {}, act_space or {}

    @property
    def obs_space(self):
        spaces = {**self.env.obs_space, **self._spaces[0]}
        return {key: space for key, space in spaces.items() if space is not None}

    @property
    def act_space(self):
        return {**self.env.act_space, **self._spaces[1]}

    def step(self, action):
        obs = self.env.step(action)
        return {**obs, **self._change(obs)} if self._change else obs


@pytest.mark.process
def test_a_good_environment_passes():
    found = examine(make_dummy)
    names = ["creation", "spaces", "observations", "ranges", "resets", "episode ends"]
    names += ["same seed", "own process", "speed", "memory"]
    assert list(found) == names
    assert all(finding.ok for finding in found.values())
    assert "steps/s" in found["speed"].text


BAD_SPACES = {
    "lacks 'reward'": {"obs_space": {"reward": None}},
    "'is_last' must be bool": {"obs_space": {"is_last": elements.Space(np.int32)}},
    "'reward' must be a scalar": {
        "obs_space": {"reward": elements.Space(np.float32, (1,))}
    },
    "in both": {"act_space": {"vector": elements.Space(np.float32)}},
    "are reserved": {"obs_space": {"seq": elements.Space(np.float32)}},
}


@pytest.mark.parametrize("text", BAD_SPACES)
def test_spaces(text):
    found = failed(lambda: Changed(**BAD_SPACES[text]))
    assert set(found) == {"spaces"}
    assert text in found["spaces"]


def double_vector(obs):
    return {"vector": obs["vector"].astype(np.float64)}


def short_vector(obs):
    return {"vector": obs["vector"][:3]}


def extra_key(obs):
    return {"more": 1}


def infinite_vector(obs):
    return {"vector": obs["vector"] * np.inf}


def large_token(obs):
    return {"token": np.int32(256)}


def never_first(obs):
    return {"is_first": np.bool_(False)}


def rewarded_first(obs):
    return {"reward": np.float32(1)}


def terminal_early(obs):
    return {"is_terminal": ~obs["is_first"]}


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (short_vector, "observations"),
        (extra_key, "observations"),
        (infinite_vector, "ranges"),
        (large_token, "ranges"),
        (never_first, "resets"),
        (rewarded_first, "resets"),
        (terminal_early, "episode ends"),
    ],
)
def test_steps(change, name):
    found = failed(lambda: Changed(change))
    assert set(found) == {name}
    assert f"times in {STEPS} steps" in found[name]
    assert f"{__file__}:" in found[name]
    assert "Changed.step" in found[name]


@pytest.mark.process
def test_a_type_that_is_converted_is_only_noted():
    found = examine(lambda: Changed(double_vector))["observations"]
    assert found.ok is None
    assert "'vector' is float64, its space says float32" in found.text
    assert "np.asarray(value, np.float32)" in found.remedy


def test_all_faults_are_found_at_once():
    def wrong(obs):
        return {"vector": obs["vector"][:3], "more": 1, "count": np.float32(np.nan)}

    make = lambda: Changed(wrong)  # noqa: E731
    findings = [f for f in env_report.examine(make, make, STEPS) if f.ok is False]
    words = ["unknown 'more'", "'vector' has shape (3,)", "'count' is not finite: nan"]
    assert len(findings) == 3
    for word in words:
        (finding,) = [f for f in findings if word in f.text]
        assert "first at step 0, 120 times" in finding.text
        assert finding.remedy


def test_adapters_that_reject_name_rule_and_place():
    def refuse(obs):
        fault = env_rules.Fault("ranges", "observation 'x' is not finite", "nan", "fix")
        raise watch.error([fault], "at step 0", "mine.py:3 step")

    found = failed(lambda: Changed(refuse))
    assert set(found) == {"ranges"}
    assert "mine.py:3 step" in found["ranges"]
    # Of what they refused nothing else was seen, so nothing else is said of it.
    found = examine(lambda: Changed(refuse))
    for name in ("observations", "resets", "episode ends"):
        assert found[name].ok is None
        assert f"not checked, as {STEPS} of {STEPS} steps" in found[name].text
    assert "episode length" not in found


def test_speed_names_the_rate_and_the_slow_step():
    fast = np.full(100, 0.001)
    assert env_report.speed_verdict(fast, "mine.py:3 step").ok
    finding = env_report.speed_verdict(np.append(fast, 0.5), "mine.py:3 step")
    assert "the longest took 0.50 s, step 100\nmine.py:3 step" in finding.text
    finding = env_report.speed_verdict(np.full(100, 0.25), "mine.py:3 step")
    assert finding.ok is None
    assert finding.text.startswith("4 steps/s, 250.00 ms each; below 50 steps/s")
    assert "--run.envs" in finding.remedy
    clock = itertools.count()
    counted = env_report.speed(make_dummy, 10, lambda: next(clock) / 10)
    assert counted.text.startswith("10 steps/s")


def test_a_constructor_that_raises():
    def make():
        raise OSError("no display")

    found = failed(make)
    assert set(found) == {"creation"}
    assert "OSError: no display" in found["creation"]


def test_a_step_that_raises():
    def fail(obs):
        if obs["count"] == 5:
            raise RuntimeError("stuck")
        return {}

    found = failed(lambda: Changed(fail))
    assert set(found) == {"steps"}
    assert "step 5 raised" in found["steps"]
    assert "in fail" in found["steps"]
    assert "testing/walk.py" not in found["steps"]


@pytest.mark.process
def test_episodes_without_end_are_told_but_not_wrong():
    found = examine(lambda: Dummy("disc", size=(8, 8), length=10**6))
    assert found["episode length"].ok is None
    assert all(finding.ok is not False for finding in found.values())


def test_an_environment_that_ignores_its_seed():
    seeds = itertools.count()
    finding = env_report.same_seed(lambda: make_dummy(next(seeds)), 10)
    assert finding.ok is False
    assert "'vector'" in finding.text
    assert "at step 0" in finding.text


def test_a_factory_that_cannot_be_sent():
    lock = threading.Lock()

    def make():
        with lock:
            return make_dummy()

    found = failed(make)
    assert set(found) == {"own process"}
    assert "cannot be sent" in found["own process"]


@pytest.mark.process
def test_a_factory_that_works_only_here():
    here = os.getpid()

    def make():
        if os.getpid() != here:
            raise ConnectionError("port is taken")
        return make_dummy()

    found = failed(make)
    assert set(found) == {"own process"}
    assert "port is taken" in found["own process"]


def test_an_environment_that_ends_the_program():
    class Quits(wrappers.Wrapper):
        def __init__(self):
            super().__init__(make_dummy())

        def step(self, action):
            raise SystemExit("no licence")

    assert "SystemExit: no licence" in failed(Quits)["steps"]


@pytest.mark.process
def test_memory_that_grows():
    class Leaking(wrappers.Wrapper):
        def __init__(self):
            super().__init__(make_dummy())
            self._kept = []

        def step(self, action):
            self._kept.append(np.ones(1 << 18, np.uint8))
            return self.env.step(action)

    found = failed(Leaking)
    assert set(found) == {"memory"}
    assert "GB in a million" in found["memory"]


def test_memory_that_grew_once_is_fine():
    assert env_report.memory_verdict([100, 10**8, 10**8], 300).ok
    assert env_report.memory_verdict([100, 10**7, 2 * 10**7], 300).ok is False
