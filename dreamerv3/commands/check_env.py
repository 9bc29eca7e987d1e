"""`dreamerv3 check-env TASK`: what works, what does not, and what the agent sees."""

from __future__ import annotations

import argparse
import importlib.util
import pathlib
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from functools import partial as bind
from typing import Any

from dreamerv3 import environments
from dreamerv3.commands import picture
from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.settings.schema import Settings
from embodied.core import base, runfiles, spacefile
from embodied.envs import registry
from embodied.envs.tracebacks import user_traceback
from embodied.testing import env_report
from embodied.testing.env_report import Finding

PATIENCE = 15.0  # Seconds without a finding before that is said.
MARKS = {True: "✓", False: "✗", None: "-"}
# Suites of other people's environments, whose images are resized if asked.
ADAPTED = ("gymnasium", registry.CUSTOM)
DESCRIPTION = """\
Create an environment, step it, and check spaces, dtypes, ranges, resets, episode ends,
repetition under a seed, that it works in a process of its own, speed and memory. Ends
with 1 if something is wrong. Settings may follow as flags.
"""
EPILOG = """\
examples:
  dreamerv3 check-env bounce_32
  dreamerv3 check-env path/to/file.py:MyEnv --steps 5000
  dreamerv3 check-env gymnasium_CartPole-v1 --env.gymnasium.render True

A training on a machine without the packages of the task needs its spaces:
  dreamerv3 check-env procgen_coinrun --spaces ~/logdir/coinrun
"""


def run(argv: Sequence[str]) -> None:
    """Print the report, write the picture, and exit with 1 if something is wrong."""
    parser = argparse.ArgumentParser(
        "dreamerv3 check-env",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("task", help="as for --task of training")
    parser.add_argument("--steps", type=int, default=1000, help="steps to make (1000)")
    parser.add_argument(
        "--picture",
        type=pathlib.Path,
        default=pathlib.Path("check-env.png"),
        help="where to draw what the agent sees (check-env.png)",
    )
    text = "write spaces.json there, and check nothing"
    parser.add_argument("--spaces", metavar="DIRECTORY", type=pathlib.Path, help=text)
    args, rest = parser.parse_known_args(argv)
    if args.steps < 30:
        raise CommandError(f"--steps {args.steps} says too little; give at least 30")
    config = environments.read_config(args.task, rest)
    if args.spaces:
        write_spaces(config, args.spaces)
        return
    sys.exit(0 if check(config, args.steps, args.picture) else 1)


def write_spaces(config: Settings, directory: pathlib.Path) -> None:
    """Keep the spaces of the task where a training looks for them."""
    spacefile.write(directory, *environments.ask_spaces(config))
    print(f"Wrote {directory / runfiles.SPACES}; copy it into the training's --logdir.")


def check(config: Settings, steps: int, path: pathlib.Path) -> bool:
    """Print findings as they come; whether all is well."""
    make_bare = bind(environments.make_bare_env, config)
    make_env = bind(environments.make_env, config)
    print(f"{config.task}\n")
    findings = []
    try:
        with IdleNotice(PATIENCE) as waiting:
            for finding in env_report.examine(make_bare, make_env, steps):
                print(line(finding), flush=True)
                waiting.restart()
                findings.append(finding)
    except KeyboardInterrupt as error:
        stopped = Finding("interrupted", False, user_traceback(error))
        print(f"\n{line(stopped)}")
        return False
    if all(finding.ok is not False for finding in findings):
        findings += _last(make_env, path, registry.suite_of(config.task))
    failed = list(dict.fromkeys(f.name for f in findings if f.ok is False))
    words = f"Wrong: {', '.join(failed)}." if failed else "All is well."
    print(f"\n{words}")
    return not failed


class IdleNotice:
    """Prints a notice whenever a check takes long."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._begin = time.monotonic()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def restart(self) -> None:
        """Something was found."""
        self._begin = time.monotonic()

    def __enter__(self) -> IdleNotice:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._done.wait(self._seconds):
            passed = time.monotonic() - self._begin
            if passed >= self._seconds:
                text = f"for {passed:.0f} s; Ctrl-C shows where the environment is"
                print(line(Finding("waiting", None, text)), flush=True)


def line(finding: Finding) -> str:
    """A finding for people: mark, name, text, and the remedy below."""
    text = textwrap.indent(finding.text, " " * 18).strip()
    result = f"{MARKS[finding.ok]} {finding.name:<15} {text}"
    return f"{result}\n{'':18}→ {finding.remedy}" if finding.remedy else result


def agent_finding(env: base.Env, suite: str = registry.CUSTOM) -> Finding:
    """Whether the agent can be made for these spaces, where JAX is installed."""
    name = "agent"
    if not importlib.util.find_spec("jax"):
        return Finding(name, None, "not checked, there is no JAX here")
    from dreamerv3.model import encoder
    from embodied.jax import inputs

    special = base.special_spaces()
    own = {k: v for k, v in env.obs_space.items() if k not in special}
    seen = {k: v for k, v in own.items() if base.is_stored(k)}
    done = {k: v for k, v in env.act_space.items() if k != base.RESET}
    try:
        images = {k: v for k, v in seen.items() if inputs.is_image(v)}
        if images:
            inputs.stage_count(*encoder.image_shape(images)[:2], 4)
        vectors = (*inputs.vector_keys(seen), *inputs.vector_keys(done))
    except ValueError as error:
        remedy = "change the space"
        if suite in ADAPTED:
            remedy += f"; images can be resized, --env.{suite}.resize 64 64"
        return Finding(name, False, str(error), remedy)
    count = len(images) + len(vectors)
    return Finding(name, True, f"can be made for these {count} spaces")


def _last(make_env: Any, path: pathlib.Path, suite: str) -> list[Finding]:
    """What concerns only environments that work: agent, notes and picture."""
    env = make_env()
    try:
        findings = [agent_finding(env, suite)]
        findings += [Finding("note", None, note) for note in env.notes]
        findings.append(_draw(env, path))
    finally:
        env.close()
    for finding in findings:
        print(line(finding), flush=True)
    return findings


def _draw(env: base.Env, path: pathlib.Path) -> Finding:
    """The picture, where there is something to draw with."""
    if not importlib.util.find_spec("matplotlib"):
        return Finding("picture", None, "not drawn, there is no matplotlib here")
    try:
        picture.draw(env, path)
    except (OSError, ValueError) as error:  # It cannot be written, or not as this.
        remedy = "give a file that can be written, for example --picture seen.png"
        return Finding("picture", None, f"not drawn, {error}", remedy)
    return Finding("picture", True, str(path))


if __name__ == "__main__":
    run_module(__file__)
