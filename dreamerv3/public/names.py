"""Converts the tensors of a public checkpoint to our training state."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from dreamerv3.model.learning import State
from dreamerv3.model.networks import Networks
from embodied.core.checkpoint import CheckpointError
from embodied.jax import params
from embodied.jax.optimizer import LaPropState, pack

Tensors = Mapping[str, np.ndarray]  # By public path.

# Modules by our path and by the public one; the first that matches counts.
MODULES = [
    (r"enc/mlp/layers/(\d+)/linear", r"enc/mlp\1"),
    (r"enc/mlp/layers/(\d+)/norm", r"enc/mlp\1norm"),
    (r"enc/convs/(\d+)", r"enc/cnn\1"),
    (r"enc/norms/(\d+)", r"enc/cnn\1norm"),
    (r"dyn/(dynin|dynhid)/(\d+)/linear", r"dyn/\1\2"),
    (r"dyn/(dynin|dynhid)/(\d+)/norm", r"dyn/\1\2norm"),
    (r"dyn/(obs|prior)/layers/(\d+)/linear", r"dyn/\1\2"),
    (r"dyn/(obs|prior)/layers/(\d+)/norm", r"dyn/\1\2norm"),
    (r"dyn/(dyngru|obslogit|priorlogit)", r"dyn/\1"),
    (r"dec/vec/mlp/layers/(\d+)/(linear|norm)", r"dec/mlp/\2\1"),
    (r"dec/vec/outs/(.+)/categorical/0", r"dec/vec/\1/logits"),
    (r"dec/vec/outs/(.+)/symlog_mse/0", r"dec/vec/\1/pred"),
    (r"dec/canvas/deter", r"dec/sp0"),
    (r"dec/canvas/stoch/linear", r"dec/sp1"),
    (r"dec/canvas/stoch/norm", r"dec/sp1norm"),
    (r"dec/canvas/project", r"dec/sp2"),
    (r"dec/canvas/norm", r"dec/spnorm"),
    (r"dec/convs/(\d+)", r"dec/conv\1"),
    (r"dec/norms/(\d+)", r"dec/conv\1norm"),
    (r"dec/imgout", r"dec/imgout"),
    (r"(rew|con|pol|val)/mlp/layers/(\d+)/(linear|norm)", r"\1/mlp/\3\2"),
    (r"(rew|val)/out/linears/0", r"\1/head/logits"),
    (r"con/out/linears/0", r"con/head/logit"),
    (r"pol/outs/(.+)/categorical/0", r"pol/head/\1/logits"),
    (r"pol/outs/(.+)/normal/0", r"pol/head/\1/mean"),
    (r"pol/outs/(.+)/normal/1", r"pol/head/\1/stddev"),
]
SECOND_MOMENT, MOMENTUM = "opt/state/1/1", "opt/state/2/1"
SCALINGS = ("opt/state/1/0", "opt/state/2/0")  # Updates that each of them has seen.
SCHEDULE, UPDATES = "opt/state/3/count", "opt/step/value"
RANGE = ("retnorm/lo/value", "retnorm/hi/value")
SCALARS = {
    **dict.fromkeys(SCALINGS, "opt/1/step"),
    SCHEDULE: "opt/2/count",
    UPDATES: "step",
    "slowval_count/value": "step",
    **dict(zip(RANGE, ("norm/lo", "norm/hi"), strict=True)),
}


class Place(NamedTuple):
    """One of our tensors and its path in the public state."""

    public: str
    ours: str
    shape: tuple[int, ...]


def convert(tensors: Tensors, state: State) -> dict[str, Any]:
    """Our state by path, as agents load it, in the structure of `state`.

    Raises with a line for each tensor that is missing, unexpected or misshapen.
    """
    if problems := check(tensors, places(state)):
        lines = "\n  ".join(problems)
        raise CheckpointError(
            f"{len(problems)} tensors do not match, nothing was written:\n  {lines}\n"
            "If the observations or actions differ, give the environment of the public "
            "run with --task."
        )
    networks = {place.ours: tensors[place.public] for place in _networks(state)}
    clip, _, *schedule = state.opt
    public = public_names(state.params).values()
    laprop = LaPropState(
        step=tensors[SCALINGS[0]],  # type: ignore[arg-type]
        mu=pack([tensors[f"{MOMENTUM}/{name}"] for name in public]),  # type: ignore[misc]
        nu=pack([tensors[f"{SECOND_MOMENT}/{name}"] for name in public]),  # type: ignore[misc]
    )
    # Without a warm-up there is no schedule, and nothing to count.
    counted = jax.tree.map(lambda _: tensors[SCHEDULE], schedule)
    opt = params.flatten({"opt": (clip, laprop, *counted)})
    norm = dict(zip(("norm/lo", "norm/hi"), map(tensors.get, RANGE), strict=True))
    return {**networks, **opt, **norm, "step": tensors[UPDATES]}


def check(tensors: Tensors, expected: Sequence[Place]) -> list[str]:
    """Mismatches, one line each; that of a parameter includes its optimiser state."""
    problems = {}
    for public, ours, shape in expected:
        if public not in tensors:
            problems[public] = f"missing, needed for {ours} {shape}"
        elif tensors[public].shape != shape:
            problems[public] = f"{tensors[public].shape}, but {ours} has {shape}"
    known = {place.public for place in expected}
    left = {name: value for name, value in tensors.items() if name not in known}
    problems |= {name: f"{value.shape}, unexpected" for name, value in left.items()}
    if not problems and tensors[SCALINGS[0]] != tensors[SCALINGS[1]]:
        problems[" and ".join(SCALINGS)] = "differ, but must be equal"
    implied = {f"{m}/{name}" for m in (SECOND_MOMENT, MOMENTUM) for name in problems}
    return [f"{name}: {text}" for name, text in problems.items() if name not in implied]


def places(state: State) -> list[Place]:
    """All tensors of the public state."""
    trained = params.flatten(state.params)
    public = public_names(state.params)
    moments = [
        Place(f"{prefix}/{public[path]}", f"opt/1/{name} of {path}", value.shape)
        for prefix, name in ((SECOND_MOMENT, "nu"), (MOMENTUM, "mu"))
        for path, value in trained.items()
    ]
    scalars = [Place(name, ours, ()) for name, ours in SCALARS.items()]
    return [*_networks(state), *moments, *scalars]


def public_names(networks: Networks) -> dict[str, str]:
    """The public path of each parameter by its own path."""
    result = {}
    for path in params.flatten(networks):
        module, _, leaf = path.rpartition("/")
        result[path] = f"{_module(_described(module, networks))}/{leaf}"
    return result


def _networks(state: State) -> list[Place]:
    """Parameters and the slow critic, whose names are those of the critic."""
    public = public_names(state.params)
    trained = [
        Place(public[path], f"params/{path}", value.shape)
        for path, value in params.flatten(state.params).items()
    ]
    slow = [
        Place(f"slow{public[f'val/{path}']}", f"slow/{path}", value.shape)
        for path, value in params.flatten(state.slow).items()
    ]
    return [*trained, *slow]


def _module(path: str) -> str:
    for pattern, template in MODULES:
        if match := re.fullmatch(pattern, path):
            return match.expand(template)
    raise AssertionError(path)


def _described(path: str, networks: Networks) -> str:
    """The path with details that the public name depends on.

    These are the kind of an output, and the index of a convolution from the end.
    """
    if found := re.fullmatch(r"(dec/vec|pol)/outs/(.+)/linears/(\d)", path):
        head = networks.pol if found[1] == "pol" else networks.dec.vec
        assert head is not None
        return f"{found[1]}/outs/{found[2]}/{head.outs[found[2]].kind}/{found[3]}"
    if found := re.fullmatch(r"dec/(convs|norms)/(\d+)", path):
        place = len(networks.dec.convs) - 1 - int(found[2])
        return f"dec/{found[1]}/{place}"
    return path
