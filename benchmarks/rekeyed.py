"""The library's samplers under other generators, and whether their bits stay the same.

    python -m benchmarks.rekeyed GENERATOR …

prints a digest of the batches under each generator, on however many devices JAX finds, as JSON.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax

jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from benchmarks.generators import NAMED, Generator, rekeyed  # noqa: E402
from sparsity import kernels, quantities  # noqa: E402
from sparsity.sampling import estimators, proposals  # noqa: E402
from sparsity.sampling.batches import batch_size, collect  # noqa: E402
from sparsity.sampling.row_sampling import RowSampler  # noqa: E402
from sparsity.sampling.row_sources import IidTokens  # noqa: E402
from sparsity.sampling.samplers import Plain, Stratified  # noqa: E402

AT = {"beta": 0.5, "gamma": 1.0}
PLAIN_SIZE = 2**16
SAME, DIFFER, FAILED = "same", "**differ**", "**do not compile**"


@dataclass(frozen=True)
class Rekeyed:
    """A sampler of the library under another generator."""

    sampler: Any
    generator: str

    @property
    def size(self) -> int:
        return self.sampler.size

    @property
    def numbers(self) -> int:
        return self.sampler.numbers

    @property
    def dtype(self) -> str:
        return self.sampler.dtype

    def __call__(self, key: jax.Array, arguments: Any) -> jax.Array:
        return self.sampler(rekeyed(key, NAMED[self.generator]), arguments)


def layout(generator: Generator) -> contextlib.AbstractContextManager[Any]:
    """JAX's setting that belongs to it."""
    return jax.threefry_partitionable(generator.partitionable)


def rows(n: int, dtype: str) -> tuple[Any, Any]:
    """Whole rows of n tokens, and their arguments."""
    real = np.dtype(dtype).type
    law = (real(AT["beta"]), real(AT["gamma"]), real(0))
    known = (quantities.named("n_eff"),)  # a sort for the Gini index would hide the generator
    sampler = RowSampler(kernels.relu2, IidTokens(n), known, False, batch_size(n), dtype)
    return sampler, (law, real(-np.inf), real(0))


def plain(dtype: str) -> tuple[Any, Any]:
    """Plain scalar scores."""
    real = np.dtype(dtype).type
    law = tuple(map(real, AT.values()))
    return Plain(kernels.relu2, PLAIN_SIZE, dtype), (law, real(0))


def stratified(size: int, dtype: str) -> tuple[Any, Any]:
    """Stratified scalar scores."""
    real = np.dtype(dtype)
    table = proposals.build(kernels.relu2, AT).astype(real)
    law = estimators.parameter_values(kernels.relu2, AT, real)
    return Stratified(kernels.relu2, size, dtype), (law, table)


SAMPLERS: dict[str, tuple[Any, Any]] = {
    f"{name}, {dtype}": build(dtype)
    for dtype in ("float32", "float64")
    for name, build in {
        "rows n=1024": lambda t: rows(1024, t),
        "plain": plain,
        "stratified 8192": lambda t: stratified(8192, t),
        "stratified 32": lambda t: stratified(32, t),
    }.items()
    if (name, dtype) != ("stratified 32", "float32")
}  # fmt: skip


def drawn(sampler: Any, arguments: Any, generator: Generator, chunks: int, seed: int) -> np.ndarray:
    """Batches of a sampler under a generator."""
    with layout(generator):
        return collect(
            Rekeyed(sampler, generator.name), arguments, seed=seed, first=0, chunks=chunks
        )


def digests(names: Sequence[str]) -> dict[str, str]:
    """The bits of each generator's batches, on however many devices there are."""
    jobs = (rows(64, "float32"), stratified(512, "float64"))  # one batch at a time, and four
    found = {}
    for generator in map(NAMED.__getitem__, names):
        try:
            parts = [drawn(*job, generator, 1, 7).tobytes() for job in jobs]
        except jax.errors.JaxRuntimeError:  # a generator that the compiler refuses
            found[generator.name] = FAILED
        else:
            found[generator.name] = hashlib.sha256(b"".join(parts)).hexdigest()
    return found


def exact_under_vmap(generator: Generator) -> bool:
    """Whether keys drawn side by side give what they give one by one."""
    key = rekeyed(jax.random.key(1, impl="threefry2x32"), generator)
    keys = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(4, dtype="uint32"))
    with layout(generator):
        together = jax.vmap(lambda k: jax.random.bits(k, (8,), "uint32"))(keys)
        apart = [jax.random.bits(k, (8,), "uint32") for k in keys]
    return bool(jnp.array_equal(together, jnp.stack(apart)))


if __name__ == "__main__":
    print(json.dumps(digests(sys.argv[1:])))
