"""Attention weights of scores in JAX, by the library's own definitions of kernels and maps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import sympy

from sparsity import RowMap, kernels

FEATURES = "elu+1 features"  # linear attention: its scores are products of features
LARGEST_SCORE = 60.0  # scores are cut here: a sum of e^60 still has room in float32
_SMALL = 1e-6  # beside Σ|a|, for a row without any weight


@functools.cache
def kernel_function(name: str) -> Callable[[Any], Any]:
    """Return f as a function of JAX arrays."""
    kernel = kernels.elementwise(name)
    return sympy.lambdify(list(kernel.weight.free_symbols), kernel.weight, "jax")


def row_weights(name: str, scores: Any) -> Any:
    """Return the weights of rows, over their sum of |a|, by a kernel or a map.

    Args:
        name: as in `sparsity.kernels`; `FEATURES` has weights for scores already.
        scores: rows along the last axis.
    """
    if name == FEATURES:
        return scores / (scores.sum(-1, keepdims=True) + _SMALL)
    known = kernels.named(name)
    if isinstance(known, RowMap):
        return _of_kept(name, scores, jax.lax.stop_gradient(known.weights(scores) > 0))
    weights = kernel_function(name)(scores)
    total = jnp.expm1(scores) if name == "softpick" else weights  # which it divides by
    return weights / (jnp.abs(total).sum(-1, keepdims=True) + _SMALL)


def _of_kept(name: str, scores: Any, kept: Any) -> Any:
    """Return the weights of sparsemax, entmax-1.5 or top-k, given which keys have any.

    The maps look for their threshold by a loop, which JAX does not differentiate. Given the keys
    that are kept, they are elementary, and so is their gradient.
    """
    count = kept.sum(-1, keepdims=True)
    if name == "sparsemax":
        threshold = ((scores * kept).sum(-1, keepdims=True) - 1) / count
        return (scores - threshold) * kept
    if name == "entmax1.5":  # (s/2 − τ)² with Σ = 1: a quadratic equation for τ
        over = scores / 2 - (scores / 2 * kept).sum(-1, keepdims=True) / count
        rest = 1 - (over * over * kept).sum(-1, keepdims=True)
        return (over + jnp.sqrt(jnp.maximum(rest, _SMALL) / count)) ** 2 * kept
    weights = jnp.exp(scores - jax.lax.stop_gradient(scores.max(-1, keepdims=True))) * kept
    return weights / weights.sum(-1, keepdims=True)
