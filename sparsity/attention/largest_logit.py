"""The largest logit that Gaussian scores have, and what a clip of the logits does to the focus.

Of independent scores s_i ~ N(β_i, γ_i²), n_i of each, P(max ≤ x) = Π Φ((x − β_i)/γ_i)^(n_i), and

    E max = lo + ∫_lo (1 − P(max ≤ x)) dx − ∫^lo P(max ≤ x) dx,

with lo so low that the last integral is nothing. For N scores of one law it is about
β + γ√(2 ln N), which is what the formula tends to, from below.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri_exp

from sparsity.attention.measurement import row_laws
from sparsity.calls import public
from sparsity.checks import check_number
from sparsity.errors import InputError
from sparsity.exact_law.integration import clenshaw_curtis
from sparsity.kernels.parameters import BETA, GAMMA, LENGTH, bound_by_name
from sparsity.results import ESTIMATED

# −ln of the chances that are left out on either side; parts of a panel in the coarser of two rules,
# the finer has twice as many; and how far apart both may be, of the whole range.
FINE, COARSE = (37.0, 12, 1e-15), (20.0, 6, 1e-6)
_EDGES = 13  # of panels at first, among the ends of the laws; fewer were halved as often
_ROUNDS = 60  # of halving panels, down to the rounding of the range
# Deviations: below, Φ(−z) nears 1 and ln(1 − Φ(−z)) loses digits; log_ndtr does not.
_MIN_COMPLEMENT = -1.0
_CHANCE = 0.99  # chance of the interval
_MAX_ENTRIES = 2**20  # numbers of an array at once: 8 MiB; fewer cost more calls


class LargestLogit(NamedTuple):
    """The law of the largest of many scores.

    Args:
        mean: E max.
        low: below it, the largest is with a chance of 0.5 %.
        high: above it, likewise.
        error_bound: of the mean, estimated.
    """

    mean: float
    low: float
    high: float
    error_bound: float
    error_kind = ESTIMATED


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


@public
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
        Mean, the interval that holds it with a chance of 99 %, and what the mean may be off.

    Raises:
        InputError: no finite numbers, or numbers out of range.
    """
    n, gamma, beta = _check_rows(length, gamma, beta)
    n = n * check_number("rows", rows, "give how many, at least 1", lambda x: x >= 1)

    def below(share: float, log_chance: float) -> float:  # the root is found to 1e-15 of the span
        x = low + share * (high - low)
        return float(_log_chance_below(np.array([x]), n, beta, gamma)[0]) - log_chance

    with np.errstate(over="ignore"):
        low, high = _find_ends(n, beta, gamma, FINE[0]).max(-1).tolist()
    if not math.isfinite(2 * abs(low) + abs(high)):
        raise InputError("gamma", float(gamma.max()), "is too large: the largest score overflows")
    tail = (1 - _CHANCE) / 2
    ends = []
    for chance in (tail, 1 - tail):
        root: Any = 0.0
        if below(0.0, np.log(chance)) < 0 and low < high:  # not held by rows without spread
            root = brentq(below, 0.0, 1.0, args=(np.log(chance),), xtol=1e-15)
        ends.append(low + root * (high - low))
    mean, error = expected_largest(n, gamma, beta)
    return LargestLogit(mean, ends[0], ends[1], error)


def expected_largest(
    length: np.ndarray,
    gamma: np.ndarray,
    beta: np.ndarray,
    rule: tuple[float, int, float] = FINE,
) -> tuple[float, float]:
    """Return E max of n scores N(β, γ²) of each row, all [rows], and a bound on its error.

    P(max ≤ x) rises wherever one of the laws lies, and may do so as steeply as in a step. So panels
    lie between the ends of the laws, and are halved until a rule and one of half as many parts
    agree on each: what is between both in all is the bound, with the chances that are left out and
    the rounding of the ends.
    """
    depth, parts, share = rule
    ends = _find_ends(length, beta, gamma, depth)
    low, high = ends.max(-1)
    at = np.quantile(ends.clip(low), np.linspace(0, 1, _EDGES), method="nearest")
    edges = np.unique([low, *at, high])
    start, stop = edges[:-1], edges[1:]
    x, fine, coarse = _nested_rule(parts)
    mean, error = low, 2 * np.exp(-depth) * (high - low) + 1e-15 * (abs(low) + high - low)
    for turn in range(_ROUNDS):
        if not len(start):
            break
        half = (stop - start)[:, None] / 2
        points = start[:, None] + half * (1 + x)
        above = -np.expm1(_log_chance_below(points.ravel(), length, beta, gamma))
        above = half * above.reshape(points.shape)
        value, off = above @ fine, np.abs(above @ (fine - coarse))
        done = (off <= share * (high - low)) | (turn == _ROUNDS - 1)
        mean, error = mean + value[done].sum(), error + off[done].sum()
        middle = (start + stop)[~done] / 2
        start, stop = np.append(start[~done], middle), np.append(middle, stop[~done])
    return float(mean), float(error)


@functools.lru_cache(maxsize=2)
def _nested_rule(parts: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes of Clenshaw and Curtis on [−1, 1], and weights of all and of every other one.

    Both rules have the ends of a panel among their nodes: a step close to an end is seen.
    """
    coarse = np.zeros(2 * parts + 1)
    coarse[::2] = clenshaw_curtis(parts)
    return (
        np.cos(np.pi * np.arange(2 * parts + 1) / (2 * parts)),
        clenshaw_curtis(2 * parts),
        coarse,
    )


@public
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
    given = {"length": length, "gamma": gamma, "beta": beta}
    known = bound_by_name("largest_logit", (LENGTH, GAMMA, BETA), given)
    n, spread, mean = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in known.values()))
    if not n.size:
        raise InputError("length, gamma and beta", "no rows", "give at least one")
    return n.ravel(), spread.ravel(), mean.ravel()


def _find_ends(n: np.ndarray, beta: np.ndarray, gamma: np.ndarray, depth: float) -> np.ndarray:
    """Return for each row x where Φ^n is e^−depth, and x where it is all but 1, [2, rows].

    That all rows lie below x is no more likely than that one does, so that P(max ≤ x) is below
    e^−depth at the largest of the first. That any score lies above x is no more likely than the sum
    of the chances of each, e^−depth/(n·rows) at the second. A row without spread bounds the maximum
    from below by its β.
    """
    below, above = ndtri_exp(-depth / n), -ndtri_exp(-depth - np.log(n * len(n)))
    return beta + gamma * np.stack([below, above])


def _log_chance_below(
    x: np.ndarray, n: np.ndarray, beta: np.ndarray, gamma: np.ndarray
) -> np.ndarray:
    """Return ln P(max ≤ x) = Σ n ln Φ((x − β)/γ), a few rows at a time: [..., points]."""
    total = np.zeros(x.shape)
    size = max(1, _MAX_ENTRIES // max(1, x.size))
    for start in range(0, n.shape[-1], size):
        part = (..., slice(start, start + size), None)
        off = x[..., None, :] - beta[part]
        with np.errstate(divide="ignore", invalid="ignore"):
            z = np.where(off == 0, np.inf, off / gamma[part])  # only rows without spread have 0/0
        log_p = np.log1p(-ndtr(-np.maximum(z, _MIN_COMPLEMENT)))  # three times as fast as log_ndtr
        left = z < _MIN_COMPLEMENT
        log_p[left] = log_ndtr(z[left])
        total += (n[part] * log_p).sum(-2)
    return total
