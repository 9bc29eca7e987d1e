"""`dreamerv3 convert`: makes a log directory from a public DreamerV3 checkpoint."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shlex
import textwrap
from collections.abc import Sequence
from typing import Any

import elements

from dreamerv3 import main as factories
from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.public import layout, names
from dreamerv3.public import settings as translation
from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, logdir
from dreamerv3.settings.schema import Settings
from embodied.core import base, runfiles, spacefile
from embodied.core.checkpoint import Checkpoint
from embodied.core.clock import Ratio
from embodied.envs import custom
from embodied.jax import params
from embodied.replay import Replay, SamplesPerInsert
from embodied.run import restore

WIDTH = 88  # Columns of what is printed.


def run(argv: Sequence[str]) -> None:
    """Convert the newest checkpoint of a public log directory."""
    args, typed = parse(argv)
    check_new(args.new)
    public = layout.read(args.public)
    found = translate(public, typed, args.new)
    config = settings.to_config(found.values)
    spaces = factories.ask_spaces(config)
    agent = factories.make_agent(config, *spaces, quiet=True)
    state = agent.state  # type: ignore[attr-defined]
    agent.load(names.convert(public.tensors, state))
    step, note = count_steps(public, found.values, args.step)
    with logdir.hold(args.new):
        spacefile.write(args.new, *spaces)
        write(config, agent, step, public.updates)
        # Last, since it marks a run. Without a script, either kind resumes it.
        logdir.save({k: v for k, v in found.values.items() if k != "script"})
    size = params.count(state.params)
    print(f"{public.folder}\n→ {args.new}, {config.task}")
    print(f"Step {step:,}{note}, {public.updates:,} updates, {size:,} parameters.")
    print(not_converted(found))
    new = shlex.quote(str(args.new))
    print(f"Evaluate it: dreamerv3 eval {new}")
    print(f"Resume it:   dreamerv3 --logdir {new}")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, flags.Flags]:
    """The arguments, checked, and settings to change."""
    parser = argparse.ArgumentParser(
        "dreamerv3 convert",
        description="Make a log directory from a checkpoint of the public DreamerV3: "
        "parameters, slow critic, optimiser, return range, counters and settings. "
        "Replay and metrics are not converted. Nothing in the pickles is executed.",
        epilog="Further flags change settings, for example --task path/to/file.py:Name "
        "for your own environment. Example: dreamerv3 convert ~/logdir/old "
        "logdir/new",
        allow_abbrev=False,
    )
    add = parser.add_argument
    text = "log directory of a public run, or the folder of one of its checkpoints"
    add("public", type=pathlib.Path, metavar="PUBLIC_LOGDIR", help=text)
    text = "log directory to make"
    add("new", type=pathlib.Path, metavar="NEW_LOGDIR", help=text)
    text = "environment steps so far; default: from the checkpoint or the updates"
    add("--step", type=int, help=text)
    args, rest = parser.parse_known_args(argv)
    if args.step is not None and args.step < 0:
        raise CommandError(f"--step {args.step} must be 0 or more")
    args.public, args.new = args.public.expanduser(), args.new.expanduser()
    problems: list[settings.Problem] = []
    typed = flags.parse(rest, problems)
    if problems:
        raise settings.ConfigError(problems)
    return args, typed


def check_new(path: pathlib.Path) -> None:
    """Raise if the log directory is not new."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise CommandError(f"{path} already exists: choose another NEW_LOGDIR")


def translate(
    public: layout.Public, typed: flags.Flags, new: pathlib.Path
) -> translation.Translation:
    """Our settings of the run; raises with all problems."""
    task, *_ = typed.values.get("task") or [str(public.settings.get("task", ""))]
    if ":" in task and "task" not in typed.values:
        rule = "names code to execute, as no public task does"
        remedy = f"if you trust it, add --task {shlex.quote(task)}"
        raise settings.ConfigError([settings.Problem("task", task, rule, remedy)])
    found = translation.translate({**public.settings, "task": task})
    typed.values["logdir"] = [str(new)]
    found = translation.complete(found, typed)
    if found.problems:
        raise settings.ConfigError(found.problems)
    found.values["task"] = custom.absolute(found.values["task"])
    return found


def count_steps(
    public: layout.Public, values: settings.Flat, given: int | None
) -> tuple[int, str]:
    """Environment steps so far, with a note if they are estimated."""
    if given is not None:
        return given, ""
    if public.step is not None:
        return public.step, ""
    ratio = values["run.train_ratio"]
    trained = public.updates * values["batch_size"] * values["batch_length"]
    note = " (estimated from updates and train ratio, correct it with --step N)"
    return int(trained / ratio) if ratio else 0, note


class Stored:
    """An item of a checkpoint whose state is known."""

    def __init__(self, state: Any):
        self._state = state

    def save(self) -> Any:
        return self._state


def write(config: Settings, agent: base.Agent, step: int, updates: int) -> None:
    """Write checkpoints from which serial and parallel runs resume."""
    args = factories.make_args(config)
    ratio = config.run.train_ratio / (config.batch_size * config.batch_length)
    replay = {"replay": replay_state(step), "replay_eval": replay_state(0)}
    items = {
        "agent": agent,
        "learner": Stored({"updates": updates, "step": step}),
        "due_updates": Ratio(ratio),
        "step": elements.Counter(step),
        **{name: Stored(state) for name, state in replay.items()},
    }
    limiter = SamplesPerInsert(0, tolerance=1).save()
    roles: dict[str, dict[str, Any]] = {
        runfiles.AGENT: items,
        "replay": {"replay": Stored({**replay, "limiter": limiter})},
    }
    for role, parts in roles.items():
        directory = restore.directory(args, role)
        checkpoint = Checkpoint(directory, parts, meta=restore.meta(args))
        with contextlib.closing(checkpoint):
            checkpoint.save(wait=True)


def replay_state(total: int) -> dict[str, Any]:
    """The state of an empty replay that has seen this many steps."""
    with contextlib.closing(Replay(1, capacity=1)) as replay:
        replay.load({**replay.save(), "order": total})
        return replay.save()


def not_converted(found: translation.Translation) -> str:
    """What was not converted, by reason."""
    reasons: dict[str, list[str]] = {}
    for key, reason in found.left.items():
        reasons.setdefault(reason, []).append(key)
    lines = [f"{', '.join(keys)}: {reason}." for reason, keys in reasons.items()]
    lines.append("Replay and metrics: the new run starts without them.")
    wrap = textwrap.TextWrapper(WIDTH, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(["Not converted:", *map(wrap.fill, lines)])


if __name__ == "__main__":
    run_module(__file__)
