"""Steps a set of environments with a policy, in this process or one process each."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import multiprocessing.connection
import os
import signal
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from embodied.core import base, parent_death, pickling

Policy = Callable[[base.Carry, base.Batch], tuple[base.Carry, base.Batch, base.Batch]]
OnStep = Callable[[base.Batch, Sequence[int]], None]


class Driver:
    """Runs all environments in lock-step and hands out each batch of steps.

    Callbacks get the steps of all environments stacked, [envs, ...], and the indices of
    the environments as workers: work is done per batch, not per step.
    """

    def __init__(
        self,
        make_envs: Sequence[Callable[[], base.Env]],
        processes: bool = True,
        timeout: float = 300,
    ):
        assert make_envs, "a driver needs at least one environment"
        start = ProcessEnv if processes else LocalEnv
        self._envs: list[ProcessEnv | LocalEnv] = []
        try:
            for make_env in make_envs:
                self._envs.append(start(make_env))
            spaces = [(env.obs_space, env.act_space) for env in self._envs]
        except BaseException:
            self.close()
            raise
        self.obs_space, self.act_space = spaces[0]
        self._timeout = timeout
        self._callbacks: list[OnStep] = []
        self.reset()

    def __len__(self) -> int:
        return len(self._envs)

    def on_step(self, callback: OnStep) -> None:
        """Call `callback(steps, workers)` after each step of all environments."""
        self._callbacks.append(callback)

    def reset(self, init_policy: Callable[[int], base.Carry] | None = None) -> None:
        """Start new episodes; `init_policy(envs)` gives the policy's first carry."""
        size = len(self._envs)
        self._carry = init_policy(size) if init_policy else ()
        self._action = {
            key: np.zeros((size, *space.shape), space.dtype)
            for key, space in self.act_space.items()
        }
        self._action[base.RESET] = np.ones(size, bool)

    def __call__(self, policy: Policy, steps: int = 0, episodes: int = 0) -> None:
        """Run until at least `steps` steps and `episodes` episodes were collected."""
        while steps > 0 or episodes > 0:
            batch = self._step(policy)
            steps -= len(self._envs)
            episodes -= int(batch[base.IS_LAST].sum())

    def close(self) -> None:
        """Close every environment and end its process."""
        with contextlib.ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)
            self._envs = []

    def _step(self, policy: Policy) -> base.Batch:
        obs = self._step_envs()
        logs = {k: obs.pop(k) for k in list(obs) if base.is_logged(k)}
        self._carry, action, outs = policy(self._carry, obs)
        self._check_action(action)
        # The action of a last step is never applied, so it must carry no signal.
        live = ~obs[base.IS_LAST]
        action = {k: np.asarray(v) * _like(live, np.ndim(v)) for k, v in action.items()}
        self._action = {**action, base.RESET: obs[base.IS_LAST].copy()}
        batch = {**obs, **action, **outs, **logs}
        for callback in self._callbacks:
            callback(batch, range(len(self._envs)))
        return batch

    def _step_envs(self) -> base.Batch:
        for index, env in enumerate(self._envs):
            env.send({key: value[index] for key, value in self._action.items()})
        return _stack([env.receive(self._timeout) for env in self._envs])

    def _check_action(self, action: base.Batch) -> None:
        expected = set(self.act_space) - {base.RESET}
        if set(action) != expected:
            raise ValueError(
                f"the policy returned actions {sorted(action)}, the environment "
                f"takes {sorted(expected)}"
            )


class LocalEnv:
    """An environment in this process, with the interface of one in another."""

    def __init__(self, make_env: Callable[[], base.Env]):
        self._env = make_env()
        self._obs: dict[str, Any] = {}
        self.obs_space = self._env.obs_space
        self.act_space = self._env.act_space

    def send(self, action: base.Step) -> None:
        self._obs = self._env.step(action)

    def receive(self, timeout: float) -> dict[str, Any]:
        return self._obs

    def close(self) -> None:
        self._env.close()


class ProcessEnv(base.Env):
    """An environment in a separate process, started without waiting for it.

    Exceptions are re-raised with their original type and the remote traceback as cause,
    or as a RuntimeError with that traceback if the type cannot be imported.
    """

    START_TIMEOUT = 300.0  # Seconds; large simulators start slowly.
    CLOSE_TIMEOUT = 5.0

    def __init__(self, make_env: Callable[[], base.Env]):
        # Forking a process that runs JAX threads can deadlock, so spawn.
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        args = (other, pickling.dumps(make_env), os.getpid())
        self._process = context.Process(target=_serve, args=args, daemon=True)
        self._process.start()
        other.close()

    @property
    def obs_space(self) -> base.Spaces:
        return self._spaces[0]

    @property
    def act_space(self) -> base.Spaces:
        return self._spaces[1]

    @property
    def pid(self) -> int | None:
        """The process of the environment."""
        return self._process.pid

    @functools.cached_property
    def _spaces(self) -> tuple[base.Spaces, base.Spaces]:
        return self._receive(self.START_TIMEOUT)

    def step(self, action: base.Step) -> dict[str, Any]:
        self.send(action)
        return self.receive()

    def send(self, action: base.Step) -> None:
        """Begin a step."""
        assert self._spaces  # The first message holds the spaces.
        try:
            self._pipe.send(dict(action))
        except BrokenPipeError:
            raise self._died() from None

    def receive(self, timeout: float = 300) -> dict[str, Any]:
        """The observation of the step that `send` began."""
        return self._receive(timeout)

    def close(self) -> None:
        self._pipe.close()
        self._process.join(self.CLOSE_TIMEOUT)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _receive(self, timeout: float) -> Any:
        if not self._pipe.poll(timeout):
            raise TimeoutError(f"an environment did not answer for {timeout:.0f} s")
        try:
            result, error = self._pipe.recv()
        except (EOFError, ConnectionResetError):
            raise self._died() from None
        if error is not None:
            text, packed = error
            cause = RuntimeError(f"in the environment process:\n{text}")
            try:
                exception = pickling.loads(packed)
            except Exception:  # Its class cannot be imported here.
                raise cause from None
            raise exception from cause
        return result

    def _died(self) -> RuntimeError:
        self._process.join(self.CLOSE_TIMEOUT)
        code = self._process.exitcode
        return RuntimeError(f"an environment process died with exit code {code}")


def _serve(
    pipe: multiprocessing.connection.Connection, make_env: bytes, parent: int
) -> None:
    parent_death.die_with(parent)  # Even if a step of the environment hangs then.
    # Signals reach the whole process group; the parent decides when to end.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # Parent is gone.
        try:
            env = pickling.loads(make_env)()
            answer = env.obs_space, env.act_space
        except Exception as error:
            pipe.send((None, _describe(error)))
            return
        with contextlib.closing(env):
            _answer(pipe, env, answer)


def _answer(
    pipe: multiprocessing.connection.Connection, env: base.Env, answer: Any
) -> None:
    """Send an answer and take an action, until the parent closes its end."""
    while True:
        pipe.send((answer, None))
        try:
            action = pipe.recv()
        except EOFError:
            return
        try:
            answer = env.step(action)
        except Exception as error:
            pipe.send((None, _describe(error)))
            return


def _describe(error: Exception) -> tuple[str, bytes]:
    return "".join(traceback.format_exception(error)), _pack(error)


def _pack(error: Exception) -> bytes:
    """The exception if it can be pickled, else a RuntimeError with its message."""
    try:
        packed = pickling.dumps(error)
        pickling.loads(packed)
    except Exception:
        return pickling.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return packed


def _stack(steps: Sequence[base.Step]) -> base.Batch:
    return {key: np.stack([step[key] for step in steps]) for key in steps[0]}


def _like(mask: np.ndarray, ndim: int) -> np.ndarray:
    return mask.reshape(mask.shape + (1,) * (ndim - 1))
