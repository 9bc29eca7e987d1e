"""A whole agent and some with one part broken, to see that the learning tests notice.

python -m tests.learning.broken            # All of them; takes a while.
python -m tests.learning.broken reset shift
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import tempfile
from collections.abc import Callable
from functools import partial as bind
from unittest import mock

import jax.numpy as jnp

from dreamerv3.model import imagination, learning, losses
from dreamerv3.model.rssm import RSSM
from embodied.jax import inputs
from tests.learning.harness import learn, reached
from tests.learning.tasks import Corridor
from tests.learning.test_learning import STEPS


def no_lambda_return():
    """The next reward instead of the λ-return of imagined and of replayed steps."""

    def imagined(reward, *_):
        return reward[:, 1:]

    def replayed(last, term, reward, *_):
        return reward[:, 1:]

    return mock.patch.multiple(losses, lambda_return=imagined, replay_return=replayed)


def no_reset():
    """Latents and actions run on into the next episode."""
    original = RSSM.observe_step

    def ignoring(self, latent, tokens, action, reset, noise):
        return original(self, latent, tokens, action, jnp.zeros_like(reset), noise)

    return mock.patch.object(RSSM, "observe_step", ignoring)


def wrong_shift():
    """Each step is told its own action instead of the one before."""
    original = learning.Dreamer.sequence

    def shifted(self, carry, data):
        seq = original(self, carry, data)
        return seq._replace(prevact=inputs.flatten(seq.action, self.actions))

    return mock.patch.object(learning.Dreamer, "sequence", shifted)


def no_continue():
    """Imagination goes on for ever."""
    original = imagination.judge

    def endless(*args):
        imagined = original(*args)
        return imagined._replace(cont=jnp.full_like(imagined.cont, 1 - 1 / 100))

    return mock.patch.object(imagination, "judge", endless)


AGENTS: dict[str, Callable] = {
    "whole": contextlib.nullcontext,  # To compare with.
    "return": no_lambda_return,
    "reset": no_reset,
    "shift": wrong_shift,
    "continue": no_continue,
}


def main() -> None:
    """Print the score that each agent reaches."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(AGENTS))
    parser.add_argument("--image", action="store_true", help="see an image, no vector")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if unknown := set(args.names) - set(AGENTS):  # `choices` refuse to be left out.
        parser.error(f"no such agent: {', '.join(sorted(unknown))}")
    for name in args.names or AGENTS:
        with AGENTS[name](), tempfile.TemporaryDirectory() as directory:
            make_env = bind(Corridor, image=args.image)
            logdir = pathlib.Path(directory) / "run"
            scores = learn(make_env, logdir, args.steps, args.seed)
        print(f"{name}: {reached(scores):.2f}", flush=True)


if __name__ == "__main__":
    main()
