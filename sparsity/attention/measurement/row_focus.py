"""What one row of attention says: how focused it is, and how widely its logits spread.

Rows lie along the last axis. One key, the sink key, is set apart: sums run over the others, and the
sink key is added to them, so that nothing cancels where it takes almost all of the weight. The
names of what is found without it end in "_without_sink_key". `measure_weights` takes NumPy or JAX
arrays, whichever comes in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from sparsity import metric
from sparsity.attention.streaming.sums import Sums


class SinkApart(NamedTuple):
    """Rows of weights or logits with the sink key set apart.

    Args:
        others: those of the other keys, [..., rows, keys − 1]; or of all, of which the sink key is
            not visible.
        sink: that of the sink key, [..., rows].
        visible: which of the others a row sees, broadcasts with `others`.
        sink_visible: whether a row sees the sink key, broadcasts with `sink`.
    """

    others: Any
    sink: Any
    visible: Any
    sink_visible: Any


class SinkShares(NamedTuple):
    """Rows by the share of their weight that the sink key takes.

    Args:
        n_others: keys in sight but the sink key, as floating numbers.
        n: all keys in sight.
        sink: the share of the sink key, 0 where it is not seen.
        others: that of the others, 1 − sink to all its digits.
        known: whether there is any weight.
        others_known: whether there is any but the sink key's.
    """

    n_others: Any
    n: Any
    sink: Any
    others: Any
    known: Any
    others_known: Any


def set_sink_apart(x: Any, visible: Any, sink: Any) -> SinkApart:
    """Set the key at position `sink` of every row apart.

    Args:
        x: weights or logits [..., rows, keys].
        visible: bool, broadcasts with `x`.
        sink: the position, less than the number of keys; or one for each row, [1 or heads, rows].
    """
    xp = x.__array_namespace__()
    if not isinstance(sink, int):  # of each row: nothing can be cut out, so the key is hidden
        index = xp.broadcast_to(xp.asarray(sink), x.shape[:-1])[..., None]
        visible = xp.broadcast_to(visible, x.shape)
        of_sink, seen = (xp.take_along_axis(y, index, axis=-1)[..., 0] for y in (x, visible))
        return SinkApart(x, of_sink, visible & (xp.arange(x.shape[-1]) != index), seen)

    def without(y: Any) -> Any:
        if sink == 0:  # no copy
            return y[..., 1:]
        return xp.concat([y[..., :sink], y[..., sink + 1 :]], axis=-1)

    return SinkApart(without(x), x[..., sink], without(visible), visible[..., sink])


def _xlogx(xp: Any, p: Any) -> Any:
    """Return p ln p, with its limit 0 at p = 0."""
    return p * xp.log(xp.where(p > 0, p, 1.0))


def measure_weights(weights: SinkApart) -> tuple[dict[str, Any], Any, Any]:
    """Return how focused rows of weights are, by p = |a|/Σ|a| over the n keys in sight.

    n_eff = 1/Σp², S = √(n_eff/n), entropy −Σ p ln p, the largest p, p of the sink key, and n_eff
    and S of the row without the sink key.

    Args:
        weights: unnormalised, of any sign.

    Returns:
        These by name [..., rows], NaN for rows that are all zero or too short; p of the others
        [..., rows, keys − 1]; n.
    """
    xp = weights.others.__array_namespace__()
    others = xp.where(weights.visible, xp.abs(weights.others), 0.0)
    sink = xp.where(weights.sink_visible, xp.abs(weights.sink), 0.0)
    n_others = xp.sum(weights.visible, axis=-1).astype(others.dtype)
    # What has no value is computed from ones and set to NaN at the end: a derivative stays finite.
    with np.errstate(over="ignore", under="ignore"):
        # Weights are taken relative to the largest of the others, not of all: divided by a sink's,
        # squares of the others would underflow.
        unit = others.max(-1, initial=0.0)
        unit = xp.where(unit > 0, unit, xp.where((sink > 0) & xp.isfinite(sink), sink, 1.0))
        others, sink = others / unit[..., None], sink / unit
        total = others.sum(-1)
        others_known, known = total > 0, (total > 0) | (sink > 0)
        # The shares of the sink key and of the others from the ratio of the smaller mass to the
        # larger one: the sum of both may overflow, and 1 − share would lose the digits of the rest.
        more = sink > total
        ratio = xp.where(more, total, sink) / xp.where(known, xp.where(more, sink, total), 1.0)
        larger, smaller = 1 / (1 + ratio), ratio / (1 + ratio)
        mass, share = xp.where(more, larger, smaller), xp.where(more, smaller, larger)
        safe_total = xp.where(others_known, total, 1.0)
        p_per_weight = share / safe_total
        p = others * p_per_weight[..., None]
        squares = xp.where(others_known, (others * others).sum(-1), 1.0)
        n = n_others + weights.sink_visible
        statistics = _add_sink(
            SinkShares(n_others, n, mass, share, known, others_known),
            square=(p * p).sum(-1),
            n_eff=metric.effective(safe_total, squares),
            entropy=xp.log(safe_total) - _xlogx(xp, others).sum(-1) / safe_total,
            largest=others.max(-1, initial=0.0) * p_per_weight,
        )
    return statistics, p, n


def _add_sink(
    shares: SinkShares, square: Any, n_eff: Any, entropy: Any, largest: Any
) -> dict[str, Any]:
    """Return the statistics of rows from those of the others, with the sink key added.

    Args:
        shares: how the weight divides.
        square: Σp² over the others.
        n_eff: of the others alone.
        entropy: likewise.
        largest: the largest p of the others.
    """
    xp = square.__array_namespace__()
    n_others, n, mass, share, known, others_known = shares
    # n_eff = 1/Σp² by definition, and in [1, n] but for rounding.
    whole = 1 / xp.where(known, mass**2 + square, 1.0)
    whole = xp.clip(whole, 1.0, xp.maximum(n, 1.0))
    of_row = {
        "S": xp.sqrt(whole / xp.maximum(n, 1.0)),
        "n_eff": whole,
        # H = share·H(others) + H(mass, share): the entropy of a choice made in two steps.
        "entropy": share * entropy - _xlogx(xp, mass) - _xlogx(xp, share),
        "largest": xp.maximum(mass, largest),
        "sink_mass": mass,
    }
    of_others = {
        "n_eff_without_sink_key": n_eff,
        "S_without_sink_key": xp.sqrt(n_eff / xp.maximum(n_others, 1.0)),
    }
    return {
        name: xp.where(has, x, xp.nan)
        for has, statistics in ((known, of_row), (others_known, of_others))
        for name, x in statistics.items()
    }


def sum_logits(logits: np.ndarray, visible: np.ndarray) -> Sums:
    """Return the sums of rows of logits over the keys that are visible, in double precision."""
    count = np.broadcast_to(visible.sum(-1), logits.shape[:-1])
    top = np.where(visible, logits, -np.inf).max(-1, initial=-np.inf)
    low = np.where(count > 0, top, 0.0)
    with np.errstate(under="ignore", over="ignore"):
        away = np.where(visible, logits - low[..., None], 0.0)
        e = np.where(visible, np.exp(away), 0.0)
        mean = away.sum(-1) / np.maximum(count, 1)
        centred = np.where(visible, away - mean[..., None], 0.0)
        sums = (e, e * e, away * e, centred * centred)
        z, y, w, m2 = (x.sum(-1, dtype=np.float64) for x in sums)
    return Sums(count, np.float64(top), z, y, w, np.float64(low) + mean, m2)


def measure_logit_sums(
    others: Sums, sink: np.ndarray, learned: Any = None
) -> dict[str, np.ndarray]:
    """Return what `measure_weights` says of softmax rows, and of their logits, from their sums.

    β̂ is the mean and γ̂ the standard deviation (of n − 1 degrees of freedom) of the logits;
    sink_logit is that of the sink key less the mean of the others, top_logit_without_sink_key the
    largest of the others less their mean.

    Args:
        others: sums over the keys other than the sink key, double precision.
        sink: its logit, −∞ where it is not seen.
        learned: the logit of a learned sink beside the keys; None for none.

    Returns:
        By name, in the shape of the sums; NaN for rows too short.
    """
    n_others, seen = others.count, np.isfinite(sink)
    n, some = n_others + seen, n_others > 0
    z = np.maximum(others.z, 1.0)  # of which the largest has 1, if there is any
    with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
        # As in `logit_blocks._sum_block`: the share of the sink key is σ(s_sink − ln Σ_others e^s).
        odds = np.where(some, sink - others.top - np.log(z), np.where(seen, np.inf, -np.inf))
        of_sink, of_others = special.expit(odds), special.expit(-odds)
        shares = SinkShares(n_others, n, of_sink, of_others, n > 0, some)
        p_top = of_others / z
        statistics = _add_sink(
            shares,
            square=p_top * p_top * others.y,
            n_eff=np.clip(metric.effective(z, others.y), 1.0, n_others),
            entropy=np.log(z) - others.w / z,
            largest=p_top,
        )
        if learned is not None:
            # p = e^s/(Σe^s + e^b) = left·softmax add up to less than 1. The entropy is −Σ p ln p
            # over the keys, as the quantity of that name has it: left·(H(softmax) − ln left).
            # n_eff and S are free of scale and stay.
            log_z = np.logaddexp(others.top + np.log(z), sink)
            over = learned - log_z
            share, left = special.expit(over), special.expit(-over)
            statistics["largest"] = left * statistics["largest"]
            statistics["sink_mass"] = left * statistics["sink_mass"] + share
            no_keys = np.isnan(statistics["entropy"])
            statistics["learned_sink_mass"] = np.where(no_keys, np.nan, share)
            statistics["entropy"] = left * (statistics["entropy"] - special.log_expit(-over))
        delta = sink - others.mean
        # One more number at distance δ moves the mean by δ/n and adds δ²(n − 1)/n to the squares
        # (Welford's update), here as (δ/n)²(n − 1)n.
        moved = np.where(seen, delta, 0.0) / n
        whole = others.m2 + moved * moved * n_others * n
        statistics |= {
            "beta": np.where(n > 0, others.mean + moved, np.nan),
            "gamma": np.where(n > 1, np.sqrt(whole / (n - 1)), np.nan),
            "sink_logit": np.where(seen & (n > 1), delta, np.nan),
            "gamma_without_sink_key": np.where(n > 1, np.sqrt(others.m2 / (n_others - 1)), np.nan),
            "top_logit_without_sink_key": np.where(some, others.top - others.mean, np.nan),
        }
    return statistics
