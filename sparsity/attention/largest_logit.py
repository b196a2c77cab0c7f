"""The largest logit that Gaussian scores have, and what a clip of the logits does to the focus.

Of independent scores s_i ~ N(β_i, γ_i²), n_i of each, P(max ≤ x) = Π Φ((x − β_i)/γ_i)^(n_i), and

    E max = lo + ∫_lo (1 − P(max ≤ x)) dx − ∫^lo P(max ≤ x) dx,

with lo so low that the last integral is nothing. For N scores of one law it is about
β + γ√(2 ln N), which is what the formula tends to, from below.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri_exp

from sparsity.attention.measurement import row_laws
from sparsity.checks import check_number
from sparsity.errors import InputError
from sparsity.exact_law.integration import gauss_rule
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH

# −ln of the chances that are left out on either side, and nodes of Gauss and Legendre: from 1 to
# 10¹² scores of one law, 1e-14 of γ was measured for the first, 2e-7 for the second.
FINE, COARSE = (37.0, 64), (20.0, 24)
# Deviations: below, Φ(−z) nears 1 and ln(1 − Φ(−z)) loses digits; log_ndtr does not.
_MIN_COMPLEMENT = -1.0
_HALVINGS = 6  # of the range of x, by which its low end is raised to where P(max ≤ x) begins
_CHANCE = 0.99  # chance of the interval
_MAX_ENTRIES = 2**20  # numbers of an array at once: 8 MiB; fewer cost more calls


class LargestLogit(NamedTuple):
    """The law of the largest of many scores.

    Args:
        mean: E max.
        low: below it, the largest is with a chance of 0.5 %.
        high: above it, likewise.
    """

    mean: float
    low: float
    high: float


class QKClip(NamedTuple):
    """What a clip at τ does to a head.

    Args:
        factor: min(1, τ/s_max), by which the scores are multiplied.
        gamma: their spread afterwards.
        n_eff: of Gaussian rows before, by the exact law.
        n_eff_clipped: of them afterwards.
        n_eff_of_row: of the row that has s_max, before, by the law given the largest logit.
        n_eff_of_row_clipped: of it afterwards.
    """

    factor: float
    gamma: float
    n_eff: float
    n_eff_clipped: float
    n_eff_of_row: float
    n_eff_of_row_clipped: float


def largest_logit(length: Any, gamma: Any, beta: Any = 0.0, *, rows: int = 1) -> LargestLogit:
    """Return the mean of the largest logit of independent Gaussian rows, and where it lies.

    P(max ≤ x) = Π Φ((x − β_i)/γ_i)^(n_i). A measured one above `high` is an outlier of its head, as
    that of a sink or of a grown dimension, and no matter of the spread. Rows that share keys are
    not independent: where their queries are alike, the largest is lower.

    Args:
        length: n of each row, ≥ 1.
        gamma: spread γ of its scores, > 0.
        beta: their mean β; the three broadcast.
        rows: how many rows there are of each.

    Returns:
        Mean, and the interval that holds it with a chance of 99 %.

    Raises:
        InputError: no finite numbers, or numbers out of range.
    """
    n, gamma, beta = _check_rows(length, gamma, beta)
    n = n * check_number("rows", rows, "give how many, at least 1", lambda x: x >= 1)

    def below(x: float, log_chance: float) -> float:
        return float(_log_chance_below(np.array([x]), n, beta, gamma)[0]) - log_chance

    with np.errstate(over="ignore"):
        low, high = (float(x) for x in _find_ends(n, beta, gamma, FINE[0]))
    if not np.isfinite([low, high]).all():
        raise InputError("gamma", float(gamma.max()), "is too large: the largest score overflows")
    tail = (1 - _CHANCE) / 2
    found = []
    for chance in (tail, 1 - tail):
        if below(low, np.log(chance)) >= 0 or low == high:  # rows without spread hold the end
            found.append(low)
        else:
            root: Any = brentq(below, low, high, args=(np.log(chance),))
            found.append(float(root))
    return LargestLogit(float(expected_largest(n, gamma, beta)), *found)


def expected_largest(
    length: np.ndarray, gamma: np.ndarray, beta: np.ndarray, rule: tuple[float, int] = FINE
) -> np.ndarray:
    """Return E max over the last axis of n scores N(β, γ²) of each; all of one shape."""
    # `low` is where one row alone is certain to be above x. Many rows are so far higher up:
    # bisection raises it to within 1/64 of the range, so that the nodes lie where P(max ≤ x)
    # changes.
    low, high = _find_ends(length, beta, gamma, rule[0])
    top = high
    for _ in range(_HALVINGS):  # the low end of the best row is far below that of many
        middle = (low + top) / 2
        below = _log_chance_below(middle[..., None], length, beta, gamma)[..., 0] < -rule[0]
        low, top = np.where(below, middle, low), np.where(below, top, middle)
    nodes, weights = gauss_rule(rule[1])
    half = (high - low) / 2
    x = low[..., None] + half[..., None] * (nodes + 1)
    # The integral of 1 − P from `low` on; below it P is less than e^−depth and its integral is left
    # out, above `high` 1 − P is.
    below = np.exp(_log_chance_below(x, length, beta, gamma))
    return low + half * ((1 - below) * weights).sum(-1)


def qk_clip(
    length: float, gamma: float, max_logit: float, tau: float = 100.0, *, beta: float = 0.0
) -> QKClip:
    """Return what a clip of queries and keys does to the spread of a head's scores and its focus.

    Where the largest logit s_max of a head is beyond τ, its queries and keys are multiplied so that
    its scores are by min(1, τ/s_max) what they were, and so is γ. The rows that did not have s_max
    lose as much as the one that had it.

    Args:
        length: n of the rows, ≥ 1.
        gamma: spread γ of the scores of a row, > 0.
        max_logit: s_max, the largest of the head.
        tau: the threshold τ > 0; Kimi K2 was trained with 100.
        beta: mean of the scores, which s_max is counted from in the law of its row.

    Returns:
        The factor, the spread, and n_eff before and after, of Gaussian rows and of that row.

    Raises:
        InputError: no finite numbers, numbers out of range, or γ beyond the exact law's table.

    Source:
        Kimi Team, Kimi K2, arXiv 2507.20534, section 2.1.
    """
    n, spread, mean = (
        float(parameter.one(x)) for parameter, x in ((LENGTH, length), (GAMMA, gamma), (BETA, beta))
    )
    top = check_number("max_logit", max_logit, "give a finite number")
    threshold = check_number("tau", tau, "give a number > 0", lambda x: x > 0)
    if spread > row_laws.MAX_GAMMA:
        raise InputError("gamma", spread, f"give a spread up to {row_laws.MAX_GAMMA:g}")
    factor = min(1.0, threshold / top) if top > 0 else 1.0
    both = np.array([1.0, factor])
    # The whole row is scaled, its largest logit with it: head_law counts it from the mean.
    plain = n * row_laws.exact_law(n, both * spread) ** 2
    row = n * row_laws.head_law(n, both * spread, both * (top - mean)) ** 2
    return QKClip(factor, factor * spread, *plain.tolist(), *row.tolist())


def _check_rows(length: Any, gamma: Any, beta: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return n, γ and β of rows, of one shape [rows].

    Raises:
        InputError: no finite numbers, or numbers out of range.
    """
    found = [
        np.asarray(parameter.check(x), np.float64)
        for parameter, x in ((LENGTH, length), (GAMMA, gamma), (BETA, beta))
    ]
    try:
        n, spread, mean = np.broadcast_arrays(*found)
    except ValueError:
        shapes = ", ".join(str(x.shape) for x in found)
        raise InputError("length, gamma and beta", shapes, "give shapes that broadcast") from None
    if not n.size:
        raise InputError("length, gamma and beta", "no rows", "give at least one")
    return n.ravel(), spread.ravel(), mean.ravel()


def _find_ends(
    n: np.ndarray, beta: np.ndarray, gamma: np.ndarray, depth: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return x where P(max ≤ x) is below e^−depth, and x where it is above 1 − e^−depth.

    That all rows lie below x is no more likely than that one does, Φ^n = e^−depth at the first end;
    that any score lies above x is no more likely than the sum of the chances of each, which at the
    second end are e^−depth/(n·rows). A row without spread bounds the maximum from below by its β.
    """
    low = (beta + gamma * ndtri_exp(-depth / n)).max(-1)
    high = beta - gamma * ndtri_exp(-depth - np.log(n * n.shape[-1]))
    return low, np.maximum(high.max(-1), low)


def _log_chance_below(
    x: np.ndarray, n: np.ndarray, beta: np.ndarray, gamma: np.ndarray
) -> np.ndarray:
    """Return ln P(max ≤ x) = Σ n ln Φ((x − β)/γ), a few rows at a time: [..., points]."""
    found = np.zeros(x.shape)
    size = max(1, _MAX_ENTRIES // max(1, x.size))
    for start in range(0, n.shape[-1], size):
        part = (..., slice(start, start + size), None)
        off = x[..., None, :] - beta[part]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(off == 0, np.inf, off / gamma[part])  # only rows without spread have 0/0
        each = np.log1p(-ndtr(-np.maximum(z, _MIN_COMPLEMENT)))  # three times as fast as log_ndtr
        left = z < _MIN_COMPLEMENT
        each[left] = log_ndtr(z[left])
        found += (n[part] * each).sum(-2)
    return found
