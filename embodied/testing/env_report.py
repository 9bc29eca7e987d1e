"""Checks an environment as a run would use it, and reports what fails."""

from __future__ import annotations

import collections
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil

from embodied.core import base, env_rules, pickling, watch, wrappers
from embodied.core.driver import ProcessEnv
from embodied.envs.registry import TaskError
from embodied.envs.tracebacks import user_traceback
from embodied.testing.walk import Walk

Make = Callable[[], base.Env]

FAULTS = (Exception, SystemExit)  # An environment may also try to end the program.
GROWTH = 4e6  # Bytes per third of the steps from which on memory counts as growing.
RETURN_REMEDY = "Gymnasium's reset returns two values and its step five"
PROFILE = "python -m cProfile -s cumtime"
SLOW = 50.0  # Steps per second below which environments hold up the training.
STALL = 20.0  # Times the median from which on a single step counts as slow.


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    ok: bool | None  # None is neither good nor bad, but worth knowing.
    text: str
    remedy: str = ""


def examine(make_bare: Make, make_env: Make, steps: int = 1000) -> Iterator[Finding]:
    """Findings one by one; a factory that fails ends them.

    `make_bare` gives the environment as its suite does, and `make_env` as a run does,
    wrapped for the agent.
    """
    start = time.perf_counter()
    try:
        env = make_bare()
    except TaskError as error:
        yield Finding("creation", False, error.rule, error.remedy)
        return
    except FAULTS as error:
        yield Finding("creation", False, user_traceback(error), "fix the constructor")
        return
    duration = time.perf_counter() - start
    yield Finding("creation", True, f"{duration:.2f} s")
    try:
        broken = list(env_rules.space_faults(env))
        for fault in broken:
            yield Finding(fault.rule, False, str(fault), fault.remedy)
        if broken:
            return  # Nothing else could be told apart from this.
        yield Finding(env_rules.SPACES, True, _spaces_text(env))
        durations: list[float] = []
        findings = list(_walk(env, steps, durations))
    finally:
        env.close()
    yield from findings
    if any(finding.ok is False for finding in findings):
        if durations:
            yield speed_verdict(np.array(durations), watch.place(env, "step"))
        text = "seed, process and memory are checked once this is fixed"
        yield Finding("not checked", None, text)
        return
    yield _attempt(same_seed, make_env, min(steps, 300))
    alone = _attempt(own_process, make_env)
    yield alone
    yield _attempt(speed, make_env, steps)
    if alone.ok:
        yield _attempt(memory, make_env, steps)


def same_seed(make_env: Make, steps: int) -> Finding:
    """Whether two environments of the same seed show the same for the same actions."""
    first, second = make_env(), make_env()
    try:
        walks = Walk(first), Walk(second)
        for index in range(steps):
            left, right = walks[0].step(), walks[1].step()
            differ = [key for key in left if not _equal(left[key], right[key])]
            if differ:
                text = f"observation {differ} differs at step {index}"
                remedy = "draw all random numbers from a generator made with the seed "
                remedy += "that the constructor (or Gymnasium's reset) gets"
                return Finding("same seed", False, text, remedy)
    finally:
        first.close()
        second.close()
    return Finding("same seed", True, f"{steps} steps are the same twice")


def own_process(make_env: Make) -> Finding:
    """Whether the factory works in a process of its own, as in a run."""
    name, remedy = "own process", "make it from plain arguments: no open files, locks, "
    remedy += "sockets or lambdas around them"
    try:
        pickling.dumps(make_env)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Finding(name, False, f"its factory cannot be sent, {reason}", remedy)
    env = ProcessEnv(make_env)
    try:
        zeros = {k: np.zeros(v.shape, v.dtype) for k, v in env.act_space.items()}
        obs = env.step({**zeros, base.RESET: np.asarray(True)})
    except Exception as error:
        text = f"it fails there: {type(error).__name__}: {error}"
        return Finding(name, False, text, "let several processes make one each")
    finally:
        env.close()
    return Finding(name, True, f"made and reset there, {len(obs)} keys")


class Tally:
    """The faults of a walk: each kind once, with where it came first and how often."""

    def __init__(self) -> None:
        self._first: dict[str, tuple[env_rules.Fault, int, str]] = {}
        self._counts: collections.Counter[str] = collections.Counter()

    def add(self, faults: Iterable[env_rules.Fault], step: int, place: str) -> None:
        """Count the faults of a step."""
        for fault in faults:
            self._first.setdefault(fault.what, (fault, step, place))
            self._counts[fault.what] += 1

    def findings(self, rule: str, steps: int) -> Iterator[Finding]:
        """One finding for each kind of fault against a rule."""
        for fault, step, place in self._first.values():
            if fault.rule != rule:
                continue
            count = self._counts[fault.what]
            text = f"{fault}\nfirst at step {step}, {count:,} times in {steps:,} steps"
            text += f"\n{place}" if place else ""
            ok = False if fault.rejected else None
            yield Finding(rule, ok, text, fault.remedy)


def _walk(env: base.Env, steps: int, durations: list[float]) -> Iterator[Finding]:
    """Findings of the rules about steps, in their order; adds how long each took."""
    walk, spaces, tally = Walk(env), env.obs_space, Tally()
    notes, place = len(env.notes), watch.place(env, "step")
    resets = episodes = terminal = refused = 0
    for index in range(steps):
        start = time.perf_counter()
        try:
            obs = walk.step()
        except wrappers.SpaceError as error:  # An adapter looks by itself.
            own = env_rules.Fault(env_rules.VALUES, str(error), "", RETURN_REMEDY)
            tally.add(error.faults or [own], index, error.place or place)
            refused += 1
            continue
        except FAULTS as error:
            text = f"step {index} raised:\n{user_traceback(error)}"
            yield Finding("steps", False, text, "fix the error in the traceback")
            break
        finally:
            durations.append(time.perf_counter() - start)
        tally.add(env_rules.step_faults(obs, spaces, walk.reset), index, place)
        resets += walk.reset
        episodes += bool(obs.get(base.IS_LAST, False))
        terminal += bool(obs.get(base.IS_TERMINAL, False))
    else:
        index += 1
    texts = {
        env_rules.VALUES: f"{len(spaces)} keys in {steps} steps",
        env_rules.RANGES: "all finite and within their bounds",
        env_rules.RESETS: f"{resets} times, also within episodes",
        env_rules.ENDS: f"{episodes} episodes, {terminal} of them terminal",
    }
    for rule, text in texts.items():
        found = list(tally.findings(rule, index))
        yield from found
        if not found and index == steps:
            yield _unbroken(rule, text, refused, steps)
    for note in env.notes[notes:]:
        yield Finding("note", None, note)
    if not episodes and not refused and index == steps:
        text = f"no episode ended in {steps} steps of random actions"
        remedy = "fine if they are longer; else a time limit ends them, for example "
        remedy += "--env.custom.time_limit 1000"
        yield Finding("episode length", None, text, remedy)


def _unbroken(rule: str, text: str, refused: int, steps: int) -> Finding:
    """The finding for a rule without faults, in so far as it could be checked."""
    if not refused:
        return Finding(rule, True, text)
    text = f"not checked, as {refused} of {steps} steps are wrong otherwise"
    return Finding(rule, None, text)


def speed(
    make_env: Make, steps: int, now: Callable[[], float] = time.perf_counter
) -> Finding:
    """Steps per second, as the agent would see them."""
    env = make_env()
    try:
        walk, times = Walk(env), [now()]
        for _ in range(steps):
            walk.step()
            times.append(now())
    finally:
        env.close()
    return speed_verdict(np.diff(times), watch.place(env, "step"))


def speed_verdict(durations: np.ndarray, place: str) -> Finding:
    """Judge the seconds that each step took."""
    rate, slowest = len(durations) / durations.sum(), int(durations.argmax())
    text, remedy = f"{rate:,.4g} steps/s, {1000 / rate:.2f} ms each", ""
    longest = float(durations[slowest])
    if longest > STALL * np.median(durations) and longest > 1 / SLOW:
        text += f"; the longest took {longest:.2f} s, step {slowest}"
        remedy = "keep work that is not needed each step out of it, such as loading"
    if rate < SLOW:
        text += f"; below {SLOW:.0f} steps/s, training waits for it"
        remedy = "more environments at once, for example --run.envs 16, share the "
        remedy += f"wait; a profiler shows what takes long: {PROFILE}"
    if remedy and place:
        text += f"\n{place}"
    return Finding("speed", None if remedy else True, text, remedy)


def memory(make_env: Make, steps: int) -> Finding:
    """Whether memory grows after a first third of the steps.

    In a process of its own: what others freed in this one could hide the growth.
    """
    env, sizes = ProcessEnv(make_env), []
    try:
        walk, process = Walk(env), psutil.Process(env.pid)
        for part in range(3):
            for _ in range(part * steps // 3, (part + 1) * steps // 3):
                walk.step()
            sizes.append(process.memory_info().rss)
    finally:
        env.close()
    return memory_verdict(sizes, steps)


def memory_verdict(sizes: list[int], steps: int) -> Finding:
    """Judge the memory after each third of the steps; the first one only warms up."""
    growth, half = np.diff(sizes), steps * 2 // 3
    total = max(0, int(growth.sum()))
    text = f"grew by {total / 1e6:.1f} MB in {half} steps"
    if (growth < GROWTH).any():
        return Finding("memory", True, text)
    text += f", {total / half * 1e6 / 1e9:,.0f} GB in a million"
    remedy = "look for lists that grow with each step or episode"
    return Finding("memory", False, text, remedy)


def _attempt(check: Callable[..., Finding], *args: Any) -> Finding:
    """A finding also of a check that fails for another reason than its own."""
    try:
        return check(*args)
    except FAULTS as error:
        name = check.__name__.replace("_", " ")
        return Finding(name, False, user_traceback(error), "fix the error it names")


def _spaces_text(env: base.Env) -> str:
    obs = [k for k in env.obs_space if k not in env_rules.SPECIAL]
    act = [k for k in env.act_space if k != base.RESET]
    return f"sees {', '.join(obs)}; acts with {', '.join(act)}"


def _equal(left: Any, right: Any) -> bool:
    return np.array_equal(np.asarray(left), np.asarray(right))
