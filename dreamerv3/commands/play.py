"""`dreamerv3 play`: watch a trained agent act, live in the browser."""

from __future__ import annotations

import argparse
import webbrowser
from collections.abc import Sequence
from functools import partial as bind
from typing import Any

from dreamerv3 import player
from dreamerv3.commands import eval as evaluation
from dreamerv3.commands.base import CommandError, listen, run_module
from dreamerv3.settings import logdir
from dreamerv3.viewing.local import LOOPBACK
from dreamerv3.viewing.playing import Server, Stage
from embodied.envs import registry

EXAMPLE = """example:
  dreamerv3 play logdir/demo --open

Space pauses, the right arrow takes one step, + and - change the speed. The page is
served to this machine only. To look from another one:
  ssh -L 8766:localhost:8766 MACHINE    then open http://localhost:8766 there"""


def run(argv: Sequence[str]) -> None:
    """Serve until Ctrl-C."""
    args = parse(argv)
    overrides: dict[str, Any] = {"agent.eval_mode": args.mode} if args.mode else {}
    agent = player.load(args.logdir, **overrides)
    if agent.config.task == logdir.NO_TASK:
        raise CommandError(f"{args.logdir} has no environment: resume it with --task")
    registry.resolve(agent.config.task)
    evaluation.check_env(agent, args.logdir)
    evaluation.check_pictures(agent)
    env = evaluation.make_shown(agent, args.seed)
    fps = args.fps or agent.config.logger.fps
    stage = Stage(agent, env, evaluation.picture, fps, args.paused)
    title = f"{agent.config.task}, agent of step {agent.step:,}"
    try:
        server = listen(bind(Server, stage, title), args.port)
        address = f"http://{LOOPBACK}:{server.server_address[1]}"
        print(f"{title}: watch it at {address} (Ctrl-C ends)", flush=True)
        if args.open:
            webbrowser.open(address)
        with server:
            server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        stage.close()


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        "dreamerv3 play",
        description="Watch a trained agent act, live in the browser.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("logdir", help="log directory of a run")
    parser.add_argument(
        "--port", type=int, default=8766, help="0 takes a free one (8766)"
    )
    parser.add_argument("--open", action="store_true", help="open a browser")
    parser.add_argument(
        "--fps", type=float, default=0, help="steps per second (that of its videos)"
    )
    parser.add_argument("--paused", action="store_true", help="start with a pause")
    parser.add_argument("--seed", type=int, default=0, help="of the environment (0)")
    parser.add_argument(
        "--mode", choices=("sample", "greedy"), help="default: agent.eval_mode"
    )
    args = parser.parse_args(argv)
    if args.fps < 0:
        raise CommandError(f"--fps {args.fps:g} must be above 0")
    return args


if __name__ == "__main__":
    run_module(__file__)
