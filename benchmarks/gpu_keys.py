"""Where the time of sampled keys goes: normals, scores, moments, each with what came before it.

    python -m benchmarks.gpu_keys [--quick]

For d = 64, 128 and 1024 and batches of several sizes, one program each of: the normals of many
batches alone; these and their scores q·k; the sampler as it is. Rates are normals a second on
whatever JAX finds, and the bytes that XLA reckons its compiled program to read and write for each
normal: over the bandwidth of the memory they bound the rate from above.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.gpu import rate
from benchmarks.gpu_peers import BETA, GAMMA, QUERIES
from sparsity import kernels
from sparsity.sampling.random_numbers import normal
from sparsity.sampling.samplers import FullKeys, keys_at

DIMS = (64, 128, 1024)
NUMBERS = (2**11, 2**13, 2**16)  # normals of a batch
_HELD = 2**26  # normals at once on an accelerator, 2**18 on a CPU: one cache

Stage = Callable[[jax.Array, Any], jax.Array]


def stages(sampler: FullKeys) -> dict[str, Stage]:
    """Return the parts of a batch, each a sampler that does all before it as well."""

    def noise(key: jax.Array) -> jax.Array:
        return normal(key, (sampler.size, sampler.dim), sampler.dtype)

    return {
        "normals": lambda key, arguments: noise(key).sum(),
        "scores": lambda key, arguments: (noise(key) @ arguments[0].T).sum(),
        "all": sampler,
    }


def timed(stage: Stage, sampler: FullKeys, seconds: float) -> tuple[float, float]:
    """Return normals a second, and bytes a normal of the compiled program."""
    q, mu = keys_at(BETA, GAMMA, sampler.dim, 0, queries=QUERIES)
    real = np.dtype(sampler.dtype).type
    arguments = (q.astype(real), mu.astype(real), real(1), real(0), real(0))
    held = _HELD if jax.default_backend() != "cpu" else 2**18
    abreast = max(held // sampler.numbers, 1)

    @jax.jit
    def calls(key: jax.Array, count: jax.Array) -> jax.Array:
        def call(i: jax.Array, total: jax.Array) -> jax.Array:
            keys = jax.random.split(jax.random.fold_in(key, i), abreast)
            with jax.default_matmul_precision("highest"):
                return total + jax.vmap(lambda own: stage(own, arguments))(keys).sum()

        return jax.lax.fori_loop(0, count, call, real(0))

    key = jax.random.key(0, impl="threefry2x32")

    def work(normals: float) -> float:
        count = max(1, math.ceil(normals / (abreast * sampler.numbers)))
        jax.block_until_ready(calls(key, jnp.int32(count)))
        return float(count * abreast * sampler.numbers)

    cost: Any = calls.lower(key, jnp.int32(1)).compile().cost_analysis()
    per_normal = float(cost.get("bytes accessed", math.nan)) / (abreast * sampler.numbers)
    return rate(work, seconds), per_normal


def rows(dims: tuple[int, ...], numbers: tuple[int, ...], seconds: float) -> list[dict[str, Any]]:
    """Return the rate and the bytes of each part, by dimension and size of a batch."""
    found = []
    for dim in dims:
        for size in numbers:
            sampler = FullKeys(kernels.relu2, dim, max(size // dim, 1), "float32")
            own: dict[str, Any] = {"dim": dim, "keys": sampler.size}
            for name, stage in stages(sampler).items():
                own[name], own[f"{name}_bytes"] = timed(stage, sampler, seconds)
            found.append(own)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="one size, to see that it works")
    quick = parser.parse_args().quick
    found = rows(DIMS[:1] if quick else DIMS, NUMBERS[:1] if quick else NUMBERS, 0.5)
    print(f"{jax.devices()[0].device_kind}, JAX {jax.__version__}, {QUERIES} queries, float32")
    print("| d | keys of a batch | normals | … and scores | … and moments |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for row in found:
        parts = (
            f"{row[name]:.3g}/s, {row[f'{name}_bytes']:.3g} B"
            for name in ("normals", "scores", "all")
        )
        print(f"| {row['dim']} | {row['keys']} | " + " | ".join(parts) + " |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
