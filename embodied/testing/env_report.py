"""Tries out an environment as a run would, and says what works and what does not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import psutil

from embodied.core import base, parcel, wrappers
from embodied.core.driver import ProcessEnv
from embodied.envs.faults import user_traceback
from embodied.envs.registry import TaskError
from embodied.testing import env_rules

Make = Callable[[], base.Env]

FAULTS = (Exception, SystemExit)  # An environment may also try to end the program.
GROWTH = 4e6  # Bytes per third of the steps from which on memory counts as growing.
REMEDIES = {
    env_rules.SPACES: "mend obs_space and act_space; docs/custom-environment.md shows "
    "what they hold",
    env_rules.VALUES: "return the keys, shapes and dtypes that the spaces say, for "
    "example np.float32(value), or change the space; Gymnasium's reset returns two "
    "values and its step five",
    env_rules.RANGES: "widen the space, or clip the value; look for divisions by 0",
    env_rules.RESETS: "start a new episode whenever the action has reset: is_first, "
    "reward 0",
    env_rules.ENDS: "set is_last where an episode ends, and is_terminal too unless a "
    "time limit cut it",
}


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    ok: bool | None  # None is neither good nor bad, but worth knowing.
    text: str
    remedy: str = ""


def examine(make_bare: Make, make_env: Make, steps: int = 1000) -> Iterator[Finding]:
    """Findings one by one; a factory that fails ends them.

    `make_bare` gives the environment as its suite does, with its own checks as strict
    as possible, and `make_env` as a run does, wrapped for the agent.
    """
    start = time.perf_counter()
    try:
        env = make_bare()
    except TaskError as error:
        yield Finding("creation", False, error.rule, error.remedy)
        return
    except FAULTS as error:
        yield Finding("creation", False, user_traceback(error), "mend the constructor")
        return
    duration = time.perf_counter() - start
    yield Finding("creation", True, f"{duration:.2f} s")
    try:
        broken = list(env_rules.space_breaches(env))
        yield _verdict(env_rules.SPACES, broken, _spaces_text(env))
        if broken:
            return  # Nothing else could be told apart from this.
        findings = list(_walk(env, steps))
    finally:
        env.close()
    yield from findings
    if any(finding.ok is False for finding in findings):
        text = "seed, process, speed and memory are looked at once this is mended"
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
        walks = env_rules.Walk(first), env_rules.Walk(second)
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
        parcel.dumps(make_env)
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


def _walk(env: base.Env, steps: int) -> Iterator[Finding]:
    """Findings of the rules about steps, in their order."""
    walk, spaces = env_rules.Walk(env), env.obs_space
    broken: dict[str, list[env_rules.Breach]] = {}
    resets = episodes = terminal = refused = 0
    for index in range(steps):
        try:
            obs = walk.step()
        except wrappers.SpaceError as error:  # A strict adapter looks by itself.
            is_range = isinstance(error, wrappers.RangeError)
            rule = env_rules.RANGES if is_range else env_rules.VALUES
            broken.setdefault(rule, []).append(env_rules.Breach(rule, str(error)))
            refused += 1
            continue
        except FAULTS as error:
            text = f"step {index} raised:\n{user_traceback(error)}"
            yield Finding("steps", False, text, "mend what the traceback names")
            return
        for breach in env_rules.step_breaches(obs, spaces, walk.reset):
            broken.setdefault(breach.rule, []).append(breach)
        resets += walk.reset
        episodes += bool(obs.get(base.IS_LAST, False))
        terminal += bool(obs.get(base.IS_TERMINAL, False))
    texts = {
        env_rules.VALUES: f"{len(spaces)} keys in {steps} steps",
        env_rules.RANGES: "all finite and within their bounds",
        env_rules.RESETS: f"{resets} times, also within episodes",
        env_rules.ENDS: f"{episodes} episodes, {terminal} of them terminal",
    }
    for rule, text in texts.items():
        if refused and rule not in broken:  # What those steps held was not seen.
            text = f"not checked, as {refused} of {steps} steps are wrong otherwise"
            yield Finding(rule, None, text)
        else:
            yield _verdict(rule, broken.get(rule, []), text)
    if not episodes and not refused:
        text = f"no episode ended in {steps} steps of random actions"
        remedy = "fine if they are longer; else a time limit ends them, for example "
        remedy += "--env.custom.time_limit 1000"
        yield Finding("episode length", None, text, remedy)


def speed(make_env: Make, steps: int) -> Finding:
    """Steps per second, as the agent would see them."""
    env = make_env()
    try:
        walk = env_rules.Walk(env)
        start = time.perf_counter()
        for _ in range(steps):
            walk.step()
        duration = time.perf_counter() - start
    finally:
        env.close()
    text = f"{steps / duration:,.0f} steps/s, {1000 * duration / steps:.2f} ms each"
    return Finding("speed", True, text)


def memory(make_env: Make, steps: int) -> Finding:
    """Whether memory grows after a first third of the steps.

    In a process of its own: what others freed in this one could hide the growth.
    """
    env, sizes = ProcessEnv(make_env), []
    try:
        walk, process = env_rules.Walk(env), psutil.Process(env.pid)
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
        return Finding(name, False, user_traceback(error), "mend what it names")


def _verdict(rule: str, broken: list[env_rules.Breach], text: str) -> Finding:
    if not broken:
        return Finding(rule, True, text)
    kinds = {breach.text.partition(":")[0]: breach.text for breach in reversed(broken)}
    shown = "\n".join(list(reversed(kinds.values()))[:3])
    if len(broken) > 1:
        shown += f"\n({len(broken)} times in all)"
    return Finding(rule, False, shown, REMEDIES[rule])


def _spaces_text(env: base.Env) -> str:
    obs = [k for k in env.obs_space if k not in env_rules.SPECIAL_OBS]
    act = [k for k in env.act_space if k != base.RESET]
    return f"sees {', '.join(obs)}; does {', '.join(act)}"


def _equal(left: Any, right: Any) -> bool:
    return np.array_equal(np.asarray(left), np.asarray(right))
