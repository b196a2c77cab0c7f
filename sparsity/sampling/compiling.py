"""How samplers are compiled, kept and dropped, and sums in the form that XLA is then quick at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax

from sparsity.xla import has_older_loops, sampler_options

# What a program draws, as LLVM's level: the lower, the sooner compiled and the slower to draw.
MUCH, LITTLE, ONCE = None, 2, 0  # None is the level that XLA is set to, 3
_PROGRAMS = 256  # that are kept, of about 4 MB each: a sweep returns to each of its samplers


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
    work = functools.partial(function, **static)
    return jax.jit(work, compiler_options=sampler_options(level))


def token_sums(*terms: jax.Array) -> list[jax.Array]:
    """The sum of each term over its last axis, in one loop where that is the quicker way.

    Args:
        terms: arrays of one shape and dtype.
    """
    if not has_older_loops():
        return [x.sum(axis=-1) for x in terms]
    zeros = [x.dtype.type(0) for x in terms]
    return list(jax.lax.reduce(terms, tuple(zeros), _added, (terms[0].ndim - 1,)))


def _added(one: tuple[jax.Array, ...], other: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    return tuple(a + b for a, b in zip(one, other, strict=True))
