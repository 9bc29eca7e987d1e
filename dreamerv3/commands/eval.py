"""`dreamerv3 eval`: how good a trained agent is, and what it looks like."""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial as bind
from typing import Any

import elements
import numpy as np

import embodied
from dreamerv3 import main as factories
from dreamerv3 import player
from dreamerv3.commands.base import CommandError, run_module
from dreamerv3.settings import logdir
from dreamerv3.settings.config import ConfigError
from embodied.core import base
from embodied.envs import registry
from embodied.metrics import video
from embodied.run.collector import Collector

RESAMPLES = 10_000  # Of the scores, for the confidence interval.
VIDEO_SIZE = 256  # Pixels that small frames are enlarged to.
SHOWN = ("gymnasium", "custom")  # Suites whose environments draw only if asked to.
VIDEO_SECONDS = 5  # That a video has at least, unless its episodes are given.
VIDEO_EPISODES = 20  # That are made for that at most; environments may start slowly.


def run(argv: Sequence[str]) -> None:
    """Evaluate the agent of a log directory."""
    args = parse(argv)
    overrides: dict[str, Any] = {"agent.eval_mode": args.mode} if args.mode else {}
    if args.seed is not None:
        overrides["seed"] = args.seed
    agent = player.load(args.logdir, **overrides)
    if agent.config.task == logdir.NO_TASK:
        raise CommandError(
            f"{args.logdir} learned from recorded steps alone and has no environment: "
            "resume it with --task"
        )
    registry.resolve(agent.config.task)  # Raise mistakes here, not in a process.
    # With --json, standard output has the result and nothing else.
    place = contextlib.redirect_stdout(sys.stderr) if args.json else nullcontext()
    with place:
        result = evaluate(agent, args)
    if args.json:
        print(json.dumps(result))


def evaluate(agent: player.Player, args: argparse.Namespace) -> dict[str, Any]:
    """Play episodes, print their scores and write the video; returns all figures."""
    check_env(agent, args.logdir)
    elements.print(f"{agent.config.task}, agent of step {agent.step:,}.", flush=True)
    if args.video:
        check_pictures(agent)  # Before the episodes, which may take long.
    found = scores(agent, agent.agent, args.episodes, args.envs)
    print(summary(found), flush=True)
    result: dict[str, Any] = {"task": agent.config.task, "step": agent.step}
    result |= figures(found)
    if args.random_episodes:
        spaces = agent.agent.obs_space, agent.agent.act_space
        chance = embodied.RandomAgent(*spaces, agent.config.seed)
        found = scores(agent, chance, args.random_episodes, args.envs)
        print(f"Random actions, for comparison: mean {found.mean():.2f}.", flush=True)
        result["random"] = figures(found)
    if args.video:
        write_video(agent, args.video, args.video_episodes)
        result["video"] = str(args.video)
    return result


def figures(scores: np.ndarray) -> dict[str, Any]:
    """The scores, their mean and deviation, and the interval of the mean."""
    return {
        "episodes": len(scores),
        "mean": float(scores.mean()),
        "std": float(scores.std()),
        "interval": interval(scores),
        "scores": scores.tolist(),
    }


def check_env(agent: player.Player, path: str) -> None:
    """Raise if the environment no longer shows or takes what it did in training."""
    env = agent.make_env()
    env.close()
    if problems := logdir.check_spaces(path, env.obs_space, env.act_space):
        raise ConfigError(problems)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        "dreamerv3 eval",
        description="Play episodes with the newest checkpoint of a log directory.",
        epilog="Example: dreamerv3 eval logdir/demo --episodes 100 --video out.mp4",
        allow_abbrev=False,
    )
    parser.add_argument("logdir", help="log directory of a run")
    parser.add_argument("--episodes", type=int, default=100, help="default: 100")
    parser.add_argument("--envs", type=int, default=4, help="at once; default: 4")
    parser.add_argument(
        "--mode", choices=("sample", "greedy"), help="default: agent.eval_mode"
    )
    parser.add_argument("--seed", type=int, help="default: that of the run")
    parser.add_argument(
        "--random-episodes",
        type=int,
        default=20,
        help="with random actions, for comparison; default: 20, 0 for none",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the result as one line of JSON"
    )
    parser.add_argument("--video", type=pathlib.Path, help="mp4 file to write")
    parser.add_argument(
        "--video-episodes",
        type=int,
        help=f"in the video; default: as many as make {VIDEO_SECONDS} seconds, "
        f"up to {VIDEO_EPISODES}",
    )
    args = parser.parse_args(argv)
    for name in ("episodes", "envs", "video_episodes"):
        value = getattr(args, name)
        if value is not None and value < 1:
            flag = name.replace("_", "-")
            raise CommandError(f"--{flag} {value} must be 1 or more")
    if args.random_episodes < 0:
        raise CommandError(
            f"--random-episodes {args.random_episodes} must be 0 or more"
        )
    if args.video and args.video.suffix != ".mp4":
        raise CommandError(f"--video {args.video} must end in .mp4")
    return args


def scores(
    trained: player.Player, agent: base.Agent, episodes: int, envs: int
) -> np.ndarray:
    """The score of each episode of an agent in the environment of a trained one."""
    make_env = bind(factories.make_env, trained.config, mode="eval")
    collector = Collector(
        agent, make_env, min(envs, episodes), processes=True, mode="eval"
    )
    with contextlib.closing(collector):
        collector.run_episodes(episodes, _progress(episodes))
        return np.array(collector.scores)


def summary(scores: np.ndarray) -> str:
    """A line with mean, standard deviation and confidence interval."""
    low, high = interval(scores)
    return (
        f"Score of {len(scores)} episodes: mean {scores.mean():.2f}, standard "
        f"deviation {scores.std():.2f}, 95 % confidence interval of the mean "
        f"{low:.2f} to {high:.2f}."
    )


def interval(scores: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Confidence interval of the mean by the bootstrap, which assumes no shape."""
    rng = np.random.default_rng(0)
    means = rng.choice(scores, (RESAMPLES, len(scores))).mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def episode(agent: player.Player, index: int) -> np.ndarray:
    """Frames [T, H, W, C] of one episode."""
    frames = []
    with contextlib.closing(make_shown(agent, index)) as env:
        action, last = agent.reset(), False
        while not last:
            obs = env.step(action)
            frames.append(picture(env, obs))
            action, last = agent.act(obs), bool(obs[base.IS_LAST])
    return enlarge(np.stack(frames))


def make_shown(agent: player.Player, index: int) -> base.Env:
    """An environment to look at, also if the agent was trained without pictures."""
    asks = registry.suite_of(agent.config.task) in SHOWN
    return agent.make_env(index, **({"shown": True} if asks else {}))


def write_video(agent: player.Player, path: pathlib.Path, episodes: int | None) -> None:
    """An mp4 file of some episodes, or of as many as make it long enough."""
    fps, parts = agent.config.logger.fps, [episode(agent, 0)]
    while not _enough(parts, episodes, VIDEO_SECONDS * fps):
        parts.append(episode(agent, len(parts)))
    frames = np.concatenate(parts)
    content = video.encode_mp4(frames, fps)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error}") from error
    amount = f"{len(parts)} {'episode' if len(parts) == 1 else 'episodes'}"
    print(f"Video of {amount}, {len(frames)} frames: {path}")


def _enough(parts: list[np.ndarray], episodes: int | None, frames: int) -> bool:
    if episodes is not None:
        return len(parts) >= episodes
    return len(parts) >= VIDEO_EPISODES or sum(map(len, parts)) >= frames


def check_pictures(agent: player.Player) -> None:
    """Raise if the environment has nothing to show in a video."""
    with contextlib.closing(make_shown(agent, 0)) as env:
        picture(env, env.step(agent.reset()))


def enlarge(frames: np.ndarray) -> np.ndarray:
    """Repeat the pixels of small frames, which players would blur."""
    factor = max(1, VIDEO_SIZE // max(frames.shape[1:3]))
    return frames.repeat(factor, 1).repeat(factor, 2)


def picture(env: base.Env, obs: base.Step) -> np.ndarray:
    """What people are shown: the environment's own picture, or what the agent sees."""
    image = env.render()
    if image is not None:
        return video.to_pixels(image)
    for key, space in env.obs_space.items():
        if len(space.shape) == 3 and space.dtype == np.uint8:
            return video.to_pixels(obs[key])
    keys = sorted(key for key in env.obs_space if key not in base.special_spaces())
    raise CommandError(
        "there are no pictures to show: the environment has no image among its "
        f"observations {keys} and renders none; give your class a "
        'render() that returns an array, and its constructor render_mode="rgb_array" '
        "if it is one of Gymnasium's"
    )


def _progress(episodes: int) -> Any:
    """A callback that prints about ten lines."""
    step, shown = max(1, episodes // 10), 0

    def show(done: int) -> None:
        nonlocal shown
        if done // step > shown and done < episodes:  # Several may end at once.
            shown = done // step
            elements.print(f"{done} of {episodes} episodes", flush=True)

    return show


if __name__ == "__main__":
    run_module(__file__)
