"""A parallel run on two machines that learns the corridor, as commands."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import tempfile

import psutil

from embodied import rpc
from embodied.run.parallel import run_keys
from tests.e2e import command
from tests.e2e.machines import Disk, Machine, Network
from tests.e2e.torture import journaled

LAUNCHER = "launcher"
# Roles of the launcher's machine and of the other one, where each has a command.
NEAR = ("agent", "logger", "env0", "env1")
FAR = ("replay", "far0", "far1")
LENGTH = 16 + 1  # Of replayed sequences, with their context.
LOOPBACK = [Machine((), "127.0.0.1")] * 2
BACK = 120.0  # Seconds in which what died must be there again.
FLAGS = {
    "task": journaled.TASK,
    "run.steps": 10**9,
    "run.train_ratio": 64,
    "agent.horizon": 100,
    "run.envs": 2,
    "run.eval_envs": 0,
    "run.remote_replay": True,
    "run.env_timeout": 5,
    "run.budget": 10**6,
    "run.log_every": 5,
    "run.save_every": 10,
    "replay.chunksize": 64,
    "logger.report": False,
    "jax.cache": pathlib.Path(tempfile.gettempdir()) / "dreamerv3-test-cache",
}


class TortureRun:
    """Launcher, agent, logger and two environments here; replay and two more there."""

    def __init__(
        self,
        directory: pathlib.Path,
        network: Network | None = None,
        disk: Disk | None = None,
        **flags: object,
    ):
        self.directory = directory
        self.cable = network.cable if network else None
        self.disk = disk
        self.journal = directory / "journal"
        place = disk.path if disk else directory
        self.logdir, self.replay_dir = place / "run", place / "replay"
        self._keys = directory / "keys"
        rpc.make_keys(self._keys, run_keys.CLIENTS)
        self._machines = network.machines if network else LOOPBACK
        near, far = self._machines
        self._address = _free(near)
        self._env = {"env.custom.kwargs": json.dumps({"journal": str(self.journal)})}
        self._flags = {**FLAGS, **self._env, "logdir": self.logdir}
        self._flags |= {"run.key_dir": self._keys, **flags}
        self._flags |= {
            "run.coordinator_addr": self._address,
            "run.replay_addr": _free(far),
            "run.logger_addr": _free(near),  # The replay asks for it only once.
        }
        self.commands: dict[str, command.Command] = {}

    def __enter__(self) -> TortureRun:
        self.launch()
        self._join("replay", "replay", "--logdir", self.replay_dir)
        env = ["env", "--task", FLAGS["task"], *_flags(self._env)]
        for name in FAR[1:]:
            self._join(name, *env, "--run.budget", FLAGS["run.budget"])
        return self

    def __exit__(self, *error) -> None:
        for each in self.commands.values():
            each.kill()

    def launch(self) -> None:
        """Start the run, or resume it."""
        flags = ["--configs", "track", *_flags(self._flags)]
        self._start(LAUNCHER, self._machines[0], *flags)

    def crash(self) -> None:
        """Kill the launcher, with which its roles die."""
        launcher = self.commands.pop(LAUNCHER)
        children = launcher.children()
        launcher.process.kill()
        launcher.process.wait(30)
        assert not psutil.wait_procs(children, timeout=30)[1], "orphans"

    def process(self, role: str) -> psutil.Process:
        """The process of a role, waiting for it if it is being replaced."""
        found: list[psutil.Process] = []

        def look():
            with contextlib.suppress(psutil.Error, OSError, ValueError, KeyError):
                found[:] = [self._find(role)]
            return found

        command.wait_for(look, f"process of {role}", self._all(), BACK)
        return found[0]

    def processes(self) -> dict[str, psutil.Process]:
        """The processes of all roles and commands."""
        found = {role: self.process(role) for role in NEAR + FAR}
        for name, each in self.commands.items():
            label = name if name == LAUNCHER else f"{name} command"
            found[label] = psutil.Process(each.process.pid)
        return found

    def scores(self) -> list[float]:
        rows = command.rows(self.logdir / "scores.jsonl")
        return [row["episode/score"] for row in rows]

    def step(self) -> int:
        return command.logged_step(self.logdir)

    def wait_episodes(self, more: int, timeout: float = 180.0) -> None:
        """Wait until so many more episodes are logged."""
        target = len(self.scores()) + more
        what = f"{target} episodes"
        command.wait_for(
            lambda: len(self.scores()) >= target, what, self._all(), timeout
        )

    def wait_step(self, step: int, timeout: float = 300.0) -> None:
        """Wait until the step counter is there."""
        path = self.logdir / "scores.jsonl"

        def reached() -> bool:
            rows = command.rows(path)
            return bool(rows) and rows[-1]["step"] >= step

        command.wait_for(reached, f"step {step}", self._all(), timeout)

    def check_running(self) -> None:
        """Fail with its output if a command has ended."""
        for each in self._all():
            assert each.process.poll() is None, f"{each.output.name}:\n{each.text()}"

    def stop(self) -> None:
        """End the run; all of its commands have to end well."""
        launcher = self.commands[LAUNCHER]
        assert launcher.stop(signal.SIGTERM, 120) == 0, launcher.text()
        for each in self._all():
            assert each.wait(120) == 0, f"{each.output.name}:\n{each.text()}"

    def failures(self, role: str) -> int:
        """How often the process of a role was found dead or hanging."""
        name = role if role in (*NEAR, "replay") else "env0"
        where = LAUNCHER if role in NEAR else role
        return self.commands[where].text().count(f"{name} failed (")

    def _all(self) -> list[command.Command]:
        return list(self.commands.values())

    def _find(self, role: str) -> psutil.Process:
        if role in FAR:
            (process,) = self.commands[role].children()
        else:
            roles = json.loads((self.logdir / "roles.json").read_text())
            process = psutil.Process(roles[role]["pid"])
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(process.pid)
        return process

    def _join(self, name: str, *words: object) -> None:
        address = self._address.removeprefix("tcp://")
        key = self._keys / "env.json" if words[0] == "env" else self._keys
        self._start(name, self._machines[1], "join", address, "--key", key, *words)

    def _start(self, name: str, machine: Machine, *words: object) -> None:
        output = self.directory / f"{name}.txt"
        env = {"PYTHONPATH": os.fspath(command.ROOT)}
        made = command.Command(output, *words, prefix=machine.prefix, env=env)
        self.commands[name] = made


def _free(machine: Machine) -> str:
    """An address of a machine; ports that are free here mostly are free there."""
    address = rpc.resolve("tcp://127.0.0.1:{auto}")
    return address.replace("127.0.0.1", machine.address)


def _flags(values: dict[str, object]) -> list[object]:
    return [word for key, value in values.items() for word in (f"--{key}", value)]
