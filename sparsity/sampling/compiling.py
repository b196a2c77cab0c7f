"""How samplers are compiled: what XLA is told, and sums in the form that it is then quick at.

On a CPU XLA has two ways to write a fused loop. The older one compiles in half the time. It draws
most rows at least as fast if the sums of a row are one loop; in the newer way such a loop is slow.
"""

from __future__ import annotations

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax

# What a program draws, as LLVM's level: the lower, the sooner compiled and the slower to draw.
MUCH, LITTLE, ONCE = None, 2, 0  # None is the level that XLA is set to, 3
_PROGRAMS = 256  # that are kept, of about 4 MB each: a sweep returns to each of its samplers


@functools.cache
def older_loops() -> bool:
    """Whether XLA can be told to write loops in the older way; it refuses options it has not."""
    known = importlib.metadata.version("jaxlib").startswith("0.10.")
    return known and jax.default_backend() == "cpu"


@functools.lru_cache(maxsize=_PROGRAMS)
def compiled(function: Callable[..., Any], level: int | None, **static: Any) -> Callable[..., Any]:
    """`jax.jit` of a function that draws, of its own for each of its static arguments.

    JAX keeps every program of a jitted function for as long as the function lives. Here those
    that were least lately used are dropped with theirs.

    Args:
        function: what draws.
        level: `MUCH`, `LITTLE` or `ONCE`, by what it draws.
        static: its static arguments.
    """
    options: dict[str, Any] | None = None
    if older_loops():
        options = {"xla_cpu_use_fusion_emitters": False}
        options |= {} if level is None else {"xla_backend_optimization_level": level}
    return jax.jit(functools.partial(function, **static), compiler_options=options)


def token_sums(*terms: jax.Array) -> list[jax.Array]:
    """The sum of each term over its last axis.

    Args:
        terms: arrays of one shape and dtype.
    """
    if not older_loops():
        return [x.sum(axis=-1) for x in terms]
    zeros = [x.dtype.type(0) for x in terms]
    return list(jax.lax.reduce(terms, tuple(zeros), _added, (terms[0].ndim - 1,)))


def _added(one: tuple[jax.Array, ...], other: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))
