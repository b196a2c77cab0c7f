"""The limits of long rows: what a quantity is where every sum over tokens averages itself.

Sums Σ|a|^p come from the quadrature of the moments of one score, the entropy from the slope of
ln Σ|a|^p in p, and what goes by the rank of weights from the law of one weight (`lorenz`).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from sparsity.errors import InputError
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.limit.lorenz import Lorenz
from sparsity.limit.scores import log_moments
from sparsity.quantities import Quantity
from sparsity.rows import classes
from sparsity.rows.classes import Class, TokenClasses
from sparsity.rows.row import Row

_ANY = 64  # tokens of a row of equals, whatever its length
_SLOPES = ((672, -168, 32, -3), (45, -9, 1))  # of central differences, over 840 and 60 steps
_STEP = 0.03  # of p, in units of 1/(standard deviation of ln|a|), or of 1 if that is less


def log_sums(
    given: TokenClasses, powers: tuple[float, ...], who: np.ndarray
) -> list[tuple[float, float]]:
    """Log Σ w^p E|f|^p over tokens, and a bound on its error, for several powers.

    Args:
        given: the tokens.
        powers: p.
        who: how often each group counts.
    """
    bounds = []

    def logs(law: Class) -> np.ndarray:
        found = np.array(log_moments(law[0], powers, *law[1:]))
        bounds.append(found[:, 1])
        return found[:, 0]

    values, off = classes.interpolated(given.classes, logs)
    own = who > 0
    log_w, log_count = given.log_w[own], np.log(who[own])
    largest = float(np.abs(log_w).max(initial=0.0))
    return [
        (
            float(np.logaddexp.reduce(log + power * log_w + log_count)),
            float(bound) + 2 * off + 8 * EPS * (1 + abs(power) * largest),
        )
        for power, log, bound in zip(
            powers, values[given.member[own]].T, np.max(bounds, axis=0), strict=True
        )
    ]


class Means:
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
        self.alike = classes.identical_tokens(
            row, length or _ANY, *([] if length else [2 * _ANY]), units=False
        )
        if length is None and not self.alike:
            fix = "this row depends on its length; give one"
            raise InputError("length", None, fix)
        self.row, self.length, self.quantity = row, length, quantity
        self.given = classes.classed(row, length or _ANY)
        if quantity.sinks and not self.given.sink.any():
            raise classes.no_sink(row)

    @property
    def n(self) -> float:
        if self.length is None:
            fix = f"the limit of {self.quantity.name} depends on it; give the row length n"
            raise InputError("length", None, fix)
        return float(self.length)

    @functools.cached_property
    def _count(self) -> float:
        return float(self.length or _ANY)

    def _tokens(self, *powers: float) -> list[tuple[float, float]]:
        return log_sums(self.given, powers, self.given.token)

    @functools.cached_property
    def _total(self) -> tuple[float, float]:
        """Log of all mass, sink logits with it."""
        return log_sums(self.given, (1.0,), self.given.count)[0]

    def product(self, *sums: tuple[float, float], count: float = 0.0, total: float = 0.0,
                sinks: float = 0.0) -> tuple[float, float]:  # fmt: skip
        own = self._tokens(*(order for order, _ in sums)) if sums else []
        parts = list(zip(own, (power for _, power in sums), strict=True))
        units = self.given.token.sum() < self.given.count.sum()
        degree = sum(power for _, power in sums) + count + total
        if abs(degree) > 1e-12 or (total and units) or sinks:
            _ = self.n  # the product depends on the length
        if total:
            parts.append((self._total, total))
        if sinks:
            parts.append((log_sums(self.given, (1.0,), self.given.sink)[0], sinks))
        log = sum(value * power for (value, _), power in parts) + count * math.log(self._count)
        error = sum(off * abs(power) for (_, off), power in parts)
        value = math.exp(log)
        return value, value * (error + 4 * EPS * (1 + abs(log)))

    def entropy(self) -> tuple[float, float]:
        """Σ|a| ln|a| / Σ|a| is the slope of ln Σ|a|^p at p = 1; by differences of two orders."""
        _ = self.n
        near, (middle, off), far = self._tokens(0.95, 1.0, 1.05)
        spread = math.sqrt(max(near[0] - 2 * middle + far[0], 0.0)) / 0.05
        h = _STEP / max(spread, 1.0)
        every = self._tokens(*(1 + i * h for i in (1, 2, 3, 4, -1, -2, -3, -4)))
        pairs = list(zip(every[:4], every[4:], strict=True))
        rises = [up[0] - down[0] for up, down in pairs]
        found = []
        for weights in _SLOPES:
            whole = 2 * sum((i + 1) * w for i, w in enumerate(weights))
            found.append(sum(w * r for w, r in zip(weights, rises, strict=False)) / (whole * h))
        noise = sum(up[1] + down[1] for up, down in pairs) / h
        total, more = self._total
        share = math.exp(middle - total)  # of the tokens
        value = share * (total - found[0])
        error = abs(found[0] - found[1]) + noise + off + 2 * more
        return value, share * (error + 8 * EPS * (abs(total) + abs(found[0])))

    @functools.cached_property
    def _lorenz(self) -> Lorenz:
        kernel, beta, gamma, scores = self.given.classes[0]
        if not self.alike or scores is not None or gamma == 0 or len(self.given.count) > 1:
            fix = "its limit is known only for rows of one law of Gaussian scores"
            raise InputError("of", self.quantity.name, fix)
        return Lorenz(kernel, beta, gamma)

    def gini(self) -> tuple[float, float]:
        return self._lorenz.gini()

    def top(self, share: float) -> tuple[float, float]:
        return self._lorenz.top(share)

    def keys(self, share: float) -> tuple[float, float]:
        return self._lorenz.keys(share)


def _value(row: Row, quantity: Quantity, length: int | None) -> tuple[float, float]:
    """The limit, and a bound on its absolute error."""
    if quantity.linear is not None:
        own = quantity.linear
        value, error = _value(row, own.of, length)
        n = np.inf if length is None else float(length)
        return float(own(value, n)), float(abs(own.slope(n)) * error + 2 * EPS)
    if quantity.limit is None:
        fix = "has no limit for long rows; use exact or estimate with a length"
        raise InputError("of", quantity.name, fix)
    return quantity.limit(Means(row, length, quantity))


def limit(row: Row, quantity: Quantity, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """What a quantity is in long rows, and a bound on its relative error.

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
    if length is None:
        found, shape = [_value(scored, quantity, None)], ()
    else:
        n = LENGTH.check(length)
        found, shape = [_value(scored, quantity, int(m)) for m in n.flat], n.shape
    value, error = np.array(found, dtype=np.float64).reshape(-1, 2).T
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = np.where(error > 0, error / np.abs(value), 0.0)
    return value.reshape(shape), relative.reshape(shape)
