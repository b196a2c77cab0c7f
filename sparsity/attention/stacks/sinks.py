"""The sink metric: how much attention a token receives on average, and how often that is a sink.

Of attention arrays as a model returns them, NumPy or JAX: rows are queries, columns keys.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.checks import check_number, check_reals
from sparsity.errors import InputError

_FIX = "give real weights [..., tokens, tokens], zeros above the diagonal"
# A row's sum in single precision may be off 1 by so much; in coarser types by 4 of their units. It
# has to tell rounding from rows that were not normalised, or are of another axis.
_ROUNDING = 1e-5


def _checked(attention: Any) -> Any:
    """Return the array in at least single precision, found to be causal attention."""
    attention = check_reals("attention", attention, _FIX)
    shape = tuple(attention.shape)

    def refuse(fault: str, fix: str) -> InputError:
        return InputError("attention", f"array of shape {shape}", f"{fault}; {fix}")

    if len(shape) < 2 or shape[-1] != shape[-2] or 0 in shape:
        raise refuse("has the wrong shape", "give [..., tokens, tokens], queries before keys")
    host = np.asarray(attention)
    if host.dtype.kind in "iu":
        host = attention = host.astype(np.float64)
    import jax.numpy as jnp  # whose bfloat16 is unknown to NumPy

    coarse = float(jnp.finfo(host.dtype).eps)
    if coarse > 1e-6:
        host, attention = host.astype(np.float32), attention.astype(np.float32)
    if not np.all(np.isfinite(host)):
        raise refuse("holds NaN or infinite weights", "give finite ones")
    if np.any(host < 0):
        raise refuse("holds negative weights", "give weights >= 0")
    if np.any(np.triu(host, 1)):
        raise refuse("is not causal", "weights above the diagonal must be 0; or transpose it")
    off = np.abs(host.sum(-1, dtype=np.float64) - 1).max()
    if off > max(_ROUNDING, 4 * coarse):
        raise refuse(f"has rows whose sum is off 1 by {off:.2g}", "normalise each row")
    return attention


def importance(attention: Any) -> Any:
    """Return the mean attention that each key receives from the queries that can see it.

    α_k = 1/(T − k + 1) Σ_{t ≥ k} A_{t,k}

    Args:
        attention: causal weights [..., T, T], A[..., t, k] of query t on key k, rows summing to 1;
            half precision is summed in single.

    Returns:
        α in [0, 1], of shape [..., T], of the same library as `attention`.

    Raises:
        InputError: not [..., T, T], not finite, negative, not causal, or rows that do not sum to 1.

    Source: Gu et al. (2024), "When Attention Sink Emerges in Language Models", arXiv 2410.10781.
    """
    attention = _checked(attention)
    # Key k = 1 … T is seen by T − k + 1 queries: a mean over all queries would belittle late keys.
    seen_by = np.arange(attention.shape[-1], 0, -1).astype(attention.dtype)
    return attention.sum(-2) / seen_by


def sink_rate(attention: Any, epsilon: float = 0.3, key: int = 0) -> float:
    """Return the share of the heads of a model in which a key is a sink.

    Sink_k^ε = mean over samples, layers and heads of 1[α_k > ε]: each sample, layer and head is
    held against the threshold by itself, strictly, and the indicators are averaged.

    Args:
        attention: causal weights [..., layers, heads, T, T], samples leading, rows summing to 1.
        epsilon: the threshold ε in (0, 1); Gu et al. use 0.3 at T = 64, Barbero et al. 0.8.
        key: the key asked about, 0 for the first token.

    Returns:
        The rate, in [0, 1].

    Raises:
        InputError: ε outside (0, 1), no such key, fewer than four axes, or as `importance`.

    Source: Gu et al. (2024), arXiv 2410.10781; Barbero et al. (2025), arXiv 2504.02732, table 1.
    """
    check_number("epsilon", epsilon, "must be in (0, 1)", lambda x: 0 < x < 1)
    attention = check_reals("attention", attention, _FIX)
    shape = tuple(attention.shape)
    if len(shape) < 4:
        fix = "has the wrong shape; give [..., layers, heads, tokens, tokens]"
        raise InputError("attention", f"array of shape {shape}", fix)
    fix = f"must be a position from 0 to {shape[-1] - 1}"
    check_number("key", key, fix, lambda x: 0 <= x < shape[-1] and x == int(x))
    return float((importance(attention)[..., int(key)] > epsilon).mean())
