"""What is measured on request: quantities of rows by their own definitions, shapes of logits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import special

from sparsity import quantities
from sparsity.attention.measurement.attention_layers import Layer, LogitLayer
from sparsity.attention.measurement.row_focus import SinkApart, set_sink_apart, spread_with_sink
from sparsity.checks import check_several
from sparsity.errors import InputError
from sparsity.quantities import Quantity, RowSums

# Of logits: each also without the sink key, and without all sinks.
SHAPE = ("skew", "kurtosis", "distance")
ALWAYS = ("S", "n_eff", "entropy", "sink_mass")  # quantities that every measurement has
# In roundings of a logit: rows that vary by less would show the shape of their rounding errors. A
# larger number refuses rows that have a shape, a smaller one gives noise as skewness.
MIN_SPREAD = 64
# Φ in steps of 1/4096 from −8 to 8, beyond which it is 0 or 1 to 1e-15. The nearest entry is off by
# φ(0)/8192 = 4.9e-5 at most.
_PHI = special.ndtr(np.linspace(-8, 8, 2**16 + 1)).astype(np.float32)


def requested_names(of: str | Sequence[str]) -> tuple[str, ...]:
    """Return what was asked for beside what is always measured, each once.

    Raises:
        InputError: neither a quantity nor one of `SHAPE`; which key is the needle and what a router
            left out.
    """
    fix = "give names of quantities"
    listed = (of,) if isinstance(of, (str, Quantity)) else check_several("of", of, fix)
    try:
        names = [
            x if isinstance(x, str) and x in SHAPE else quantities.named(x).name for x in listed
        ]
    except InputError as error:
        fix = f"{error.fix} Of logits also {', '.join(SHAPE)}"
        raise InputError("of", error.value, fix) from None
    for name in names:
        quantity = None if name in SHAPE else quantities.named(name)
        if quantity is not None and quantity.pair is not None:
            name = f"sparsity.metric.{quantity.name.partition(':')[0]}"
            raise InputError("of", quantity.name, f"is of two rows; give {name} their weights")
        if quantity is not None and (quantity.needs == "needle" or quantity is quantities.recall):
            raise InputError("of", name, "is not told by a measured row; ask for it of a Row")
    return tuple(name for name in dict.fromkeys(names) if name not in ALWAYS)


def measure_requested(
    layer: Layer, sink: Any, of: Sequence[str], heads: slice, start: int, stop: int
) -> dict[str, np.ndarray]:
    """Return what was asked for of some rows, by name [heads, rows].

    Quantities are computed in double precision.
    """
    part: Any = layer.part(heads)
    x, seen = part.block(start, stop, layer.key_width(stop, sink))
    sink = sink if isinstance(sink, int) else part.first[:, start:stop]
    arrays: dict[str, np.ndarray] = {}
    if any(name in SHAPE for name in of):
        shape = measure_shape(set_sink_apart(x, seen, sink), of)
        arrays |= {name: np.asarray(values) for name, values in shape.items()}
    wanted = [quantities.named(name) for name in of if name not in SHAPE]
    if wanted:
        seen = np.asarray(seen)
        weights, learned = part.to_weights(x, seen)
        scaled = isinstance(part, LogitLayer)
        arrays |= _measure_quantities(weights, learned, seen, sink, wanted, scaled)
    return arrays


def _measure_quantities(
    weights: np.ndarray,
    learned: np.ndarray,
    seen: np.ndarray,
    sink: Any,
    wanted: Sequence[Quantity],
    scaled: bool,
) -> dict[str, np.ndarray]:
    """Return quantities of rows of weights, each by its own definition on the keys that a row sees.

    Args:
        weights: |a|, double precision, [heads, rows, keys].
        learned: the weights of learned sinks beside the keys, [heads, rows].
        seen: which keys a row sees, [1 or heads, rows, keys].
        sink: position of the sink key; else it is the first key in sight.
        wanted: the quantities.
        scaled: whether only the ratios of the weights of a row mean something.

    Returns:
        By name, [heads, rows]; NaN for rows that are all zero.
    """
    # Definitions of quantities take rows of the keys in sight, and no mask. Rows that see the same
    # keys go together: a whole block where nothing is causal or masked, else mostly one by one.
    arrays = {quantity.name: np.full(weights.shape[:2], np.nan) for quantity in wanted}
    for heads, rows, keys in _rows_of_same_keys(seen):
        kept = weights[heads, rows][..., keys]
        most = kept.max(-1, initial=0.0)
        known = most > 0
        if not known.any():
            continue
        most = np.where(known, most, 1.0)
        kept = np.where(known[..., None], kept / most[..., None], 1.0)
        of_sink = kept[..., keys == (sink if isinstance(sink, int) else keys[0])].sum(-1)
        beside = learned[heads, rows] / most
        sums = kept.sum(-1), (kept * kept).sum(-1), of_sink + beside, beside
        # The row was divided by its largest weight. Some quantities take weights as shares of 1,
        # which is 1/most in that unit; softmax weights are made relative, and are shares of none.
        row = RowSums(float(len(keys)), *sums, kept, None if scaled else 1 / most)
        with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
            for quantity in wanted:
                arrays[quantity.name][heads, rows] = np.where(known, quantity.of(row), np.nan)
    return arrays


def _rows_of_same_keys(seen: np.ndarray) -> Iterator[tuple[slice, slice, np.ndarray]]:
    """Yield heads, rows, and the keys that all of these see, of [1 or heads, rows, keys]."""
    for head, of_head in enumerate(seen):
        heads = slice(None) if len(seen) == 1 else slice(head, head + 1)
        cuts = np.flatnonzero((of_head[1:] != of_head[:-1]).any(-1)) + 1
        for a, b in zip([0, *cuts], [*cuts, len(of_head)], strict=True):
            yield heads, slice(a, b), np.flatnonzero(of_head[a])


def measure_shape(logits: SinkApart, of: Sequence[str] = SHAPE) -> dict[str, Any]:
    """Return the shape of rows of logits, with the sink key and without it.

    Skewness, excess kurtosis, and the Kolmogorov–Smirnov distance sup|F − Φ((s − β̂)/γ̂)| of their
    distribution F from the Gaussian, with mean β̂ and standard deviation γ̂ of n − 1 degrees of
    freedom.

    Args:
        logits: the rows.
        of: which of `SHAPE` are returned.

    Returns:
        These by name [..., rows], NaN for rows too short to have it, and for shapes of rows that
        are constant up to rounding, γ̂ ≤ `MIN_SPREAD`·ε·(1 + |β̂|).
    """
    xp = logits.others.__array_namespace__()
    seen = xp.broadcast_to(logits.sink_visible, logits.sink.shape)
    visible, dtype = logits.visible, logits.others.dtype
    n_others = xp.sum(visible, axis=-1).astype(dtype)
    n_others = xp.broadcast_to(n_others, logits.sink.shape)
    n = n_others + seen
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean = xp.where(visible, logits.others, 0.0).sum(-1) / xp.maximum(n_others, 1.0)
        away = xp.where(visible, logits.others - mean[..., None], 0.0)
        square = away * away
        m2, m3, m4 = square.sum(-1), (square * away).sum(-1), (square * square).sum(-1)
        # The sink key joins. With d = δ/n, centred sums of the others become those of all by the
        # binomial theorem, Σ(x − d)^k over the others plus (δ − d)^k.
        delta = logits.sink - mean
        d, m2_all, gamma_left, gamma = spread_with_sink(mean, m2, n_others, delta, seen)
        m3_all = m3 - 3 * d * m2 + d**3 * n_others * n * (n - 2)
        m4_all = m4 - 4 * d * m3 + 6 * d * d * m2 + d**4 * n_others * n * (n * n - 3 * n + 3)
        # Sorted, the keys in sight come last, and hidden ones, at −10³⁰, before them. There F is 0
        # and so is Φ, so that hidden keys never have the largest distance.
        rising = xp.sort(xp.where(visible, away, -1e30), axis=-1)
        width = rising.shape[-1]
        middle = xp.arange(width, dtype=dtype) + (n_others - width + 0.5)[..., None]
        middle = xp.clip(middle, 0.0, None)  # of the step of F at each key, in keys
        distance_left = _distance_from_gaussian(xp, rising, middle, gamma_left, n_others)
        # With the sink key, F steps higher at every key above it; and at the sink key itself, whose
        # place among the sorted ones is counted, not sorted for anew.
        above = rising >= xp.where(seen, delta, xp.inf)[..., None]
        distance = _distance_from_gaussian(xp, rising - d[..., None], middle + above, gamma, n)
        middle = (n_others - above.sum(-1) + 0.5)[..., None]
        at_sink = _distance_from_gaussian(xp, (delta - d)[..., None], middle, gamma, n)
        whole = {
            "skew": m3_all / n / (m2_all / n) ** 1.5,
            "kurtosis": m4_all / n / (m2_all / n) ** 2 - 3,
            "distance": xp.where(seen, xp.maximum(distance, at_sink), distance),
        }
        others = {
            "skew": m3 / n_others / (m2 / n_others) ** 1.5,
            "kurtosis": m4 / n_others / (m2 / n_others) ** 2 - 3,
            "distance": distance_left,
        }
    still = MIN_SPREAD * float(np.finfo(dtype).eps) * (1 + xp.abs(mean))
    parts = ("", gamma, whole), ("_without_sink_key", gamma_left, others)
    return {
        f"{name}{tag}": xp.where((spread > still) & (n > 1), values[name], xp.nan)
        for tag, spread, values in parts
        for name in SHAPE
        if name in of
    }


def _distance_from_gaussian(xp: Any, x: Any, middle: Any, gamma: Any, n: Any) -> Any:
    """Return sup|F − Φ(x/γ)|, to 5e-5: Φ comes from a table, in a tenth of the time.

    Args:
        xp: namespace of the arrays.
        x: where F has a step of 1/n, [..., rows, steps].
        middle: n·F in the middle of the step.
        gamma: γ, [..., rows].
        n: the keys, [..., rows].
    """
    # At a step F jumps by 1/n, so the larger distance of both sides is |Φ − middle| + 1/(2n).
    scale = xp.where(gamma > 0, xp.minimum(4096 / gamma, 1e30), 0.0)[..., None]
    at = xp.clip(x * scale, -(2.0**15), 2.0**15) + (2**15 + 0.5)
    gap = xp.abs(xp.asarray(_PHI)[at.astype(np.int32)] - middle / n[..., None])
    return xp.where(gamma > 0, gap.max(-1, initial=0.0) + 0.5 / n, xp.nan)
