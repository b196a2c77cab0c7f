"""What one row of attention says: how focused it is, and how widely its logits spread.

Rows lie along the last axis. One key, the sink, is set apart: sums run over the rest, and the sink
is added to them, so that nothing cancels where it takes almost all of the mass.
NumPy or JAX arrays, whichever comes in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import special

from sparsity import metric
from sparsity.attention.streaming.sums import Sums


class Parts(NamedTuple):
    """Rows with the sink set apart.

    Args:
        rest: the other keys, [..., rows, keys − 1]; or all, of which that one is not visible.
        sink: the sink, [..., rows].
        visible: which of the others a row sees, broadcasts with `rest`.
        seen: whether a row sees the sink, broadcasts with `sink`.
    """

    rest: Any
    sink: Any
    visible: Any
    seen: Any


def split(x: Any, visible: Any, sink: Any) -> Parts:
    """Set the key at position `sink` of every row apart.

    Args:
        x: weights or logits [..., rows, keys].
        visible: bool, broadcasts with `x`.
        sink: the position, less than the number of keys; or one for each row, [1 or heads, rows].
    """
    xp = x.__array_namespace__()
    if not isinstance(sink, int):
        own = xp.broadcast_to(xp.asarray(sink), x.shape[:-1])[..., None]
        visible = xp.broadcast_to(visible, x.shape)
        apart, seen = (xp.take_along_axis(y, own, axis=-1)[..., 0] for y in (x, visible))
        return Parts(x, apart, visible & (xp.arange(x.shape[-1]) != own), seen)

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


def _xlogx(xp: Any, p: Any) -> Any:
    return p * xp.log(xp.where(p > 0, p, 1.0))


def focus(weights: Parts) -> tuple[dict[str, Any], Any, Any]:
    """How focused rows of weights are, by p = |a|/Σ|a| over the n keys in sight.

    n_eff = 1/Σp², S = √(n_eff/n), entropy −Σ p ln p, the largest p, p of the sink, and n_eff and S
    of the row without the sink.

    Args:
        weights: unnormalised, of any sign.

    Returns:
        These by name [..., rows], NaN for rows that are all zero or too short; p of the others
        [..., rows, keys − 1]; n.
    """
    xp = weights.rest.__array_namespace__()
    rest = xp.where(weights.visible, xp.abs(weights.rest), 0.0)
    sink = xp.where(weights.seen, xp.abs(weights.sink), 0.0)
    n_rest = xp.sum(weights.visible, axis=-1).astype(rest.dtype)
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
        p = rest * each[..., None]
        found = _joined(
            Row(n_rest, n_rest + weights.seen, mass, share, known, others),
            square=(p * p).sum(-1),
            n_eff=metric.effective(sum_rest, xp.where(others, (rest * rest).sum(-1), 1.0)),
            entropy=xp.log(sum_rest) - _xlogx(xp, rest).sum(-1) / sum_rest,
            largest=rest.max(-1, initial=0.0) * each,
        )
    return found, p, n_rest + weights.seen


class Row(NamedTuple):
    """Rows by the share of their mass that the sink takes.

    Args:
        n_rest: keys in sight but the sink, as floating numbers.
        n: all keys in sight.
        mass: the share of the sink, 0 where it is not seen.
        share: that of the others, 1 − mass to all its digits.
        known: whether there is any mass.
        others: whether there is any but the sink's.
    """

    n_rest: Any
    n: Any
    mass: Any
    share: Any
    known: Any
    others: Any


def _joined(row: Row, square: Any, n_eff: Any, entropy: Any, largest: Any) -> dict[str, Any]:
    """What rows come to: sums over the others, with the sink added.

    Args:
        row: the rows.
        square: Σp² over the others.
        n_eff: of the others alone.
        entropy: likewise.
        largest: the largest p of the others.
    """
    xp = square.__array_namespace__()
    n_rest, n, mass, share, known, others = row
    together = mass**2 + square
    whole = xp.clip(1 / xp.where(known, together, 1.0), 1.0, xp.maximum(n, 1.0))
    n_eff = xp.where(others, n_eff, 1.0)
    found = {
        "S": xp.sqrt(whole / xp.maximum(n, 1.0)),
        "n_eff": whole,
        "entropy": share * entropy - _xlogx(xp, mass) - _xlogx(xp, share),
        "largest": xp.maximum(mass, largest),
        "sink_mass": mass,
        "n_eff_rest": n_eff,
        "S_rest": xp.sqrt(n_eff / xp.maximum(n_rest, 1.0)),
    }
    has = {"n_eff_rest": others, "S_rest": others}
    return {k: xp.where(has.get(k, known), x, xp.nan) for k, x in found.items()}


def of_sums(rest: Sums, sink: np.ndarray, unit: Any = None) -> dict[str, np.ndarray]:
    """What `focus` says of softmax rows, and the mean and spread of their logits, from their sums.

    β̂ is the mean and γ̂ the standard deviation (of n − 1 degrees of freedom) of the logits;
    sink_logit is that of the sink less the mean of the others, top_logit_rest the largest of the
    others less their mean.

    Args:
        rest: sums over the keys other than the sink, double precision.
        sink: its logit, −∞ where it is not seen.
        unit: the logit of a learned sink beside the keys; None for none.

    Returns:
        By name, in the shape of the sums, "_rest" without the sink; NaN for rows too short.
    """
    n_rest, seen = rest.count, np.isfinite(sink)
    n, others = n_rest + seen, n_rest > 0
    z, y = np.where(others, rest.z, 1.0), np.where(others, rest.y, 1.0)
    with np.errstate(under="ignore", invalid="ignore", divide="ignore"):
        odds = np.where(others, sink - rest.top - np.log(z), np.where(seen, np.inf, -np.inf))
        row = Row(n_rest, n, special.expit(odds), special.expit(-odds), n > 0, others)
        each = np.where(others, row.share / z, 0.0)
        found = _joined(
            row,
            square=each * each * y,
            n_eff=np.clip(metric.effective(z, y), 1.0, np.maximum(n_rest, 1.0)),
            entropy=np.where(others, np.log(z) - rest.w / z, 0.0),
            largest=each,
        )
        if unit is not None:
            log_z = np.logaddexp(np.where(others, rest.top + np.log(z), -np.inf), sink)
            found |= beside_learned(found, unit - log_z)
        delta = sink - rest.mean
        d, _, gamma_rest, gamma = spread(rest.mean, rest.m2, n_rest, delta, seen)
        of_logits = {
            "beta": rest.mean + d,
            "gamma": gamma,
            "sink_logit": np.where(seen, delta, np.nan),
            "gamma_rest": gamma_rest,
            "top_logit_rest": np.where(others, rest.top - rest.mean, np.nan),
        }
    least = {"beta": 0, "top_logit_rest": 0}
    return found | {k: np.where(n > least.get(k, 1), x, np.nan) for k, x in of_logits.items()}


def beside_learned(found: dict[str, np.ndarray], over: np.ndarray) -> dict[str, np.ndarray]:
    """What shares are beside a learned sink, so that p = e^s/(Σe^s + e^b) add up to less than 1.

    The entropy is −Σ p ln p over the keys, as the quantity of that name has it.

    Args:
        found: entropy, largest and sink_mass of shares that add up to 1.
        over: b − ln Σe^s.
    """
    own, kept = special.expit(over), special.expit(-over)
    shares = {"largest": kept * found["largest"], "sink_mass": kept * found["sink_mass"] + own}
    entropy = kept * (found["entropy"] - special.log_expit(-over))
    learned = np.where(np.isnan(found["entropy"]), np.nan, own)
    return shares | {"entropy": entropy, "learned_sink": learned}


def spread(mean: Any, m2: Any, n_rest: Any, delta: Any, seen: Any) -> tuple[Any, Any, Any, Any]:
    """The sink joins n − 1 logits: one at distance δ from their mean.

    Returns:
        By how much it moves the mean; Σ(s − β̂)² of all; γ̂ without the sink, and of all.
    """
    xp = mean.__array_namespace__()
    n = n_rest + seen
    d = xp.where(seen, delta, 0.0) / xp.maximum(n, 1.0)
    whole = m2 + d * d * n_rest * n
    return d, whole, xp.sqrt(m2 / (n_rest - 1)), xp.sqrt(whole / (n - 1))
