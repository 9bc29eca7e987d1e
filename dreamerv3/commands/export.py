"""`dreamerv3 export`: a trained policy as one file that runs with JAX alone.

The file is a zip archive of `policy.bin`, a `jax.export` artefact (StableHLO with the
parameters inside), and `policy.json`, which says what it takes and gives. With
`--original` the conversion of `Player.predict` is inside, too.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from dreamerv3 import player
from dreamerv3.commands.base import CommandError, run_module
from embodied.core import base, files, spacefile
from embodied.envs.original import OriginalError
from embodied.jax import noise
from embodied.jax.kernels import dispatch

PROGRAM, ABOUT = "policy.bin", "policy.json"
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def run(argv: Sequence[str]) -> None:
    """Export the agent of a log directory."""
    args = parse(argv)
    options = {"agent.eval_mode": args.mode} if args.mode else {}
    agent = player.load(args.logdir, **options)
    if agent.config.random_agent:
        raise CommandError(f"{args.logdir} is a run with random_agent: no policy")
    try:
        program, about = export_policy(agent, args.batch, args.platforms, args.original)
    except OriginalError as error:
        raise CommandError(f"--original: {error}") from None
    try:
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
        help="platforms to export for; need not be present here; default: cpu",
    )
    parser.add_argument(
        "--original",
        action="store_true",
        help="take observations of the Gymnasium environment and give its actions",
    )
    args = parser.parse_args(argv)
    if args.batch < 1:
        raise CommandError(f"--batch {args.batch} must be 1 or more")
    if args.output.is_dir():
        raise CommandError(f"--output {args.output} is a directory: name a file in it")
    return args


def export_policy(
    agent: player.Player,
    batch: int,
    platforms: Sequence[str],
    original: bool = False,
) -> tuple[bytes, dict[str, Any]]:
    """The program `(carry, obs, seed) -> (carry, action)` and its description.

    In the form for the `original` environment there is `is_first` after `obs`.
    """
    policy, leaves = _policy(agent, batch)
    if original:
        policy, args, kinds = _original(agent, policy, batch)
    else:
        args, kinds = _agents(agent, batch)
    exported = export.export(jax.jit(policy), platforms=tuple(platforms))
    with dispatch.lowering_for(platforms):
        program = exported(leaves, *args, np.uint32(0))
    about = {
        "task": agent.config.task,
        "step": agent.step,
        "platforms": list(platforms),
        "original": original,
        "carry": [_describe(x) for x in leaves],
        **kinds,
    }
    return bytes(program.serialize()), about


def _policy(agent: player.Player, batch: int) -> tuple[Callable[..., Any], list[Any]]:
    """The policy as a function of arrays, and the carry that it starts with."""
    model, runner = agent.agent.model, agent.agent.runner  # type: ignore[attr-defined]
    params = jax.device_get(runner.newest(wait=True))
    params = jax.tree.unflatten(runner.structure, params)
    leaves, structure = jax.tree.flatten(model.carry(batch))
    greedy = agent.config.agent.eval_mode == "greedy"

    def policy(carry: list[Any], obs: dict[str, Any], seed: Any) -> tuple[Any, Any]:
        key = noise.fold(runner.key, seed)
        state = jax.tree.unflatten(structure, carry)
        state, action, _ = model.policy(params, state, obs, key, greedy)
        action = {k: _clip(v, agent.act_space[k]) for k, v in action.items()}
        return jax.tree.leaves(state), action

    return policy, leaves


def _agents(agent: player.Player, batch: int) -> tuple[tuple, dict[str, Any]]:
    """Arguments in the form of the agent, and what they and the actions are."""
    spaces = {k: agent.obs_space[k] for k in _keys(agent)}
    obs = {k: np.zeros((batch, *v.shape), v.dtype) for k, v in spaces.items()}
    action = {
        k: {**spacefile.encode_space(v), "shape": [batch, *v.shape]}
        for k, v in agent.act_space.items()
        if k != base.RESET
    }
    obs_kinds = {k: _describe(v) for k, v in obs.items()}
    return (obs,), {"obs": obs_kinds, "action": action}


def _original(
    agent: player.Player, policy: Callable[..., Any], batch: int
) -> tuple[Callable[..., Any], tuple, dict[str, Any]]:
    """The policy with conversion, its arguments, and the spaces they are of."""
    from gymnasium.vector.utils import batch_space, create_empty_array

    from embodied.envs import gymnasium_spaces

    original = agent.original
    keys = _keys(agent) - {base.IS_FIRST}

    def convert(carry: Any, obs: Any, is_first: Any, seed: Any) -> tuple[Any, Any]:
        seen = jax.vmap(original.encode)(obs)
        seen = {**{k: seen[k] for k in keys}, base.IS_FIRST: is_first}
        carry, action = policy(carry, seen, seed)
        return carry, jax.vmap(original.decode)(action)

    spaces = {"obs": original.observation_space, "action": original.action_space}
    batched = {k: batch_space(v, batch) for k, v in spaces.items()}
    obs = create_empty_array(original.observation_space, batch)
    kinds = {k: gymnasium_spaces.encode(v) for k, v in batched.items()}
    return convert, (obs, np.zeros(batch, bool)), kinds


def _keys(agent: player.Player) -> set[str]:
    """Observations that the policy needs."""
    return set(agent.agent.model.policy_keys)  # type: ignore[attr-defined]


def write(path: pathlib.Path, program: bytes, about: dict[str, Any]) -> None:
    """The archive, complete or not at all."""
    with (
        files.replace(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        archive.writestr(ABOUT, json.dumps(about, indent=1))
        archive.writestr(PROGRAM, program)


def _clip(action: jax.Array, space: base.Space) -> jax.Array:
    """Into the bounds, as `Player.act` does."""
    if space.dtype.kind != "f":
        return action
    return jnp.clip(action, *map(np.float32, (space.low, space.high)))


def _describe(x: np.ndarray) -> dict[str, Any]:
    return {"dtype": x.dtype.name, "shape": list(x.shape)}


if __name__ == "__main__":
    run_module(__file__)
