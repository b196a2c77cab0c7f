"""Leading asymptotics of moments Σ P·e^Q·erf(L), by truncated series in a small variable y → 0⁺.

Each e^Q is split into its growing part (negative powers of y in Q), kept as it is, and a power
series; erf(L) of a large L is ±1 ∓ erfc|L|, expanded as e^(−L²) times the asymptotic series of
erfc. The terms then fall into groups, one per growing exponent, and within a group cancellation
is decided by exact coefficients: nothing is estimated numerically, and nothing can hang.
"""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Expr, Rational, S, erf, exp, factorial, factorial2, oo, pi, sqrt

from sparsity.derivation.moments import Moment
from sparsity.derivation.pieces import sign_at, zeros
from sparsity.errors import NoClosedForm
from sparsity.kernels.symbols import beta, s

y = sympy.Symbol("y", positive=True)
_v = sympy.Symbol("v")  # the argument of a function that `_taylor` expands
Series = dict[int, Expr]  # power of y -> coefficient, exact below the order it was cut at


class Undecided(Exception):
    """A sign or a cancellation could not be settled: the limit is left out."""


def _laurent(expression: Expr) -> Series:
    """Return the powers of an expression that is a finite sum of integer powers of y."""
    powers: Series = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        if term == 0:
            continue
        coefficient, rest = term.as_independent(y)
        power = rest.as_base_exp()[1] if rest != 1 else S.Zero
        if not power.is_Integer or (rest != 1 and rest.as_base_exp()[0] != y):
            raise Undecided(f"{rest} is not a power of {y}")
        powers[int(power)] = powers.get(int(power), S.Zero) + coefficient
    return {p: c for p, c in powers.items() if c != 0}


def _tidy(coefficient: Expr) -> Expr:
    """Return a form in which what cancels is 0, also between fractions in β and γ.

    `cancel` alone would do; it is dear, and needed only where a denominator is a sum.
    """
    expanded = sympy.expand(coefficient)
    if not any(power.base.has(sympy.Add) for power in expanded.atoms(sympy.Pow)):
        return expanded  # no denominator is a sum
    return sympy.expand(sympy.cancel(sympy.together(expanded)))


def _times(a: Series, b: Series, order: int) -> Series:
    """Return the product of two series below y^order."""
    terms: dict[int, list[Expr]] = {}
    for p, c in a.items():
        for r, e in b.items():
            if p + r < order:
                terms.setdefault(p + r, []).append(sympy.expand(c * e))
    product = {p: sympy.Add(*summands) for p, summands in terms.items()}
    return {p: c for p, c in product.items() if c != 0}


def _compose(coefficients: list[Expr], small: Series, order: int) -> Series:
    """Return Σ_m coefficients[m]·small^m, for a series with positive powers only."""
    total: Series = {}
    for c in reversed(coefficients):  # Horner
        total = _times(total, small, order)
        total[0] = sympy.expand(total.get(0, S.Zero) + c)
    return {p: c for p, c in total.items() if c != 0}


def _taylor(function: Expr, at: Expr, small: Series, order: int) -> Series:
    """Return function(v) of v = at + small, by its Taylor series."""
    terms, derivative = [], function
    for m in range(order if small else 1):
        terms.append(derivative.subs(_v, at) / factorial(m))
        derivative = sympy.diff(derivative, _v)
    return _compose(terms, small, order)


def _erfc_series(w: Series, order: int) -> Series:
    """Return √π·e^(w²)·erfc(w) = Σ (−1)^m (2m−1)!!/2^m w^(−2m−1), for a w that grows."""
    # w = head·y^lowest (1 + small), and each power of 1/w is a binomial series in `small`. The
    # series in m diverges; cut at y^order it is asymptotic, which is all that a limit needs.
    lowest = min(w)
    head = sympy.factor(w[lowest])
    small = {p - lowest: c / head for p, c in w.items() if p != lowest}
    total: Series = {}
    m = 0
    while -lowest * (2 * m + 1) < order:
        power = 2 * m + 1
        binomials = [sympy.binomial(-power, k) for k in range(order if small else 1)]
        inverse = _compose(binomials, small, order)  # (1 + small)^(−power)
        scale = (-1) ** m * factorial2(2 * m - 1) / S(2) ** m / head**power
        for p, c in _times({-lowest * power: scale}, inverse, order).items():
            total[p] = sympy.expand(total.get(p, S.Zero) + c)
        m += 1
    return {p: c for p, c in total.items() if c != 0}


@dataclass(frozen=True)
class Approach:
    """How β and γ move: their values in terms of y → 0⁺, and where a fixed β lies.

    Args:
        variable: the symbol that moves.
        point: where it goes.
        condition: on the other parameter, a SymPy Boolean.
        values: β and γ in terms of y (those not named stay as they are).
        back: y in terms of the variable.
        low, high: the open interval of a β that stays.
    """

    variable: Expr
    point: Expr
    condition: Any
    values: dict[Expr, Expr]
    back: Expr
    low: Expr = -oo
    high: Expr = oo

    def sign(self, quantity: Expr) -> int:
        """Return the sign of a quantity that is the same all over the regime.

        Raises:
            Undecided: it is not, or that cannot be shown.
        """
        result = 1
        for factor in sympy.Mul.make_args(sympy.factor(quantity)):
            base, exponent = factor.as_base_exp()
            if factor.is_zero or factor.is_positive or factor.is_negative:
                result *= 0 if factor.is_zero else 1 if factor.is_positive else -1
            elif base.free_symbols == {beta} and exponent.is_Integer:
                result *= self._sign_in_beta(base.subs(beta, s)) ** abs(int(exponent))
            else:
                raise Undecided(f"sign of {factor}")
        return result

    def restored(self, expression: Expr) -> Expr:
        """Write an expression in y in terms of the variable again, √y as 1/√(1/y)."""
        large = sympy.Dummy(positive=True)
        joined = sympy.powsimp(expression.subs(y, 1 / large).subs(large, 1 / self.back))
        return joined.replace(exp, lambda exponent: exp(sympy.factor(exponent)))

    def _sign_in_beta(self, quantity: Expr) -> int:
        # A sample decides only where there is no zero between the ends of the regime.
        try:
            if not any(self.low < cut < self.high for cut in zeros(quantity, self.low, self.high)):
                return sign_at(quantity, self.low, self.high)
        except NoClosedForm as error:
            raise Undecided(error.reason) from None
        raise Undecided(f"{quantity} changes sign")


def _groups(moment: Moment, regime: Approach, order: int) -> dict[Expr, tuple[Series, bool]]:
    """Return by growing exponent its series below y^order, and whether that is complete."""
    groups: dict[Expr, tuple[Series, bool]] = {}

    def add(prefactor: Series, exponent: Series, inner: Series | None, order_inner: int) -> None:
        growing = sum((c * y**p for p, c in exponent.items() if p < 0), S.Zero)
        small = {p: c for p, c in exponent.items() if p > 0}
        exact = inner is None and not small
        series = _taylor(exp(_v), exponent.get(0, S.Zero), small, order_inner)
        if inner is not None:
            series = _times(series, inner, order_inner)
        series = _times(prefactor, series, order)
        old, complete = groups.get(growing, ({}, True))
        keys = old.keys() | series.keys()
        merged = {p: _tidy(old.get(p, S.Zero) + series.get(p, S.Zero)) for p in keys}
        groups[growing] = {p: c for p, c in merged.items() if c != 0}, complete and exact

    for term in moment.terms:
        prefactor = _laurent(term.coefficient.subs(regime.values))
        if not prefactor:
            continue
        exponent = _laurent(term.exponent.subs(regime.values))
        room = order - min(prefactor)  # the prefactor may lower the powers
        if term.erf_argument is None:
            add(prefactor, exponent, None, room)
            continue
        argument = _laurent(term.erf_argument.subs(regime.values))
        lowest = min(argument, default=0)
        if lowest >= 0:
            small = {p: c for p, c in argument.items() if p > 0}
            inner = _taylor(erf(_v), argument.get(0, S.Zero), small, room)
            add(prefactor, exponent, inner, room)
            continue
        # erf(L) of a growing L is ±(1 − erfc|L|): the 1 stays in the group of e^Q, and erfc joins
        # that of e^(Q − L²), whose growing part is another.
        side = regime.sign(argument[lowest])
        size = {p: side * c for p, c in argument.items()}
        add({p: side * c for p, c in prefactor.items()}, exponent, None, room)
        square = _times(argument, argument, room + 2 * abs(lowest))  # L² begins at y^(2·lowest)
        lowered = {
            p: sympy.expand(exponent.get(p, S.Zero) - square.get(p, S.Zero))
            for p in exponent.keys() | square.keys()
        }
        tail = {p: -side * c / sqrt(pi) for p, c in prefactor.items()}
        add(tail, {p: c for p, c in lowered.items() if c != 0}, _erfc_series(size, room), room)
    return groups


def _dominant(moment: Moment, regime: Approach, order: int) -> tuple[Expr, Series]:
    """Return the largest group: its growing exponent and its series."""
    groups = _groups(moment, regime, order)
    # A group that cancels below y^order is dropped only if its series was complete: else it may
    # have a term beyond, and as the largest it would still decide.
    alive = {q: series for q, (series, complete) in groups.items() if series or not complete}
    best: Expr | None = None
    for exponent in alive:
        if best is None or _grows(exponent - best, regime):
            best = exponent
    if best is None or not alive[best]:
        raise Undecided("every term kept cancels")
    return best, alive[best]


def _grows(difference: Expr, regime: Approach) -> bool:
    """Return whether e^difference → ∞ as y → 0⁺: the lowest power of y decides."""
    powers = _laurent(difference)
    return bool(powers) and regime.sign(powers[min(powers)]) > 0


def ratio_asymptotics(m1: Moment, m2: Moment, regime: Approach) -> tuple[Expr, Expr]:
    """Return the limit of S = m₁/√m₂ and its leading asymptotic term.

    Returns:
        (limit, leading); where the limit is not 0, leading carries the first correction.

    Raises:
        Undecided: a sign or a cancellation could not be settled.
    """
    # A higher order costs more, and is needed only where the leading terms cancel.
    for order in (6, 12, 24):
        try:
            return _ratio(m1, m2, regime, order)
        except Undecided as error:
            last = error
    raise last


def _ratio(m1: Moment, m2: Moment, regime: Approach, order: int) -> tuple[Expr, Expr]:
    (q1, top), (q2, bottom) = _dominant(m1, regime, order), _dominant(m2, regime, order)
    p1, p2 = min(top), min(bottom)
    power, exponent = p1 - Rational(p2, 2), sympy.expand(q1 - q2 / 2)
    scale = sqrt(sympy.powsimp(sympy.factor(top[p1] ** 2 / bottom[p2])))
    if regime.sign(top[p1]) <= 0 or regime.sign(bottom[p2]) <= 0:
        raise Undecided("the leading term is not shown to be positive")
    if power < 0 if exponent == 0 else _grows(exponent, regime):
        raise Undecided("S cannot exceed 1")
    leading = scale * y**power * exp(exponent)
    if exponent != 0 or power > 0:
        return S.Zero, regime.restored(leading)
    known = order - max(p1, p2)  # relative order up to which both series are exact
    above = {p - p1: c / top[p1] for p, c in top.items()}
    below = {p - p2: c / bottom[p2] for p, c in bottom.items() if p != p2}
    for power in range(1, known):  # higher ones are dear, and the first is all that is wanted
        inverse_root = [sympy.binomial(-S.Half, m) for m in range(power + 1)]
        relative = _times(above, _compose(inverse_root, below, power + 1), power + 1)
        correction = sympy.factor(relative.get(power, S.Zero))
        if correction != 0:
            leading *= 1 + correction * y**power
            break
    return scale, regime.restored(leading)
