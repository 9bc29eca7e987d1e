"""Training: parse, check, dispatch; and the factories that take the config."""

from __future__ import annotations

import contextlib
import pathlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial as bind
from typing import Any

import elements

import embodied
import embodied.metrics
import embodied.replay
import embodied.run
import embodied.streams
from dreamerv3 import environments, offline, outputs, placement, ray_job
from dreamerv3.environments import EnvFactory, make_env, try_reset
from dreamerv3.public import keys as public_keys
from dreamerv3.settings import config as settings
from dreamerv3.settings import flags, logdir, plan, rules
from dreamerv3.settings.config import ConfigError, Problem
from dreamerv3.settings.flags import SCRIPTS
from dreamerv3.settings.schema import AgentSettings, Settings
from dreamerv3.viewing import report
from embodied.core import base, spacefile, wrappers
from embodied.envs import custom, original
from embodied.process.supervisor import RoleError
from embodied.run import parallel
from embodied.run.settings import RunSettings

# Scripts that resume a log directory.
TRAINING = ("parallel", "train", "train_eval", "train_offline")
ENV_ROLES = ("env", "eval")  # How the names of environment processes begin.
PREFETCH = 2  # Batches on the devices ahead of time in a parallel run.
DRY_RUN = "Dry run:  the settings are valid; nothing was started."
BATCH_KEYS = ("batch_size", "batch_length", "report_length", "replay_context")


def main(argv: Sequence[str] | None = None) -> None:
    """Run what the flags say."""
    blocks = settings.read_blocks()
    problems: list[Problem] = []
    typed = flags.parse(sys.argv[1:] if argv is None else argv, problems)
    if typed.help is not None:
        if typed.help:
            print(flags.matches_text(blocks, SCRIPTS, typed.help))
        else:
            print(flags.help_text(blocks, SCRIPTS))
        return
    if typed.list_scripts:
        print(flags.scripts_text(SCRIPTS))
        return
    if typed.seeds:
        from dreamerv3.benchmarking import seeds  # Imports this module.

        if not seeds.run(blocks, typed, problems):
            sys.exit(1)
        return
    start(blocks, typed, problems)


def start(
    blocks: settings.Blocks,
    typed: flags.Flags,
    problems: list[Problem],
    factory: Callable[..., Any] | None = None,
) -> pathlib.Path:
    """Check the settings and run the script; returns the log directory.

    `factory` makes environments of a task that only the running program knows.
    """
    values, saved = resolve(blocks, typed, problems)
    if not typed.quiet:
        for note in public_keys.notes(typed.values):
            elements.print(note, flush=True)
    if ray_job.is_wanted(values) and not typed.dry_run:
        ray_job.submit(blocks, typed, settings.to_config(values), factory)
    else:
        run(values, saved, typed, factory)
    return pathlib.Path(values["logdir"])


def run(
    values: settings.Flat,
    saved: settings.Flat,
    typed: flags.Flags,
    factory: Callable[..., Any] | None = None,
) -> str | None:
    """Run the script in this process; returns why a parallel run ended."""
    config = settings.to_config(without_terminal(values) if typed.quiet else values)
    show = ignore if typed.quiet else elements.print
    if config.script in placement.SCRIPTS:
        show(placement.describe(config), flush=True)
        if typed.dry_run:
            elements.print(DRY_RUN)
            return None
        with outputs.terminal(config):
            place(config)
        return None
    # Raises before anything is written.
    spaces, env = look(config, factory, reset=True)
    notes = env.notes if env else ()
    trains = config.script in TRAINING
    if trains and (problems := logdir.check_spaces(config.logdir, *spaces)):
        raise ConfigError(problems)
    with contextlib.ExitStack() as stack:
        if trains and not typed.dry_run:
            stack.enter_context(logdir.hold(config.logdir))
        for line in changes(saved, values):
            elements.print(line)
        show(plan.describe(config, *spaces, notes), flush=True)
        if typed.dry_run:
            elements.print(DRY_RUN)
            return None
        if trains:
            logdir.save(values)
            spacefile.write(config.logdir, *spaces)
            keep_original(config, env)
        with outputs.terminal(config), naming_task("" if factory else config.task):
            reason = dispatch(config, *spaces, factory, typed.quiet)
        if trains:
            elements.print(plan.closing(config), flush=True)
            write_report(config)
    return reason


def without_terminal(values: settings.Flat) -> settings.Flat:
    """Settings without the output that prints metrics."""
    kept = tuple(name for name in values["logger.outputs"] if name != "terminal")
    return {**values, "logger.outputs": kept}


def ignore(*args: Any, **options: Any) -> None:
    """Print nothing."""


def keep_original(config: Settings, env: base.Env | None) -> None:
    """Write what `Player.predict` needs; a remote environment leaves what is there."""
    if env:
        original.write(config.logdir, original.describe(env))
    elif config.script == offline.SCRIPT:
        original.write(config.logdir, offline.read_original(config))


def changes(saved: settings.Flat, values: settings.Flat) -> list[str]:
    """Lines on settings that differ from those of the resumed run."""
    return [
        f"Changed since the last run: {key} from {old} to {new}."
        for key, (old, new) in logdir.differences(saved, values).items()
        if key != "script"  # Other scripts only read the run.
    ]


def write_report(config: Settings) -> None:
    """One file about the run in its log directory; training is over if it fails."""
    if not config.logger.report:
        return
    path = pathlib.Path(config.logdir) / report.FILE
    try:
        report.write(config.logdir, path)
        elements.print(f"Report:   {path}", flush=True)
    except (OSError, ConfigError, KeyboardInterrupt) as error:
        reason = str(error) or "interrupted"
        elements.print(f"Report:   not written, {reason}", color="yellow", flush=True)


def resolve(
    blocks: settings.Blocks, typed: flags.Flags, problems: list[Problem]
) -> tuple[settings.Flat, settings.Flat]:
    """Checked settings and, if the log directory has a run, those it was saved with."""
    values = flags.layer(blocks, typed, {}, list(problems))
    offline.choose_task(values, typed, blocks, {})
    directory = logdir.expand(values, problems)
    saved = logdir.load(directory)
    if not saved and not typed.configs and typed.values.keys() == {"logdir"}:
        problems.append(logdir.nothing_there(directory))
    values = flags.layer(blocks, typed, saved, problems)
    values["logdir"] = directory
    offline.choose_task(values, typed, blocks, saved)
    problems += rules.check(values, SCRIPTS)
    problems += logdir.check(saved, values)
    problems = problems or placement.check_open(values)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    values["task"] = custom.absolute(values["task"])  # Commands run anywhere.
    return values, saved


def look(
    config: Settings,
    factory: Callable[..., Any] | None = None,
    reset: bool = False,
) -> tuple[spacefile.Pair, base.Env | None]:
    """Spaces of the agent, and the closed environment that has them, if there is one.

    With `reset` an environment that cannot be reset is rejected.
    """
    if not offline.has_env(config):
        return offline.spaces(config), None
    known = known_spaces(config.flat)
    if known:
        return known, None
    env = make_env(config, 0, factory=factory)
    if reset:
        try_reset(env, config.task)
    env.close()
    if config.script == offline.SCRIPT:
        offline.check_env(config, env)
    return (env.obs_space, env.act_space), env


def known_spaces(values: settings.Flat) -> spacefile.Pair | None:
    """The spaces in the log directory, for a task that only other machines can run."""
    if not placement.relies_on_spaces(values):
        return None
    return spacefile.read(values["logdir"])


def ask_spaces(config: Settings) -> spacefile.Pair:
    """Spaces of the task's environment."""
    return look(config)[0]


@contextlib.contextmanager
def naming_task(task: str) -> Iterator[None]:
    """Add a hint to `check-env` to a failure of the named task's environment."""
    try:
        yield
    except (RoleError, wrappers.SpaceError) as error:
        role = getattr(error, "name", "env")
        if task and role.startswith(ENV_ROLES):
            command = f"dreamerv3 check-env {shlex.quote(task)}"
            error.add_note(f"To try it out alone: {command}")
        raise


def dispatch(
    config: Settings,
    obs_space: base.Spaces,
    act_space: base.Spaces,
    factory: Callable[..., Any] | None = None,
    quiet: bool = False,
) -> str | None:
    """Run the script; returns why a parallel run ended."""
    agent = bind(make_agent, config, obs_space, act_space, quiet)
    replay = bind(make_replay, config, "replay")
    replay_eval = bind(make_replay, config, "replay_eval", "eval")
    env_train = EnvFactory(config, "train", factory)
    env_eval = EnvFactory(config, "eval", factory)
    stream, logger = bind(make_stream, config), bind(make_logger, config)
    args = make_args(config)
    match config.script:
        case "parallel":
            return parallel.combined(
                agent, replay, replay_eval, env_train, env_eval, stream, logger, args
            )
        case "train":
            embodied.run.train(agent, replay, env_train, stream, logger, args)
        case "train_eval":
            embodied.run.train_eval(
                agent, replay, replay_eval, env_train, env_eval, stream, logger, args
            )
        case "train_offline":
            env = env_eval if offline.has_env(config) else None
            recording = offline.open_recording(config)
            embodied.run.train_offline(
                agent, replay, replay_eval, env, stream, logger, recording, args
            )
        case "eval_only":
            embodied.run.eval_only(agent, env_eval, logger, args)
        case _:
            raise AssertionError(config.script)
    return None


def place(config: Settings) -> None:
    """Run one role of a run that is on another machine.

    Makes no environment to ask for its spaces: a machine that runs the replay or the
    logger need not have the packages of the environment.
    """
    env_train, env_eval = EnvFactory(config), EnvFactory(config, "eval")
    replay = bind(make_replay, config, "replay")
    replay_eval = bind(make_replay, config, "replay_eval", "eval")
    stream, logger = bind(make_stream, config), bind(make_logger, config)
    args = make_args(config)
    match config.script:
        case "parallel_env":
            is_eval = config.replica >= args.envs
            env = env_eval if is_eval else env_train
            env_args = (env, config.replica, args, is_eval)
            name, hang = f"env{config.replica}", args.env_timeout
            parallel.place(name, parallel.parallel_env, env_args, args, hang, False)
        case "parallel_envs":
            parallel.parallel_envs(env_train, env_eval, args)
        case "parallel_replay":
            replay_args = (replay, replay_eval, stream, args)
            parallel.place("replay", parallel.parallel_replay, replay_args, args)
        case "parallel_logger":
            parallel.place("logger", parallel.parallel_logger, (logger, args), args)
        case _:
            raise AssertionError(config.script)


def make_args(config: Settings) -> RunSettings:
    """What run loops need: the `run` block, sizes of batches, all for the record."""
    return RunSettings.of({**config, **config["run"], "config": dict(config)})


def wrap_env(env: base.Env, config: Settings) -> base.Env:
    """An environment as the agent needs it; the settings are not used."""
    return environments.wrap_env(env)


def make_agent(
    config: Settings,
    obs_space: base.Spaces | None = None,
    act_space: base.Spaces | None = None,
    quiet: bool = False,
) -> base.Agent:
    """The agent; without spaces an environment is made to ask for them."""
    if obs_space is None or act_space is None:
        obs_space, act_space = ask_spaces(config)
    if config.random_agent:
        return embodied.RandomAgent(obs_space, act_space, config.seed)
    from dreamerv3.agent import Agent  # Imports JAX, which env machines lack.

    agent = Agent(obs_space, act_space, make_agent_config(config))
    if not quiet:
        elements.print(agent.describe(), flush=True)
    return agent


def make_agent_config(config: Settings) -> AgentSettings:
    """What the agent needs: its own block, that of JAX, and the sizes of batches."""
    names = ("logdir", "seed", "jax", *BATCH_KEYS)
    values = {name: config[name] for name in names}
    if config.jax.prefetch < 0:
        ahead = PREFETCH if config.script == "parallel" else 0
        values["jax"] = {**config["jax"], "prefetch": ahead}
    return elements.Config(**config.agent, **values)


def make_replay(
    config: Settings, folder: str, mode: base.Mode = "train"
) -> base.Replay:
    """The replay under the log directory; that of evaluation is a tenth as large."""
    size = config.replay.size if mode == "train" else config.replay.size // 10
    length = config.replay_context + config.consec_train * config.batch_length
    fresh = config.script != offline.SCRIPT  # Recorded steps are not.
    return embodied.replay.Replay(
        length,
        capacity=max(size, length),
        directory=f"{config.logdir}/{folder}",
        chunksize=config.replay.chunksize,
        online=config.replay.online and mode == "train" and fresh,
        selector=embodied.replay.make_selector(
            config.replay.fracs, config.replay.priority, config.replay.recency
        ),
        compress=config.replay.compress,
        memory=config.replay.memory,
        seed=config.seed,
        name=folder,
    )


def make_stream(config: Settings, replay: base.Replay, mode: base.Mode) -> base.Stream:
    """Batches of sequences from a replay, cut to the lengths the agent expects."""
    training = mode == "train"
    sampled = embodied.streams.Stateless(replay.sample, config.batch_size, mode)
    return embodied.streams.Consec(
        sampled,
        length=config.batch_length if training else config.report_length,
        consec=config.consec_train if training else config.consec_report,
        prefix=config.replay_context,
        strict=training,
        contiguous=True,
    )


def make_logger(config: Settings) -> elements.Logger:
    """A logger with the outputs that `logger.outputs` names.

    Raises `ConfigError` if one of them does not exist or lacks its package.
    """
    step = elements.Counter()
    return embodied.metrics.Logger(step, outputs.make(config, step))


if __name__ == "__main__":  # `python dreamerv3/main.py`, as the public code is run.
    from dreamerv3.cli import cli

    cli()
