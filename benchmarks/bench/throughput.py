"""Raw sampling rate at equal dtype: score → |f| → means of |f| and f², plain draws for everyone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from benchmarks.bench.grid import Task, delta
from benchmarks.bench.peers import Peer
from benchmarks.bench.timing import paired, ratio
from sparsity import kernels
from sparsity.results import Estimate
from sparsity.sampling import Sampling, estimators

OURS = "sparsity"
CELLS = (Task(kernels.exp, 0.0, 0.5), Task(kernels.relu2, 1.0, 1.0), Task(kernels.identity, 0, 1))

_WRONG = 6.0  # standard errors from the truth, in most rounds: a false error bar
_ENDLESS = 1e-15  # a target out of reach: all draws asked for are taken


def is_wrong(log_S: float, results: Sequence[tuple[float, float]]) -> bool:
    """Whether most of the (log S, standard error) found lie further from the truth than chance."""
    return median(abs(found - log_S) / error for found, error in results) > _WRONG


def _ours(cell: Task, draws: int, dtype: str) -> Callable[[int], Estimate]:
    parameters = {"beta": float(cell.beta), "gamma": float(cell.gamma)}

    def work(seed: int) -> Estimate:
        return estimators.plain(cell.kernel, parameters, Sampling(_ENDLESS, draws, seed, dtype))

    work(10_000)  # compiles
    return work


def threefry(bits: int) -> Callable[[float], float]:
    """Draws of jax.random.bits asked for -> drawn, each block reduced where it was made.

    Their rate is the ceiling of any estimator with threefry keys: a float32 normal takes 32 bits,
    a float64 normal 64.

    Args:
        bits: 32 or 64; the latter where JAX has x64 enabled.
    """
    import jax
    import jax.numpy as jnp

    block, kind = 2**24 if jax.default_backend() != "cpu" else 2**18, f"uint{bits}"

    @jax.jit
    def blocks(key: jax.Array, count: jax.Array) -> jax.Array:
        def step(i: jax.Array, total: jax.Array) -> jax.Array:
            drawn = jax.random.bits(jax.random.fold_in(key, i), (block,), kind)
            return total ^ jnp.bitwise_xor.reduce(drawn)

        return jax.lax.fori_loop(0, count, step, jnp.zeros((), kind))

    key = jax.random.key(0, impl="threefry2x32")

    def work(draws: float) -> float:
        count = max(1, round(draws / block))
        jax.block_until_ready(blocks(key, jnp.int32(count)))
        return float(count * block)

    return work


def ceilings(dtypes: Sequence[str], draws: float, rounds: int) -> dict[str, float]:
    """Normals a second that the generator alone allows, by dtype; the best of `rounds`."""
    found = {}
    for dtype in dtypes:
        work = threefry(int(dtype[-2:]))
        work(1)  # compiles
        done = paired({dtype: lambda _, w=work: w(draws)}, rounds)
        found[dtype] = done.results[dtype][0] / min(done.seconds[dtype])
    return found


def rates(cell: Task, dtype: str, peers: Sequence[Peer], draws: int, rounds: int) -> dict[str, Any]:
    """Draws per second of ours and of each peer in a cell, interleaved.

    Args:
        cell: where, such as one of CELLS.
        dtype: of the arithmetic.
        peers: against whom.
        draws: of each timing.
        rounds: timings of each.

    Returns:
        Draws per second, the ratio ours over each peer, the best peer that is not wrong.
    """
    works = {peer.name: peer.prepare(cell, draws, dtype) for peer in peers}
    contestants: dict[str, Callable[[int], Any]] = {OURS: _ours(cell, draws, dtype)}
    contestants |= {name: lambda r, w=w: delta(w(r)) for name, w in works.items()}
    done = paired(contestants, rounds)
    drawn = dict.fromkeys(works, draws) | {OURS: done.results[OURS][0].samples}
    scale = drawn[OURS] / draws  # ours takes whole batches
    ratios = {name: scale * ratio(done.seconds[name], done.seconds[OURS]) for name in works}
    found = {name: done.results[name] for name in works}
    found[OURS] = [(x.log_S, x.rel_stderr) for x in done.results[OURS]]
    wrong = [name for name in found if is_wrong(cell.log_S, found[name])]
    best = min((n for n in ratios if n not in wrong), key=ratios.__getitem__, default=None)
    return {
        "dtype": dtype,
        "cell": cell.label,
        "draws": draws,
        "draws_per_second": {n: drawn[n] / median(done.seconds[n]) for n in drawn},
        "ours_over": ratios,
        "wrong": wrong,
        "best_peer": best,
        "ratio": ratios[best] if best else math.nan,
    }


def calibrate(
    cells: Sequence[Task], peers: Sequence[Peer], draws: int, rounds: int, dtype: str
) -> dict[tuple[str, str], float]:
    """Draws per second by (peer, kernel), to compute what is too long to measure."""
    found = {}
    for cell in {cell.kernel.name: cell for cell in cells}.values():
        mild = next(c for c in CELLS if c.kernel is cell.kernel)
        done = paired({peer.name: peer.prepare(mild, draws, dtype) for peer in peers}, rounds)
        for name, times in done.seconds.items():
            found[name, cell.kernel.name] = draws / min(times)  # the peer's best
    return found
