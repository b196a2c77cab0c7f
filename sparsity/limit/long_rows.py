"""The limits of long rows: what a quantity is where every sum over tokens averages itself.

Sums Σ|a|^p come from the quadrature of the moments of one score, and the entropy from the slope of
ln Σ|a|^p in p. What goes by the rank of weights has no limit here: rows of n have it.

Capacity is among how many other keys a row still reads out the needle's value. Keys are k ~ N(0, I)
in R^d, and the query of length t points along the needle, a key of the length √d that it expects:
the needle scores m = t√d, and the others N(0, t²). Signal and noise are equal, SNR = 1, at
n = a*²/E a² other keys, as long as Σ a² averages itself:

    identity d;   max(s, 0)^p  2d^p/(2p − 1)!!;   exp  e^(2t√d − 2t²), at most e^(d/2) at t = √d/2.

These are the capacities of associative memories: Krotov & Hopfield (2016), arXiv:1606.01164;
Demircigil et al. (2017), arXiv:1702.01929; Ramsauer et al. (2020), arXiv:2008.02217.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from sparsity import kernels
from sparsity.calls import public
from sparsity.checks import check_number, check_whole
from sparsity.errors import InputError, TooFine
from sparsity.kernels import Kernel
from sparsity.kernels.base import check_scored
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.score_moments import log_moments
from sparsity.quantities import Quantity
from sparsity.rows import classes
from sparsity.rows.classes import ANY_LENGTH, Class, TokenClasses
from sparsity.rows.row import Row
from sparsity.rows.steps import QKNorm

_SLOPE_RULES = ((672, -168, 32, -3), (45, -9, 1))  # of central differences, over 840 and 60 steps
_MOST_LOG = 709.0  # of a float64
_DEGREE_0 = 1e-12  # of a product: below it is 0, and rounding of powers such as 1/p
_MOST_LAWS = 200  # of 0.003 to 0.045 s each
_AS_WIDE = 4  # times as long that keys on a sphere take besides
_ORDER_STEP = 0.03  # of p, in units of 1/(standard deviation of ln|a|), or of 1 if that is less


def log_sums(
    given: TokenClasses, powers: tuple[float, ...], count: np.ndarray | None = None
) -> list[tuple[float, float]]:
    """Return log Σ w^p E|f|^p over tokens, and a bound on its error, for several powers.

    Args:
        given: the tokens.
        powers: p.
        count: how often each group counts; None counts the tokens.
    """
    count, bounds = given.token if count is None else count, []
    many = (1 + _AS_WIDE) * len(given.classes) > _MOST_LAWS  # classes are no fewer than laws
    if many and given.classes[0][0].weight != kernels.exp.weight:
        laws = [law for piece in classes.pieces(given.classes) for law in piece.laws]
        wide = sum(isinstance(law[3], QKNorm) for law in laws)
        if len(laws) + _AS_WIDE * wide > _MOST_LAWS:
            fix = f"takes {len(laws)} quadratures, as tokens differ; shorten it or use estimate"
            raise TooFine("length", given.n, fix)

    def logs(law: Class) -> np.ndarray:
        moments = np.array(log_moments(law[0], powers, *law[1:]))
        bounds.append(moments[:, 1])
        return moments[:, 0]

    values, off = classes.interpolated(given.classes, logs)
    present = count > 0
    log_w, log_count = given.log_w[present], np.log(count[present])
    largest = float(np.abs(log_w).max(initial=0.0))
    return [
        (
            float(np.logaddexp.reduce(log + power * log_w + log_count)),
            float(bound) + 2 * off + 8 * EPS * (1 + abs(power) * largest),
        )
        for power, log, bound in zip(
            powers, values[given.member[present]].T, np.max(bounds, axis=0), strict=True
        )
    ]


def log_total(row: Row, n: int) -> float:
    """Return the log of the tokens' mean total weight."""
    return log_sums(classes.classify_tokens(row, n), (1,))[0][0]


def _refuse_without_length() -> None:
    raise InputError("length", None, "this row depends on its length; give one")


def limit_form(row: Row, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return log S of a row, S = Σ w_j E|f_j| / √(n Σ w_j² E f_j²) over its n tokens.

    What √(n_eff/n) tends to where |a| and a² average themselves. Sink logits are no tokens and do
    not enter.

    Args:
        row: any row whose kernel is a function of a score.
        length: row lengths n, whole numbers ≥ 1, any shape; None where tokens do not differ.

    Returns:
        log S and a bound on its error, in the shape of `length`.

    Raises:
        InputError: an infinite moment, a bad value, or no length where tokens differ.
    """
    if length is None and not classes.same_at_any_length(row):
        _refuse_without_length()
    n = LENGTH.check(ANY_LENGTH if length is None else length)
    pairs = []
    for m in n.flat:
        given = classes.rescaled(classes.classify_tokens(row, int(m)), units=False)
        (first, off), (second, more) = log_sums(given, (1, 2))
        pairs.append((first - 0.5 * (second + math.log(m)), off + more))
    value, error = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    return value.reshape(n.shape), error.reshape(n.shape)


def _goes_by_length(
    sums: Sequence[tuple[float, float]], count: float, total: float, others: float, units: bool
) -> bool:
    """Return whether a product of row sums depends on n; the arguments are those of `product`.

    A sum over n tokens alike is n times a mean, so that n cancels in a product of degree 0. A sink,
    a needle or the weight of a sink logit is one among n, and does not.
    """
    degree = sum(power for _, power in sums) + count + total
    return abs(degree) > _DEGREE_0 or bool(total and units) or bool(others)


class TokenSums:
    """The sums over the tokens of a row, as `quantities.LongRows` describes them.

    Args:
        row: any row whose kernel is a function of a score.
        length: n; None where tokens do not differ.
        quantity: as errors name it.

    Raises:
        InputError: no length where tokens differ.
    """

    def __init__(self, row: Row, length: int | None, quantity: Quantity) -> None:
        """Sort the tokens into classes."""
        self.alike = (
            classes.identical_tokens(row, length, units=False)
            if length
            else classes.same_at_any_length(row)
        )
        if length is None and not self.alike:
            _refuse_without_length()
        self.length, self.quantity = length, quantity
        self.given = classes.classify_tokens(row, length or ANY_LENGTH)
        if quantity.needs is not None:
            classes.refuse_without(row, quantity.needs, self.given.of(quantity.needs))

    @property
    def n(self) -> float:
        if self.length is None:
            fix = f"the limit of {self.quantity.name} depends on it; give the row length n"
            raise InputError("length", None, fix)
        return float(self.length)

    @functools.cached_property
    def _total(self) -> tuple[float, float]:
        """Log of all mass, that of sink logits included, and a bound on its error."""
        return log_sums(self.given, (1.0,), self.given.count)[0]

    def product(self, *sums: tuple[float, float], count: float = 0.0, total: float = 0.0,
                sinks: float = 0.0, needle: float = 0.0) -> tuple[float, float]:  # fmt: skip
        values = log_sums(self.given, tuple(order for order, _ in sums)) if sums else []
        parts = list(zip(values, (power for _, power in sums), strict=True))
        units = self.given.token.sum() < self.given.count.sum()
        if _goes_by_length(sums, count, total, sinks or needle, units):
            _ = self.n  # refused where there is none
        if total:
            parts.append((self._total, total))
        if sinks:
            parts.append((log_sums(self.given, (1.0,), self.given.sink)[0], sinks))
        if needle:
            parts.append((log_sums(self.given, (needle,), self.given.needle)[0], 1.0))
        log = sum(value * power for (value, _), power in parts)
        log += count * math.log(float(self.length or ANY_LENGTH))
        error = sum(off * abs(power) for (_, off), power in parts)
        if log > _MOST_LOG:
            name = self.quantity.name
            raise InputError("of", name, "its limit is beyond float64; use exact or less gamma")
        value = math.exp(log)
        return value, value * (error + 4 * EPS * (1 + abs(log)))

    def entropy(self) -> tuple[float, float]:
        """Return the entropy: Σ|a| ln|a| / Σ|a| is the slope of L(p) = ln Σ|a|^p at p = 1.

        It is taken by central differences of orders 8 and 6, whose disagreement is the bound, over
        steps that a first look at the curvature of L scales to the spread of ln|a|.
        """
        _ = self.n
        near, (middle, off), far = log_sums(self.given, (0.95, 1.0, 1.05))
        spread = math.sqrt(max(near[0] - 2 * middle + far[0], 0.0)) / 0.05
        h = _ORDER_STEP / max(spread, 1.0)
        every = log_sums(self.given, tuple(1 + i * h for i in (1, 2, 3, 4, -1, -2, -3, -4)))
        pairs = list(zip(every[:4], every[4:], strict=True))
        slopes = []
        for weights in _SLOPE_RULES:
            whole = 2 * sum((i + 1) * w for i, w in enumerate(weights))
            rise = sum(w * (up[0] - down[0]) for w, (up, down) in zip(weights, pairs, strict=False))
            slopes.append(rise / (whole * h))
        noise = sum(up[1] + down[1] for up, down in pairs) / h
        total, more = self._total
        share = math.exp(middle - total)  # of the tokens
        error = abs(slopes[0] - slopes[1]) + noise + off + 2 * more
        bound = share * (error + 8 * EPS * (abs(total) + abs(slopes[0])))
        return share * (total - slopes[0]), bound


def _value(row: Row, quantity: Quantity, length: int | None) -> tuple[float, float]:
    """Return the limit, and a bound on its absolute error."""
    if quantity.linear is not None:
        linear = quantity.linear
        value, error = _value(row, linear.of, length)
        n = np.inf if length is None else float(length)
        return float(linear(value, n)), float(abs(linear.slope(n)) * error + 2 * EPS)
    if quantity.limit is None:
        fix = "has no limit for long rows; use exact or estimate with a length"
        raise InputError("of", quantity.name, fix)
    if quantity.pair is not None:
        classes.normal_law_in_sight(row, length or ANY_LENGTH, quantity.name)
    return quantity.limit(TokenSums(row, length, quantity))


def limit_of_quantity(row: Row, quantity: Quantity, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return what a quantity is in long rows, and a bound on its relative error.

    Args:
        row: any row whose kernel is a function of a score.
        quantity: one that has a limit.
        length: row lengths n, whole numbers ≥ 1, any shape; None for what does not depend on it.

    Returns:
        Two arrays in the shape of `length`.

    Raises:
        InputError: no limit, no length where it counts, an infinite moment, or a bad value.
    """
    scored = row.scored()
    n = np.array(None) if length is None else LENGTH.check(length)
    pairs = [_value(scored, quantity, None if length is None else int(m)) for m in n.flat]
    value, error = np.array(pairs, dtype=np.float64).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):
        # The last operation rounds the value itself: 1 − e^(−12) is off by more than its e^(−12).
        relative = np.where(error > 0, error / np.abs(value) + EPS, 0.0)
    return value.reshape(n.shape), relative.reshape(n.shape)


class Capacity(NamedTuple):
    """How many other keys there are where the SNR is what is wanted.

    Args:
        value: n, of other keys.
        log_value: ln n.
        error_bound: on the relative error of n.
    """

    value: float
    log_value: float
    error_bound: float


@public
def needle_capacity(
    kernel: str | Kernel, *, dim: int, query: float = 1.0, snr: float = 1.0
) -> Capacity:
    """Return the capacity of a kernel, n = f(t√d)²/(SNR² E f(s)²) with s ~ N(0, t²).

    Args:
        kernel: a function of a score, by name or as a `Kernel`.
        dim: d ≥ 1.
        query: t > 0, the length of the query.
        snr: the signal-to-noise ratio > 0 that is wanted; one component of a value of ±1 is read
            wrongly with the chance Φ(−SNR), 10 % at 1.2816.

    Raises:
        InputError: another kernel, a bad value, or an infinite moment.
    """
    record = check_scored(kernels.elementwise(kernel))
    d = check_whole("dim", dim, 1)
    t = check_number("query", query, "give one number > 0", lambda x: x > 0)
    ratio = check_number("snr", snr, "give one number > 0", lambda x: x > 0)
    (needle, off), *_ = log_moments(record, (2.0,), t * math.sqrt(d), 0.0)
    (noise, more), *_ = log_moments(record, (2.0,), 0.0, t)
    if needle == -math.inf:
        raise InputError("dim", dim, f"{record.name} gives the needle no weight there")
    log_value = needle - noise - 2 * math.log(ratio)
    with np.errstate(over="ignore"):
        value = float(np.exp(log_value))
    return Capacity(value, log_value, off + more + 4 * EPS * (1 + abs(log_value)))
