"""Where a train step goes: time of each part with its gradient, and the FLOP floor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from dreamerv3.model import decoder, imagination
from dreamerv3.model.latents import Latent
from dreamerv3.model.rssm import feature
from embodied.jax import devices


def total(tree: Any) -> Any:
    """Sum of everything, to differentiate."""
    return sum(jnp.sum(x.astype(jnp.float32)) for x in jax.tree.leaves(tree))


def part_functions(agent: Any, data: dict[str, Any]) -> dict[str, Callable[[], Any]]:
    """One compiled function per part, bound to inputs of the right shapes."""
    model, state = agent.model, agent.state
    batch, steps = data["reward"].shape[0], data["reward"].shape[1] - model.context
    seq = jax.jit(model.sequence)(agent.init_train(batch), data)
    rows, key, params = data["rows"], agent.key, state.params
    rssm = params.dyn
    latent = Latent(
        jnp.zeros((batch, steps, rssm.deter)),
        jnp.zeros((batch, steps, rssm.stoch, rssm.classes)),
    )
    tokens = jnp.zeros((batch, steps, params.enc.size))
    noise = jnp.full((batch, steps, rssm.stoch), 0.5)

    def encode(enc: Any, obs: Any) -> Any:
        return total(enc(obs))

    def observe(dyn: Any, tokens: Any, noise: Any, seq: Any) -> Any:
        args = (tokens, seq.prevact, seq.obs["is_first"], noise)
        latents, logit = dyn.observe(seq.start, *args)
        return total((latents, logit, dyn.prior_logit(latents.deter)))

    def decode(dec: Any, latent: Any, obs: Any) -> Any:
        return total(decoder.losses(dec(*latent), obs))

    def heads(rew: Any, con: Any, latent: Any, target: Any) -> Any:
        feat = feature(latent)
        return total((rew(feat).loss(target), con(feat).loss(target)))

    def imagine(params: Any, latent: Any, rows: Any) -> Any:
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), latent)
        noise = model.imag_noise(params, rows, steps, key)
        return imagination.imagine(params, flat, noise, model.actions)

    def behavior(params: Any, latent: Any, state: Any, seq: Any, rows: Any) -> Any:
        terms = model.behavior_loss(params, state, seq, latent, rows, key)[0]
        return total(terms)

    def optimise(params: Any, opt: Any, grads: Any) -> Any:
        updates, opt = model.opt.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt

    calls = {
        "encoder": (jax.grad(encode), (params.enc, seq.obs)),
        "rssm": (jax.grad(observe, (0, 1)), (rssm, tokens, noise, seq)),
        "decoder": (jax.grad(decode, (0, 1)), (params.dec, latent, seq.obs)),
        "reward, continue": (
            jax.grad(heads, (0, 1, 2)),
            (params.rew, params.con, latent, seq.obs["reward"]),
        ),
        "imagination": (imagine, (params, latent, rows)),
        "imagination + actor-critic": (
            jax.grad(behavior, (0, 1)),
            (params, latent, state, seq, rows),
        ),
        "optimiser": (optimise, (params, state.opt, params)),
    }
    return {name: _bind(fn, args) for name, (fn, args) in calls.items()}


def _bind(fn: Callable[..., Any], args: Any) -> Callable[[], Any]:
    compiled = devices.compile_for(jax.jit(fn), args)

    def call() -> Any:
        return jax.block_until_ready(compiled(*args))

    return call


def flops(agent: Any, batch: int, steps: int) -> dict[str, float]:
    """Multiplications and additions that each part cannot do without."""
    params, horizon = agent.state.params, agent.config.imag_length
    rows = batch * steps
    dreams = rows * horizon
    core = dense((params.dyn.dynin, params.dyn.dynhid, params.dyn.dyngru))
    prior = dense((params.dyn.prior, params.dyn.priorlogit))
    acting, value = dense(params.pol), dense(params.val)
    judged = (rows + dreams) * (dense((params.rew, params.con)) + value)
    learned = 3 * (dreams * acting + (2 * rows + dreams) * value)
    imagined = dreams * (core + prior + acting)
    return {
        "encoder": 3 * rows * (dense(params.enc.mlp) + images(params.enc, 1.0)),
        "rssm": 3 * rows * dense(params.dyn),
        "decoder": 3 * rows * (dense(params.dec) + images(params.dec, 9 / 25)),
        "reward, continue": 3 * rows * dense((params.rew, params.con)),
        "imagination": imagined,
        "imagination + actor-critic": imagined + judged + learned,
        "optimiser": 0.0,
    }


def dense(tree: Any) -> float:
    """FLOP per row of all matrix products in a module."""
    leaves = [x for x in jax.tree.leaves(tree) if x.ndim in (2, 3)]
    return float(sum(2 * np.prod(x.shape) for x in leaves))


def images(module: Any, share: float) -> float:
    """FLOP per frame of all convolutions; `share` of the taps are needed."""
    kernels = [x for x in jax.tree.leaves(module) if x.ndim == 4]
    if share == 1:  # Encoder: large maps first, convolved before pooling.
        sides = [64 // 2**i for i in range(len(kernels))]
    else:  # Decoder: the last map is the largest.
        sides = [64 // 2**i for i in range(len(kernels))][::-1]
    taps = zip(kernels, sides, strict=True)
    return float(sum(2 * np.prod(k.shape) * side**2 * share for k, side in taps))


def show(agent: Any, data: dict[str, Any], shape: tuple[int, int], best: Any) -> None:
    """Print a table of parts: time, share of the step, and the floor."""
    matrix = np.random.rand(2048, 2048).astype(np.float32)
    rate = 2 * 2048**3 / best(lambda: matrix @ matrix, 1)
    carry = agent.init_train(shape[0])
    device = {k: v for k, v in data.items() if k != "stepid"}
    # Before the train step, which takes over the buffers of the parameters.
    times = {k: best(fn, 2) for k, fn in part_functions(agent, device).items()}
    step = best(lambda: jax.block_until_ready(agent.train(carry, data)[2]), 5)
    print(f"\nMatrix products run at {rate / 1e9:.0f} GFLOP/s in numpy.")
    print(f"{'part and its gradient':<30}{'ms':>8}{'share':>8}{'GFLOP':>8}{'floor':>8}")
    floors = flops(agent, *shape)
    for name, seconds in times.items():
        work = floors[name]
        row = f"{1e3 * seconds:>8.1f}{seconds / step:>8.0%}{work / 1e9:>8.2f}"
        print(f"{name:<30}{row}{1e3 * work / rate:>6.1f}ms")
    whole = sum(v for k, v in floors.items() if k != "imagination")
    row = f"{1e3 * step:>8.1f}{1:>8.0%}{whole / 1e9:>8.2f}"
    print(f"{'train step':<30}{row}{1e3 * whole / rate:>6.1f}ms")
