"""The exact law of rows whose tokens differ: any kernel, any row law of `scores`.

With φ_j(t) = E e^(−ta_j²), m1_j(t) = E|a_j|e^(−ta_j²), m2_j(t) = E a_j² e^(−ta_j²):
    n_eff = ∫₀^∞ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ_j dt
    E S_n = ∫₀^∞ t^(−1/2) Σ m1_j/φ_j Πφ_j dt / √(πn)
over the probability that the row is not all zero; with e^(−t|a|) in their place, the participation
ratio Σp_j² and the mass on the sinks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.errors import InputError
from sparsity.finite import transforms
from sparsity.finite.finite_length import SLOW, FiniteLength
from sparsity.finite.laplace import TAIL
from sparsity.finite.transforms import STEP, Sums
from sparsity.kernels.base import Kernel
from sparsity.kernels.numeric.points import EPS
from sparsity.kernels.parameters import LENGTH
from sparsity.results import Evaluation
from sparsity.rows import classes as token_classes
from sparsity.rows.classes import Row
from sparsity.rows.steps import RowLaw, Unit
from sparsity.theory import sphere

__all__ = ["limit", "n_eff", "participation", "row_sparsity", "sink_logit", "sink_mass"]


_FARTHEST = 1e4  # that a logit is looked for from where a sink begins to matter


def _relative(row: Row, tokens_only: bool) -> Row:
    """The row with its largest weight (fixed or typical) near one; without its units if asked."""
    if tokens_only and not row.token.all():
        own = row.token > 0
        classes = row.classes[: int(row.member[own].max()) + 1]
        parts = (x[own] for x in row[2:])
        row = Row(row.n, classes, *parts)
    return row._replace(log_w=row.log_w - row.log_w.max())


def _bounded(sums: Sums, integrand: Any) -> tuple[float, float]:
    """∫ integrand du over P(row ≠ 0), and a bound on its relative error."""
    values = []
    for rule, skip in zip(range(len(sums.p_row)), (1, 2, 1), strict=False):
        body = integrand(*sums.channels[:, rule]) * np.exp(sums.log_phi[rule])
        values.append(float(body[::skip].sum()) * STEP * skip / sums.p_row[rule])
    fine, *others = values
    gap = sum(abs(fine - other) for other in others)
    return fine, (gap / fine if fine > 0 else math.inf) + sums.error + 100 * TAIL


def _lengths(length: Any, one: Any) -> tuple[np.ndarray, list[np.ndarray]]:
    """`one` at (n, longest n) for every n: all n, and its results, each in the shape of n."""
    n = LENGTH.check(length)
    if not n.size:
        raise InputError("length", length, "give at least one")
    longest = float(n.max(initial=1.0))
    with np.errstate(over="ignore", invalid="ignore"):  # far out in the tails, where nothing falls
        rows = [one(int(m), longest) for m in n.flat]
    found = np.array(rows, dtype=np.float64).reshape(n.size, -1)
    return n, [column.reshape(n.shape) for column in found.T]


def n_eff(kernel: str | Kernel, law: RowLaw, length: Any) -> FiniteLength:
    """Effective number of attended tokens E[(Σ|a|)²/Σa²] of rows of a row law, a_j = w_j f(s_j).

    ∫₀^∞ [Σ m2_j/φ_j + (Σ m1_j/φ_j)² − Σ (m1_j/φ_j)²] Πφ_j dt, over P(row ≠ 0). Units are no tokens
    and do not enter; S_rms = √(n_eff/n) counts tokens out of sight in n.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: the row law.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        The law at each length, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """

    def one(n: int, longest: float) -> tuple[float, ...]:
        row = _relative(token_classes.row(kernel, law, n), tokens_only=True)
        sums = transforms.sums(
            row,
            2,
            (0.5, 1.0),
            [
                (lambda m1, m2: m2, row.token),
                (lambda m1, m2: m1, row.token),
                (lambda m1, m2: m1 * m1, row.token),
            ],
            longest,
        )
        scale = np.exp(sums.top)
        value, error = _bounded(sums, lambda s2, s1, s11: s2 + scale * (s1 * s1 - s11))
        if row.token.sum() == 1:  # one token has all the weight there is, whatever it is
            value, error = 1.0, 0.0
        value = min(max(value, 1.0), float(row.token.sum()))  # rounding
        return value, math.sqrt(value / n), float(sums.p_row[0] * scale), error

    n, columns = _lengths(length, one)
    return FiniteLength(n, *columns)


def row_sparsity(kernel: str | Kernel, law: RowLaw, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean sparsity E S_n, S_n = ‖a‖₁/(√n‖a‖₂), of rows of a row law that are not all zero.

    ∫₀^∞ t^(−1/2) Σ m1_j/φ_j Πφ_j dt / √(πn), over P(row ≠ 0). Units are no tokens and do not enter;
    tokens out of sight count in n.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: the row law.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        E S_n in [1/√n, 1] and a bound on its relative error, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """

    def one(n: int, longest: float) -> tuple[float, float]:
        row = _relative(token_classes.row(kernel, law, n), tokens_only=True)
        seen = float(row.token.sum())
        if seen == 1:  # one token has all the weight there is, whatever it is
            return n**-0.5, 0.0
        first = [(lambda m1: m1, row.token)]
        sums = transforms.sums(row, 2, (0.5,), first, longest, reach=SLOW)
        value, error = _bounded(sums, lambda s1: s1)
        value /= math.sqrt(math.pi * n)
        return min(max(value, n**-0.5), math.sqrt(seen / n)), error

    _, (value, error) = _lengths(length, one)
    return value, error


def participation(kernel: str | Kernel, law: RowLaw, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean participation ratio E Y₂ = E Σp_j², p_j = |a_j|/(Σ|a| + units), of rows of a row law.

    Σ_j ∫₀^∞ t E[a_j² e^(−t|a_j|)]/φ_j Πφ dt. The sum runs over tokens, the product over units too.
    Without units it is over P(row ≠ 0).

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: the row law.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        E Y₂ and a bound on its relative error, in the shape of `length`.

    Raises:
        InputError: an unknown kernel, or a value outside its domain.
    """

    def one(n: int, longest: float) -> tuple[float, float]:
        row = _relative(token_classes.row(kernel, law, n), tokens_only=False)
        sums = transforms.sums(row, 1, (2.0,), [(lambda m2: m2, row.token)], longest)
        return _bounded(sums, lambda m2: m2)

    _, (value, error) = _lengths(length, one)
    return value, error


def sink_mass(kernel: str | Kernel, law: RowLaw, length: Any) -> tuple[np.ndarray, np.ndarray]:
    """Mean share E[Σ_sinks |a_j| / (Σ|a| + units)] of the sinks: units and sink tokens.

    ∫₀^∞ Σ_sinks E[|a_j| e^(−t|a_j|)]/φ_j Πφ dt, for one unit of logit b beside n tokens
    ∫₀^∞ e^b e^(−t e^b) φ(t)^n dt. Without units it is over P(row ≠ 0).

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: a row law with a `Unit` or a `Sink`.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Returns:
        The mass in [0, 1] and a bound on its relative error, in the shape of `length`.

    Raises:
        InputError: no sink, an unknown kernel, or a value outside its domain.
    """

    def one(n: int, longest: float) -> tuple[float, float]:
        return _shares(kernel, law, n, longest)[0]

    _, (value, error) = _lengths(length, one)
    return np.minimum(value, 1.0), error


def _shares(
    kernel: str | Kernel, law: RowLaw, n: int, longest: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean share of the sinks and of all others, each with a bound on its relative error."""
    row = _relative(token_classes.row(kernel, law, n), tokens_only=False)
    if not row.sink.any():
        raise InputError("law", law, "has no sink in sight; add a Unit or a Sink")
    who = [(lambda m: m, row.sink), (lambda m: m, row.count - row.sink)]
    sums = transforms.sums(row, 1, (1.0,), who, longest)
    return _bounded(sums, lambda sinks, _: sinks), _bounded(sums, lambda _, others: others)


def sink_logit(mass: float, law: RowLaw, length: Any, kernel: str | Kernel = "exp") -> np.ndarray:
    """The logit b of a unit that takes a given mean mass: it grows like ln n + γ²/2 for exp.

    Args:
        mass: the wanted mean mass, in (0, 1).
        law: the row law that the unit is added to; other units take their share of the mass.
        length: row lengths n, whole numbers ≥ 1, any shape.
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.

    Returns:
        b, in the shape of `length`, to about 1e−12: the odds of the mass are solved for.

    Raises:
        InputError: a mass outside (0, 1) or out of reach, or as in `sink_mass`.
    """
    if not (isinstance(mass, (int, float)) and 0 < mass < 1):
        raise InputError("mass", mass, "must be between 0 and 1")
    odds = math.log(mass) - math.log1p(-mass)

    def one(n: int, longest: float) -> float:
        def excess(b: float) -> float:
            (sinks, _), (others, _) = _shares(kernel, law.then(Unit(b)), n, longest)
            with np.errstate(divide="ignore"):
                return float(np.log(sinks) - np.log(others)) - odds

        first = _relative_scale(kernel, law, n) + odds
        low, high, step = first, first, 1.0
        while excess(low) > 0:
            low, step = low - step, 2 * step
            if step > _FARTHEST:  # all-zero rows and other sinks leave less than that
                fix = "more than that goes to sinks at every logit looked at; ask for more"
                raise InputError("mass", mass, fix)
        step = 1.0
        while not excess(high) >= 0:
            high, step = high + step, 2 * step
            if step > _FARTHEST:
                raise InputError("mass", mass, "is out of reach in float64; ask for less")
        if low == high:
            return low
        root: Any = brentq(excess, low, high, xtol=1e-13)
        return float(root)

    _, (value,) = _lengths(length, one)
    return value


def _moments(row: Row) -> tuple[float, float, float]:
    """Log Σ w E|f|, log Σ w² E f² over tokens, and the error of log S from them."""
    bounds = []

    def logs(law: token_classes.Class) -> np.ndarray:
        kernel, beta, gamma, dim = law
        found = [sphere.log_moment(kernel, p, beta, gamma, dim) for p in (1, 2)]
        bounds.append(found[0][1] + found[1][1])
        return np.array([value for value, _ in found])

    values, off = token_classes.interpolated(row.classes, logs)
    own = row.token > 0
    first, second = (
        float(np.logaddexp.reduce(log + np.log(row.token[own])))
        for log in (values[row.member[own]] + np.outer(row.log_w[own], [1, 2])).T
    )
    return first, second, max(bounds) + 2 * off + 8 * EPS * (1 + float(np.abs(row.log_w).max()))


def _relative_scale(kernel: str | Kernel, law: RowLaw, n: int) -> float:
    """Log of the tokens' mean total weight: where a sink begins to matter."""
    row = token_classes.row(kernel, law, n)
    return _moments(row)[0]


def limit(kernel: str | Kernel, law: RowLaw, length: Any) -> Evaluation:
    """Limit form S = Σ w_j E|f_j| / √(n Σ w_j² E f_j²) of a row law, over its n tokens.

    What S_rms tends to where |a| and a² average themselves. Units are no tokens and do not enter.

    Args:
        kernel: a built-in kernel's name, or any `Kernel` of Law.SCORE.
        law: the row law.
        length: row lengths n, whole numbers ≥ 1, any shape.

    Raises:
        InputError: an unknown kernel, an infinite moment, or a value outside its domain.
    """

    def one(n: int, longest: float) -> tuple[float, float]:
        row = token_classes.row(kernel, law, n)
        first, second, error = _moments(_relative(row, tokens_only=True))
        return first - 0.5 * (second + math.log(n)), error

    _, (log_S, error) = _lengths(length, one)
    return Evaluation.from_log(log_S, "limit form", error)
