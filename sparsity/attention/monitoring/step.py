"""The focus of attention inside a training step in JAX: `monitor` some rows, or penalise them.

Both are `stream` on a sample of rows: sums over all keys for a few queries cost little beside the
layer itself. `check_bounds` and `mean_square_outside` serve the penalty in PyTorch too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sparsity.attention.streaming import log_spaced, log_spaced_by_text, segments_of, stream
from sparsity.attention.streaming.inputs import check_arrays, check_row_positions
from sparsity.attention.streaming.sums import no_value
from sparsity.calls import public
from sparsity.checks import (
    as_float64,
    check_choice,
    check_flag,
    check_number,
    check_whole,
    is_jax,
)
from sparsity.errors import InputError

# What a penalty can bound: the least value that a row can have, and the keys without which it has
# none.
_BOUNDED = {
    "n_eff": (1.0, 1),
    "entropy": (0.0, 1),
    "sink_mass": (0.0, 1),
    "gamma": (0.0, 2),
    "gamma_ratio": (0.0, 2),
    "beta": (-math.inf, 1),
    "max_logit": (-math.inf, 1),
}


def check_bounds(of: str, low: float | None, high: float | None) -> list[float | None]:
    """Return the bounds between which rows cost nothing, as floats.

    Args:
        of: the quantity, one of `_BOUNDED`.
        low: the least value without cost; None for no such bound.
        high: the largest value without cost; None for no such bound.

    Raises:
        InputError: another `of`, no bound, `low` above `high` or out of range.
    """
    check_choice("of", of, tuple(_BOUNDED))
    if low is None and high is None:
        raise InputError("low and high", "None", "give at least one of them")
    least, _ = _BOUNDED[of]
    fix = "give a finite number" + (f" >= {least:g}" if least > -math.inf else "")
    bounds: list[float | None] = []
    for name, value in (("low", low), ("high", high)):
        # As a float: JAX refuses whole numbers beyond its integers.
        number = None if value is None else check_number(name, value, fix, lambda x: x >= least)
        if of == "sink_mass" and number is not None and number > 1:
            raise InputError(name, value, "give a share, from 0 to 1")
        bounds.append(None if number is None else float(number))
    if bounds[0] is not None and bounds[1] is not None and bounds[0] > bounds[1]:
        raise InputError("low", low, f"must be at most high = {high}")
    return bounds


def mean_square_outside(
    xp: Any, of: str, bounds: Sequence[float | None], value: Any, length: Any
) -> Any:
    """Return the mean square distance of rows to the bounds, of the rows with a value; else 0.

    n_eff is compared by its logarithm: a factor of two too few costs the same at 4 and at 400. No
    row of n keys is asked for an n_eff above n, nor for an entropy above ln n.

    Args:
        xp: `jax.numpy` or `torch`.
        of: the quantity.
        bounds: the lower and the upper one, as `check_bounds` returns them.
        value: the quantity of rows, NaN where there is none.
        length: the number of keys n of each row: of none there is no n_eff, and of one no γ̂.
    """
    _, keys = _BOUNDED[of]
    some = length >= keys
    # NaN of these rows is a value gone wrong, which the penalty does not hide. That of others is
    # replaced before any arithmetic: its gradient would be NaN also where `where` drops it.
    x = xp.where(some, value, 1.0)
    zero = xp.zeros_like(x)  # numbers added to it get the type and the device of `value`
    low, high = (None if b is None else zero + b for b in bounds)
    if of == "n_eff":
        x = xp.log(x)
        low, high = (None if bound is None else xp.log(bound) for bound in (low, high))
    if of in ("n_eff", "entropy") and low is not None:
        low = xp.minimum(low, xp.log(xp.where(some, zero + length, 1.0)))
    below = zero if low is None else xp.maximum(low - x, zero)
    above = zero if high is None else xp.maximum(x - high, zero)
    squares = xp.where(some, below**2 + above**2, zero)
    return squares.sum() / xp.maximum(zero.sum() + some.sum(), zero.sum() + 1)


# Rows are few, so many keys fit in a tile of logits: the loop over tiles is short.
_BLOCK_OF_FEW_ROWS = (128, 1024)  # queries, keys at a time
OF = ("length", "n_eff", "entropy", "beta", "gamma", "gamma_ratio", "max_logit", "sink_mass")


def sample_rows(length: int, rows: Any) -> Any:
    """Return the positions of the rows to look at, or None for all of `length` rows.

    Args:
        length: the number of rows there are.
        rows: how many at most, log-spaced, or their positions; None for all.

    Raises:
        InputError: neither a number of rows nor positions below `length`.
    """
    if rows is None:
        return None
    given = as_float64(rows, "rows", "give how many, at least 1, or their positions", texts=False)
    if given.ndim:
        return check_row_positions(length, rows)
    return log_spaced(length, min(check_whole("rows", rows, 1), length))


@public
def monitor(
    queries: Any,
    keys: Any,
    of: Any = OF,
    *,
    rows: Any = 16,
    when: Any = True,
    **options: Any,
) -> dict[str, jax.Array]:
    """Measure how focused attention is in some rows: a pure function for a training step.

    Works under `jax.jit`, `vmap` and `grad`, and has no gradient of its own. `log` turns a tree of
    what it returns, one a layer, into names and floats. `monitoring.torch_monitor` is its twin for
    tensors of PyTorch.

    Args:
        queries: [..., heads, T, d]; a slice of the batch costs less.
        keys: [..., kv heads, T, d].
        of: as `sparsity.stream` takes it.
        rows: how many at most, log-spaced with the last, of each text without its padding; or
            their positions; None for all.
        when: whether this step is looked at, a bool or a traced one such as `step % 50 == 0`; the
            others cost nothing (but under `vmap` over it) and give NaN, −1 for whole numbers.
        options: what else `sparsity.stream` takes: scale, segments, window, softcap, mask, …

    Returns:
        By name, [..., heads, rows]; NaN for rows with too few keys, as `sparsity.stream` has it.

    Raises:
        InputError: tensors of PyTorch, or as `sparsity.stream`.
    """
    _refuse_tensors(queries, "torch_monitor")
    if not is_jax(when):
        when = check_flag("when", when)
    elif when.shape or (not jnp.issubdtype(when.dtype, jnp.number) and when.dtype != bool):
        fix = "give one bool, such as step % 50 == 0"
        raise InputError("when", f"{when.dtype} of shape {when.shape}", fix)
    q, k, options = _sampled_inputs(queries, keys, rows, options)
    q, k = jax.lax.stop_gradient((q, k))

    def look(q: Any, k: Any) -> dict[str, jax.Array]:
        # Masks and biases among the options may have gradients too.
        return jax.lax.stop_gradient(stream(q, k, of, **options))

    def pass_by(q: Any, k: Any) -> dict[str, jax.Array]:
        # Both branches of `cond` must return the same shapes and types.
        like = jax.eval_shape(look, q, k)
        empty = {name: -1 if x.dtype.kind in "iu" else no_value() for name, x in like.items()}
        return {name: jnp.full(x.shape, empty[name], x.dtype) for name, x in like.items()}

    if isinstance(when, bool):
        return look(q, k) if when else pass_by(q, k)
    return jax.lax.cond(when, look, pass_by, q, k)


def _refuse_tensors(queries: Any, twin: str) -> None:
    """Refuse tensors of PyTorch, whose gradients JAX does not know."""
    if hasattr(type(queries), "detach"):
        fix = f"give it to sparsity.monitoring.{twin}, which leaves it on its device"
        raise InputError("queries", "tensor of PyTorch", fix)


def _sampled_inputs(
    queries: Any, keys: Any, rows: Any, options: dict[str, Any]
) -> tuple[jax.Array, jax.Array, dict[str, Any]]:
    """Return queries, keys and the options of `stream` that make it look at some rows only.

    Where segments say what is padding, a number of rows is taken of each text by itself.
    """
    q, k = check_arrays(queries, keys)
    length, segments = q.shape[-2], options.get("segments")
    at = sample_rows(length, rows)
    if not (segments is None or rows is None or np.ndim(rows)):
        positions = options.get("positions")  # of the queries among the keys
        positions = jnp.arange(length) if positions is None else jnp.asarray(positions)
        text = (segments_of(segments, k) > 0)[..., positions]
        at = log_spaced_by_text(jnp.broadcast_to(text, (*q.shape[:-3], length)), int(rows))
    return q, k, {"block": _BLOCK_OF_FEW_ROWS, "rows": at} | options


@public
def penalty(
    queries: Any,
    keys: Any,
    of: str = "n_eff",
    *,
    low: float | None = None,
    high: float | None = None,
    rows: Any = 16,
    **options: Any,
) -> jax.Array:
    """Penalise rows outside bounds on a quantity: a term of a loss, 0 where all lie inside.

    It is the mean over rows of x², x the distance to the nearer bound, of ln n_eff or of another
    quantity itself. A row of n keys is never asked for an n_eff above n. Rows with too few keys do
    not count. The derivatives are finite everywhere; of n_eff, entropy and spreads they are 0, but
    for rounding, where all logits of a row are equal.

    Args:
        queries: [..., heads, T, d].
        keys: [..., kv heads, T, d].
        of: what is bounded: "n_eff", "entropy", "gamma", "gamma_ratio", "beta", "max_logit" or
            "sink_mass".
        low: the least value without cost; None for no such bound.
        high: the largest value without cost; None for no such bound.
        rows: as `monitor` takes them.
        options: as `monitor` takes them.

    Raises:
        InputError: another `of`, no bound, `low` above `high`, or as `monitor`.
    """
    _refuse_tensors(queries, "torch_penalty")
    bounds = check_bounds(of, low, high)
    q, k, options = _sampled_inputs(queries, keys, rows, options)
    statistics = stream(q, k, ("length", of), **options)
    return mean_square_outside(jnp, of, bounds, statistics[of], statistics["length"])
