"""The one definition of sparsity: S = E|a| / √(E a²), and what follows from it for a row.

Plain operators only, so the same functions serve NumPy and JAX arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sparsity.calls import public
from sparsity.checks import check_flag, check_reals, check_whole, is_traced
from sparsity.errors import InputError


def ascending(values: Any) -> Any:
    """Values in ascending order, along the last axis.

    As whole numbers their bits have the same order, those of negative ones but for the sign turned
    round, and XLA sorts whole numbers four times as fast.
    """
    xp = values.__array_namespace__()

    def turned(bits: Any) -> Any:
        return xp.where(bits < 0, bits ^ xp.iinfo(bits.dtype).max, bits)

    bits = turned(values.view(f"int{8 * values.dtype.itemsize}"))
    return turned(xp.sort(bits, axis=-1, stable=False)).view(values.dtype)


def from_moments(m1: Any, m2: Any) -> Any:
    """S = m1 / √m2 from m1 = E|a| and m2 = E a².

    Args:
        m1: first absolute moment, any shape.
        m2: second moment, same shape.

    Returns:
        The l1/l2 sparsity, in (0, 1] by the Cauchy–Schwarz inequality; small is sparse.
    """
    return m1 / m2**0.5


def effective(l1: Any, l2: Any) -> Any:
    """n_eff = (Σ|a|)² / Σa² from the two sums."""
    return l1 * l1 / l2


def participation(total: Any, l2: Any) -> Any:
    """Y₂ = Σp² of p = |a|/total: Σa² over the square of all weight there is, Σ|a| and sinks."""
    return l2 / total**2


@public
def entropy(weights: Any, unit: Any = 0.0, axis: int = -1, log: bool = False) -> Any:
    """−Σ p ln p in nats over tokens, p = |a|/(Σ|a| + unit), with 0 ln 0 = 0.

    Args:
        weights: a of each token, possibly signed, any shape with n entries along `axis`.
        unit: what takes part in the total and is no token: one number ≥ 0, or one for each row.
        axis: the axis of the row.
        log: whether `weights` are logarithms of weights, −∞ for 0, as importance sampling has them.
    """
    unit = check_reals("unit", unit, traced=True)
    if not (is_traced(unit) or bool(((unit >= 0) & (unit < np.inf)).all())):
        raise InputError("unit", unit, "give a finite number >= 0")
    # With r = |a|/top and T = total/top, H = (ties·ln T + Σ r (ln T − ln r)) / T, the sum over
    # weights below the top, which is the largest of weights and unit. T − 1 is summed without the
    # top itself and goes through log1p: of a row that is nearly one-hot, ln Σa − (Σ a ln a)/Σa
    # would be a difference of two nearly equal numbers.
    ratios, unit = _scaled("weights", weights, axis, unit, log)
    xp = ratios.__array_namespace__()
    under = ratios < 1
    ties = (~under).sum(-1)
    ratios = ratios * under
    rest = ratios.sum(-1) + (ties + unit - 1)
    log_total = xp.log1p(rest)  # of the total over the top
    below = (ratios * (log_total[..., None] - xp.log(ratios + (ratios == 0)))).sum(-1)
    return (ties * log_total + below) / (1 + rest)


@public
def varentropy(weights: Any, axis: int = -1, log: bool = False) -> Any:
    """Σ p (ln p)² − (Σ p ln p)², the variance of ln p under p = |a|/Σ|a|, with 0 ln 0 = 0.

    Of softmax ln p is the score but for a constant, so that it is the variance of the score under
    the attention: how fast the mean score falls as the temperature rises.

    Args:
        weights: a of each token, possibly signed, any shape with n entries along `axis`.
        axis: the axis of the row.
        log: whether `weights` are logarithms of weights, −∞ for 0, as importance sampling has them.
    """
    ratios, _ = _scaled("weights", weights, axis, log=log)
    xp = ratios.__array_namespace__()
    p = ratios / ratios.sum(-1, keepdims=True)
    log_ratio = xp.log(ratios + (ratios == 0))
    # Of a row that is nearly one-hot the mean is next to 0, the logarithm of the largest.
    mean = (p * log_ratio).sum(-1, keepdims=True)
    return (p * (log_ratio - mean) ** 2).sum(-1)


@public
def gini(weights: Any, axis: int = -1, log: bool = False) -> Any:
    """Gini coefficient Σ_jk ||a_j| − |a_k|| / (2n Σ|a|), by the ranks of the weights.

    Args:
        weights: a of each token, possibly signed, any shape with n entries along `axis`.
        axis: the axis of the row.
        log: whether `weights` are logarithms of weights, −∞ for 0, as importance sampling has them.
    """
    weights, _ = _scaled("weights", weights, axis, log=log)
    xp = weights.__array_namespace__()
    n = weights.shape[-1]
    # In ascending order Σ_jk |a_j − a_k| = 2 Σ_i (2i − (n−1)) a_i, i from 0: each weight is added
    # once for each smaller one and subtracted for each larger. n log n work in place of n².
    ranks = xp.arange(n, dtype=weights.dtype) * 2 - (n - 1)
    return (ascending(weights) * ranks).sum(-1) / (n * weights.sum(-1))


def _rows(name: str, a: Any, axis: Any) -> Any:
    """Rows of real weights as floating numbers, in which nothing overflows that did not before.

    Whole numbers in double precision where NumPy has them, half precision in single.

    Raises:
        InputError: anything else, a masked array, whose mask would be lost, or no such axis.
    """
    if isinstance(a, np.ma.MaskedArray):
        raise InputError(name, "masked array", "give plain numbers, 0 for what is hidden")
    a = check_reals(name, a, "give rows of real weights; of a kernel, exact(…, of=…)", traced=True)
    if not a.ndim or 0 in a.shape:
        raise InputError(name, f"array of shape {a.shape}", "give rows of at least one weight")
    check_whole("axis", axis, -a.ndim, a.ndim - 1)
    if a.dtype.kind in "iu":
        return a.astype(float)
    return a.astype(np.promote_types(a.dtype, np.float32), copy=False)


def _scaled(name: str, a: Any, axis: int, unit: Any = 0.0, log: bool = False) -> tuple[Any, Any]:
    """Return |a| and a unit over the largest of both, the axis of the row moved to the end.

    So every metric takes signed weights alike, and no sum or square over- or underflows where it
    matters, of weights that are given by their logarithms neither.

    Raises:
        InputError: no rows of weights, or not one unit for each row.
    """
    a = _rows(name, a, axis)
    xp = a.__array_namespace__()
    a = xp.moveaxis(a, axis, -1)
    if np.shape(unit) not in ((), a.shape[:-1]):
        fix = f"give one number or one for each row, {a.shape[:-1]}"
        raise InputError("unit", f"array of shape {np.shape(unit)}", fix)
    if check_flag("log", log):
        log_unit = xp.where(unit > 0, xp.log(unit + (unit == 0)), -xp.inf)
        highest = xp.maximum(a.max(-1), log_unit)
        highest = xp.where(highest > -xp.inf, highest, 0)  # a row of zeros stays one
        a, unit = xp.exp(a - highest[..., None]), xp.exp(log_unit - highest)
    a = abs(a)
    top = xp.maximum(a.max(-1), unit)
    top = top + (top == 0)
    return a / top[..., None], unit / top


@public
def S(a: Any, axis: int = -1, log: bool = False) -> Any:
    """S = ‖a‖₁ / (√n ‖a‖₂) of concrete rows of (unnormalised, possibly signed) weights.

    Args:
        a: weights, any shape with n entries along `axis`; whole numbers too.
        axis: the axis of the row.
        log: whether `a` are logarithms of weights, −∞ for 0, as importance sampling has them.

    Returns:
        Values in [1/√n, 1]: 1/√n for one-hot, 1 for uniform, NaN for an all-zero row.

    Raises:
        InputError: complex numbers, a masked array, or no numbers.
    """
    a, _ = _scaled("a", a, axis, log=log)
    return from_moments(a.mean(-1), (a * a).mean(-1))


@public
def n_eff(a: Any, axis: int = -1, log: bool = False) -> Any:
    """n_eff = ‖a‖₁² / ‖a‖₂² = n·S², the effective number of attended tokens.

    Of importance weights it is Kish's effective sample size, the ESS. The inverse participation
    ratio 1/Σp² of p = |a|/Σ|a| (exp of the order-2 Rényi entropy).

    Args:
        a: weights, any shape with n entries along `axis`.
        axis: the axis of the row.
        log: whether `a` are logarithms of weights, −∞ for 0, as importance sampling has them.

    Returns:
        Values in [1, n], NaN for an all-zero row.
    """
    a, _ = _scaled("a", a, axis, log=log)
    return effective(a.sum(-1), (a * a).sum(-1))


def _require_same_keys(a: Any, b: Any) -> None:
    if a.shape[-1] != b.shape[-1]:
        fix = f"give as many as a has, {a.shape[-1]}"
        raise InputError("b", f"rows of {b.shape[-1]} weights", fix)


def overlap(a: Any, b: Any, axis: int = -1, log: bool = False) -> Any:
    """Σ p p′ of two attentions to the same keys, p = |a|/Σ|a| and p′ = |b|/Σ|b|.

    Args:
        a: weights of one, any shape with n entries along `axis`.
        b: of the other, likewise.
        axis: the axis of the row.
        log: whether both are logarithms of weights, −∞ for 0.

    Returns:
        Values in [0, 1]: 1/n where one of them is uniform, Σp² of equal ones; NaN for an all-zero
        row.
    """
    a, _ = _scaled("a", a, axis, log=log)
    b, _ = _scaled("b", b, axis, log=log)
    _require_same_keys(a, b)
    return (a * b).sum(-1) / (a.sum(-1) * b.sum(-1))


def top_k_overlap(a: Any, b: Any, k: int, axis: int = -1, log: bool = False) -> Any:
    """Share of the k largest weights of a row that are among the k largest of the other.

    Weights of 0 are in neither set, and of equal ones the first count as larger.

    Args:
        a: weights of one, any shape with n entries along `axis`.
        b: of the other, likewise.
        k: how many of each.
        axis: the axis of the row.
        log: whether both are logarithms of weights, −∞ for 0.

    Returns:
        Values in [0, 1], NaN for an all-zero row.
    """
    check_whole("k", k, 1)
    check_flag("log", log)
    sets = []
    for name, given in (("a", a), ("b", b)):
        rows = _rows(name, given, axis)
        xp = rows.__array_namespace__()
        rows = xp.moveaxis(rows, axis, -1)
        rows = rows if log else abs(rows)
        # Not by `argsort`, which takes XLA as long as six sorts.
        least = ascending(rows)[..., -min(k, rows.shape[-1]), None]
        above, level = rows > least, rows == least
        first = level & (level.cumsum(-1) <= k - above.sum(-1, keepdims=True))
        sets.append((above | first) & (rows > (-xp.inf if log else 0)))
    _require_same_keys(*sets)
    both, one, other = (x.sum(-1) for x in (sets[0] & sets[1], *sets))
    return both / xp.where(other > 0, one, 0)


def hoyer_of(l1: Any, l2: Any, n: Any) -> Any:
    """(√n − ‖a‖₁/‖a‖₂)/(√n − 1) from Σ|a| and Σa² of a row of n; 0 for a single token."""
    root_n = n**0.5
    return (root_n - l1 / l2**0.5) / (root_n - 1 + (n == 1))


@public
def hoyer(a: Any, axis: int = -1, log: bool = False) -> Any:
    """Hoyer's index (√n − √n·S) / (√n − 1): 0 for uniform, 1 for one-hot.

    Args:
        a: weights, any shape with n entries along `axis`.
        axis: the axis of the row.
        log: whether `a` are logarithms of weights, −∞ for 0, as importance sampling has them.

    Source: Hoyer, "Non-negative matrix factorization with sparseness constraints" (2004), eq. 4.
    """
    a, _ = _scaled("a", a, axis, log=log)
    return hoyer_of(a.sum(-1), (a * a).sum(-1), a.shape[-1])
