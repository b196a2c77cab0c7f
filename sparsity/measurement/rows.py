"""What one row of attention says: how focused it is, and how Gaussian its logits are.

Rows lie along the last axis. One key, the sink, is set apart: sums run over the rest, and the sink
is added to them, so that nothing cancels where it takes almost all of the mass.
NumPy or JAX arrays, whichever comes in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from sparsity import metric

STILL = 64  # times the rounding of a logit: what varies less has no shape


class Parts(NamedTuple):
    """Rows with the sink set apart.

    Args:
        rest: the other keys, [..., rows, keys − 1].
        sink: the sink, [..., rows].
        visible: which of the others a row sees, broadcasts with `rest`.
        seen: whether a row sees the sink, broadcasts with `sink`.
    """

    rest: Any
    sink: Any
    visible: Any
    seen: Any


def split(x: Any, visible: Any, sink: int) -> Parts:
    """Set the key at position `sink` of every row apart.

    Args:
        x: weights or logits [..., rows, keys].
        visible: bool, broadcasts with `x`.
        sink: the position, less than the number of keys.
    """
    xp = x.__array_namespace__()

    def others(y: Any) -> Any:
        if sink == 0:
            return y[..., 1:]
        return xp.concat([y[..., :sink], y[..., sink + 1 :]], axis=-1)

    return Parts(others(x), x[..., sink], others(visible), visible[..., sink])


def softmax(logits: Parts) -> Parts:
    """Softmax's weights e^s, over the largest of the rest, as far as the dtype reaches."""
    xp = logits.rest.__array_namespace__()
    seen = xp.where(logits.visible, logits.rest, -xp.inf)
    sink = xp.where(logits.seen, logits.sink, -xp.inf)
    top = seen.max(-1, initial=-np.inf)
    top = xp.where(xp.isfinite(top), top, xp.where(xp.isfinite(sink), sink, 0.0))  # only the sink
    most = float(np.log(np.finfo(seen.dtype).max)) - 1
    with np.errstate(under="ignore"):
        over = xp.minimum(sink - top, most)  # beyond that it takes all there is
        return logits._replace(rest=xp.exp(seen - top[..., None]), sink=xp.exp(over))


def _falling(a: Any, count: int) -> Any:
    """The `count` largest entries of each row, in falling order."""
    if isinstance(a, np.ndarray):
        cut = a.shape[-1] - count
        return np.sort(np.partition(a, cut, axis=-1)[..., cut:], axis=-1)[..., ::-1]
    import jax

    return jax.lax.top_k(a, count)[0]


def _xlogx(xp: Any, p: Any) -> Any:
    return p * xp.log(xp.where(p > 0, p, 1.0))


def focus(weights: Parts, top: Sequence[int]) -> tuple[dict[str, Any], Any, Any]:
    """How focused rows of weights are, by p = |a|/Σ|a| over the n keys in sight.

    n_eff = 1/Σp², S = √(n_eff/n), entropy −Σ p ln p, Hoyer's (√n − √n·S)/(√n − 1), the largest p,
    the sum of the k largest, p of the sink, and n_eff and S of the row without the sink.

    Args:
        weights: unnormalised, of any sign.
        top: the numbers k ≥ 1.

    Returns:
        These by name [..., rows], top_mass [..., rows, k], NaN for rows that are all zero or too
        short; p of the others [..., rows, keys − 1]; n.
    """
    xp = weights.rest.__array_namespace__()
    rest = xp.where(weights.visible, xp.abs(weights.rest), 0.0)
    sink = xp.where(weights.seen, xp.abs(weights.sink), 0.0)
    n_rest = xp.sum(weights.visible, axis=-1).astype(rest.dtype)
    n = n_rest + weights.seen
    count = min(max(top), rest.shape[-1])
    # What has no value is computed from ones and set to NaN at the end: a derivative stays finite.
    with np.errstate(over="ignore", under="ignore"):
        unit = rest.max(-1, initial=0.0)
        unit = xp.where(unit > 0, unit, xp.where((sink > 0) & xp.isfinite(sink), sink, 1.0))
        rest, sink = rest / unit[..., None], sink / unit
        total = rest.sum(-1)
        others, known = total > 0, (total > 0) | (sink > 0)
        more = sink > total  # of the two masses the smaller one over the larger one
        ratio = xp.where(more, total, sink) / xp.where(known, xp.where(more, sink, total), 1.0)
        larger, smaller = 1 / (1 + ratio), ratio / (1 + ratio)
        mass, share = xp.where(more, larger, smaller), xp.where(more, smaller, larger)
        sum_rest = xp.where(others, total, 1.0)
        each = share / sum_rest  # p over weight
        square = (rest * rest).sum(-1)
        n_eff_rest = xp.where(
            others, metric.effective(sum_rest, xp.where(others, square, 1.0)), 1.0
        )
        entropy = xp.log(sum_rest) - _xlogx(xp, rest).sum(-1) / sum_rest
        p = rest * each[..., None]
        together = mass**2 + (p * p).sum(-1)
        n_eff = xp.clip(1 / xp.where(known, together, 1.0), 1.0, xp.maximum(n, 1.0))
        S, root = xp.sqrt(n_eff / xp.maximum(n, 1.0)), xp.sqrt(n)
        sums = xp.cumulative_sum(_falling(rest, count), axis=-1, include_initial=True)
        sums = sums * each[..., None]
        alone = sums[..., [min(k, count) for k in top]]
        beside = sums[..., [min(k - 1, count) for k in top]] + mass[..., None]
        found = {
            "S": S,
            "n_eff": n_eff,
            "entropy": share * entropy - _xlogx(xp, mass) - _xlogx(xp, share),
            "hoyer": root * (1 - S) / xp.where(n > 1, root - 1, 1.0),
            "largest": xp.maximum(mass, rest.max(-1, initial=0.0) * each),
            "sink_mass": mass,
            "n_eff_rest": n_eff_rest,
            "S_rest": xp.sqrt(n_eff_rest / xp.maximum(n_rest, 1.0)),
            "top_mass": xp.minimum(xp.maximum(alone, beside), 1.0),
        }
    has = {"hoyer": known & (n > 1), "n_eff_rest": others, "S_rest": others}
    has["top_mass"] = known[..., None]
    return {k: xp.where(has.get(k, known), x, xp.nan) for k, x in found.items()}, p, n


_PHI = special.ndtr(np.linspace(-8, 8, 2**16 + 1)).astype(np.float32)  # steps of 1/4096


def _distance(xp: Any, x: Any, middle: Any, gamma: Any, n: Any) -> Any:
    """sup|F − Φ(x/γ)|, to 5e-5: Φ comes from a table, in a tenth of the time.

    Args:
        xp: namespace of the arrays.
        x: where F has a step of 1/n, [..., rows, steps].
        middle: n·F in the middle of the step.
        gamma: γ, [..., rows].
        n: the keys, [..., rows].
    """
    scale = xp.where(gamma > 0, xp.minimum(4096 / gamma, 1e30), 0.0)[..., None]
    at = xp.clip(x * scale, -(2.0**15), 2.0**15) + (2**15 + 0.5)
    gap = xp.abs(xp.asarray(_PHI)[at.astype(np.int32)] - middle / n[..., None])
    return xp.where(gamma > 0, gap.max(-1, initial=0.0) + 0.5 / n, xp.nan)


def shape(logits: Parts) -> dict[str, Any]:
    """The shape of rows of logits, with the sink and without it.

    Mean β̂, standard deviation γ̂ (of n − 1 degrees of freedom), skewness, excess kurtosis, and the
    Kolmogorov–Smirnov distance sup|F − Φ((s − β̂)/γ̂)| of their distribution F from the Gaussian;
    sink_logit is the sink's less the mean of the others, top_logit_rest that of the largest other.

    Returns:
        These by name [..., rows], "_rest" without the sink; NaN for rows too short to have it, and
        for shapes of rows that are constant up to rounding, γ̂ ≤ `STILL`·ε·(1 + |β̂|).
    """
    xp = logits.rest.__array_namespace__()
    seen = xp.broadcast_to(logits.seen, logits.sink.shape)
    visible, dtype = logits.visible, logits.rest.dtype
    n_rest = xp.sum(visible, axis=-1).astype(dtype)
    n_rest = xp.broadcast_to(n_rest, logits.sink.shape)
    n = n_rest + seen
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        mean = xp.where(visible, logits.rest, 0.0).sum(-1) / xp.maximum(n_rest, 1.0)
        away = xp.where(visible, logits.rest - mean[..., None], 0.0)
        square = away * away
        m2, m3, m4 = square.sum(-1), (square * away).sum(-1), (square * square).sum(-1)
        # The sink joins: the centred sums of n − 1 numbers and one at distance δ from their mean.
        delta = logits.sink - mean
        d = xp.where(seen, delta, 0.0) / xp.maximum(n, 1.0)
        w = n_rest
        m2_all = m2 + d * d * w * n
        m3_all = m3 - 3 * d * m2 + d**3 * w * n * (n - 2)
        m4_all = m4 - 4 * d * m3 + 6 * d * d * m2 + d**4 * w * n * (n * n - 3 * n + 3)
        gamma_rest, gamma = xp.sqrt(m2 / (n_rest - 1)), xp.sqrt(m2_all / (n - 1))
        # Sorted, the keys in sight come last; the others must not have the largest distance.
        rising = xp.sort(xp.where(visible, away, -1e30), axis=-1)
        width = rising.shape[-1]
        middle = xp.arange(width, dtype=dtype) + (n_rest - width + 0.5)[..., None]
        middle = xp.clip(middle, 0.0, None)  # of the step of F at each key, in keys
        distance_rest = _distance(xp, rising, middle, gamma_rest, n_rest)
        above = rising >= xp.where(seen, delta, xp.inf)[..., None]
        distance = _distance(xp, rising - d[..., None], middle + above, gamma, n)
        middle = (n_rest - above.sum(-1) + 0.5)[..., None]
        at_sink = _distance(xp, (delta - d)[..., None], middle, gamma, n)
        found = {
            "beta": mean + d,
            "gamma": gamma,
            "skew": m3_all / n / (m2_all / n) ** 1.5,
            "kurtosis": m4_all / n / (m2_all / n) ** 2 - 3,
            "distance": xp.where(seen, xp.maximum(distance, at_sink), distance),
            "sink_logit": xp.where(seen, delta, xp.nan),  # less the mean of the others
            "gamma_rest": gamma_rest,
            "top_logit_rest": xp.where(n_rest > 0, rising.max(-1, initial=-np.inf), xp.nan),
            "skew_rest": m3 / n_rest / (m2 / n_rest) ** 1.5,
            "kurtosis_rest": m4 / n_rest / (m2 / n_rest) ** 2 - 3,
            "distance_rest": distance_rest,
        }
    still = STILL * float(np.finfo(dtype).eps) * (1 + xp.abs(mean))
    for name in ("skew", "kurtosis", "distance"):
        for tag in ("", "_rest"):
            varies = found[f"gamma{tag}"] > still
            found[name + tag] = xp.where(varies, found[name + tag], xp.nan)
    return {name: xp.where(n > (name != "beta"), x, xp.nan) for name, x in found.items()}
