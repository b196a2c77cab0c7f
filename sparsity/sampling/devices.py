"""The devices that samplers run on: how batches are spread over them, and how they are compiled.

Several processes (`jax.distributed`) make the same calls; each hands in the same host arrays and
gets the whole result back.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from sparsity.arguments import float_type
from sparsity.errors import InputError
from sparsity.xla import has_older_loops, sampler_options

CHUNK = 32  # batches a call: the grain of progress, of interruption and of spreading over devices

_MAX_PROGRAMS = 256  # kept at once, at about 4 MB each: a sweep returns to each of its samplers
_ONE_THREAD = threading.Lock()


def resolve_dtype(dtype: Any) -> np.dtype:
    """Return the sampling precision: the one given, else float64 where JAX has it enabled.

    Raises:
        InputError: not a float dtype, or float64 asked for while JAX has it disabled.
    """
    available = jax.dtypes.canonicalize_dtype(np.float64)
    if dtype is None:
        return np.dtype(available)
    wanted = float_type(dtype)
    if wanted == np.float64 and available != wanted:
        fix = "JAX has it disabled; call jax.config.update('jax_enable_x64', True) first"
        raise InputError("dtype", "float64", fix)
    return wanted


@functools.cache
def mesh() -> jax.sharding.Mesh:
    """Return the mesh of as many devices as share a chunk evenly.

    Raises:
        InputError: some of several processes would be left without a device.
    """
    # Of six devices two share 32 batches evenly; the others would wait for them. `shard_map`
    # knows no uneven shares.
    devices = jax.devices()
    count = math.gcd(len(devices), CHUNK)
    if jax.process_count() > 1 and count < len(devices):
        fix = f"the devices of all processes together must divide {CHUNK}"
        raise InputError("devices", len(devices), fix)
    return jax.sharding.Mesh(np.array(devices[:count]), ("batch",))


def runs_on_cpu() -> bool:
    """Return whether batches are drawn on CPUs."""
    return mesh().devices.flat[0].platform == "cpu"


def to_host(arguments: Any) -> Any:
    """Return what a call takes: plain host arrays where several processes must pass the same."""
    return arguments if jax.process_count() == 1 else jax.tree.map(np.asarray, arguments)


def replicated(found: Any) -> Any:
    """Return a call's result so that every process holds all of it."""
    if jax.process_count() == 1:
        return found
    whole = jax.sharding.NamedSharding(mesh(), PartitionSpec())
    return jax.lax.with_sharding_constraint(found, whole)


def from_first_process(*numbers: float) -> list[float]:
    """Return the first process's numbers, where several processes must decide alike."""
    if jax.process_count() == 1:
        return list(numbers)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.broadcast_one_to_all(np.array(numbers))).tolist()


def sharded(share: Callable[..., Any], others: int) -> Callable[..., Any]:
    """Return a function whose first argument and result are split by batch over all devices.

    Batches need nothing of each other, so that no device talks to another inside a call, and what
    one computes for a batch does not depend on how many devices there are.

    Args:
        share: the function of one device's batches and `others` further arguments.
        others: how many arguments every device gets whole.
    """
    return jax.shard_map(
        share,
        mesh=mesh(),
        in_specs=(PartitionSpec("batch"), *(PartitionSpec() for _ in range(others))),
        out_specs=PartitionSpec("batch"),
        check_vma=False,
    )


@functools.lru_cache(maxsize=_MAX_PROGRAMS)
def jitted(function: Callable[..., Any], level: int | None, **static: Any) -> Callable[..., Any]:
    """Return `jax.jit` of a function that draws, one for each value of its static arguments.

    JAX keeps every program of a jitted function for as long as the function lives. Here each
    function has one program, so that the least recently used ones are dropped together.

    Args:
        function: what draws.
        level: of LLVM's optimiser, one of those in `sparsity.xla`.
        static: its static arguments.
    """
    work = functools.partial(function, **static)
    return jax.jit(work, compiler_options=sampler_options(level))


def program_of(
    function: Callable[..., Any], level: int | None, **static: Any
) -> Callable[..., Any]:
    """Return what `jitted` does; two threads that ask together would each compile the same."""
    with _ONE_THREAD:
        return jitted(function, level, **static)


def token_sums(*terms: jax.Array) -> list[jax.Array]:
    """Return the sum of each term over its last axis, in one loop where XLA is quicker that way.

    With XLA's older loops on a CPU one reduction of several operands is quicker than as many of
    one; in the newer way of loops it is slow (`sparsity.xla`).

    Args:
        terms: arrays of one shape and dtype.
    """
    if not has_older_loops():
        return [x.sum(axis=-1) for x in terms]

    def add(one: tuple[jax.Array, ...], other: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        return tuple(a + b for a, b in zip(one, other, strict=True))

    zeros = tuple(x.dtype.type(0) for x in terms)
    return list(jax.lax.reduce(terms, zeros, add, (terms[0].ndim - 1,)))
