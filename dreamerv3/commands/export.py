"""`dreamerv3 export`: a trained policy as one file that runs with JAX alone.

The file is a zip archive of `policy.bin`, a `jax.export` artefact (StableHLO with the
parameters inside), and `policy.json`, which says what it takes and gives.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import zipfile
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dreamerv3 import player
from dreamerv3.commands.base import CommandError
from embodied.core import base, spacefile
from embodied.jax import noise

PROGRAM, ABOUT = "policy.bin", "policy.json"
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def main(argv: Sequence[str]) -> None:
    """Export the agent of a log directory."""
    args = parse(argv)
    options = {"agent.eval_mode": args.mode} if args.mode else {}
    agent = player.load(args.logdir, **options)
    if agent.config.random_agent:
        raise CommandError(f"{args.logdir} is a run with random_agent: no policy")
    program, about = export_policy(agent, args.batch, args.platforms)
    try:
        args.output.parent.mkdir(parents=True, exist_ok=True)
        write(args.output, program, about)
    except OSError as error:
        raise CommandError(f"cannot write {args.output}: {error}") from error
    size = args.output.stat().st_size
    print(
        f"{agent.config.task}, agent of step {agent.step:,}: {args.output}, {size:,} B"
    )


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments, checked."""
    parser = argparse.ArgumentParser(
        "dreamerv3 export",
        description="Write the policy of the newest checkpoint, with its parameters, "
        "to a file that needs only JAX to run; docs/deployment.md shows how.",
        epilog="Example: dreamerv3 export logdir/demo -o policy.zip --batch 1",
        allow_abbrev=False,
    )
    parser.add_argument("logdir", help="log directory of a run")
    parser.add_argument(
        "-o",
        "--output",
        type=pathlib.Path,
        default="policy.zip",
        help="zip to write, replaced if it is there; default: policy.zip",
    )
    parser.add_argument(
        "--batch", type=int, default=1, help="observations per call; default: 1"
    )
    parser.add_argument(
        "--mode", choices=("sample", "greedy"), help="default: agent.eval_mode"
    )
    parser.add_argument(
        "--platforms",
        nargs="+",
        default=["cpu"],
        choices=PLATFORMS,
        help="what it shall run on, none of which need be here; default: cpu",
    )
    args = parser.parse_args(argv)
    if args.batch < 1:
        raise CommandError(f"--batch {args.batch} must be 1 or more")
    if args.output.is_dir():
        raise CommandError(f"--output {args.output} is a directory: name a file in it")
    return args


def export_policy(
    agent: player.Player, batch: int, platforms: Sequence[str]
) -> tuple[bytes, dict[str, Any]]:
    """The program `(carry, obs, seed) -> (carry, action)` and its description."""
    model, acting = agent.agent.model, agent.agent.acting  # type: ignore[attr-defined]
    params = jax.device_get(acting.newest(wait=True))
    params = jax.tree.unflatten(acting.structure, params)
    leaves, structure = jax.tree.flatten(model.carry(batch))
    greedy = agent.config.agent.eval_mode == "greedy"

    def policy(carry: list[Any], obs: dict[str, Any], seed: Any) -> tuple[Any, Any]:
        key = noise.fold(acting.key, seed)
        state = jax.tree.unflatten(structure, carry)
        state, action, _ = model.policy(params, state, obs, key, greedy)
        action = {k: _clip(v, agent.act_space[k]) for k, v in action.items()}
        return jax.tree.leaves(state), action

    spaces = {k: agent.obs_space[k] for k in model.policy_keys}
    obs = {k: np.zeros((batch, *v.shape), v.dtype) for k, v in spaces.items()}
    jitted = jax.jit(policy)
    program = export.export(jitted, platforms=tuple(platforms))(
        leaves, obs, np.uint32(0)
    )
    about = {
        "task": agent.config.task,
        "step": agent.step,
        "platforms": list(platforms),
        "carry": [_describe(x) for x in leaves],
        "obs": {k: _describe(v) for k, v in obs.items()},
        "action": {
            k: {**spacefile.encode_space(v), "shape": [batch, *v.shape]}
            for k, v in agent.act_space.items()
            if k != base.RESET
        },
    }
    return bytes(program.serialize()), about


def write(path: pathlib.Path, program: bytes, about: dict[str, Any]) -> None:
    """The archive, complete or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(ABOUT, json.dumps(about, indent=1))
        archive.writestr(PROGRAM, program)
    temporary.rename(path)


def _clip(action: jax.Array, space: base.Space) -> jax.Array:
    """Into the bounds, as `Player.act` does."""
    if space.dtype.kind != "f":
        return action
    return jnp.clip(action, *map(np.float32, (space.low, space.high)))


def _describe(x: np.ndarray) -> dict[str, Any]:
    return {"dtype": x.dtype.name, "shape": list(x.shape)}
