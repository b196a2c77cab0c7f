"""The devices that samplers run on: how batches are spread over them, and how they are compiled."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import PartitionSpec

from sparsity.checks import float_type
from sparsity.errors import InputError
from sparsity.xla import has_older_loops, sampler_options

CHUNK = 32  # batches a call: the grain of progress, of interruption and of spreading over devices

_MAX_PROGRAMS = 64  # kept at once, at about 4 MB each: a sweep returns to each of its samplers


def resolve_dtype(dtype: Any) -> np.dtype:
    """Return the sampling precision: the one given, else float64 where JAX has it enabled.

    Raises:
        InputError: not a float dtype, float64 asked for while JAX has it disabled, or no programs.
    """
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        fix = "samplers are programs, which take hours one operation at a time; unset it"
        raise InputError("JAX_DISABLE_JIT", True, fix)
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
    """Return the mesh of as many devices of this host as share a chunk evenly."""
    # Of six devices two share 32 batches evenly; the others would wait for them. `shard_map`
    # knows no uneven shares.
    devices = jax.local_devices()
    count = math.gcd(len(devices), CHUNK)
    return jax.sharding.Mesh(np.array(devices[:count]), ("batch",))


def runs_on_cpu() -> bool:
    """Return whether batches are drawn on CPUs."""
    return mesh().devices.flat[0].platform == "cpu"


def sharded(share: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose first argument and result are split by batch over all devices.

    Batches need nothing of each other, so that no device talks to another inside a call.

    Args:
        share: the function of one device's batches and another argument, which all get whole.
    """
    return jax.shard_map(
        share,
        mesh=mesh(),
        in_specs=(PartitionSpec("batch"), PartitionSpec()),
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
