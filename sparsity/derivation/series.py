"""Series in a small variable y → 0⁺ with exact coefficients, cut at a given order."""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import sympy
from sympy import Expr, S, factorial, factorial2

y = sympy.Symbol("y", positive=True)
v = sympy.Symbol("v")  # the argument of a function that `taylor` expands
Series = dict[int, Expr]  # power of y -> coefficient, exact below the order it was cut at


class Undecided(Exception):
    """A sign or a cancellation could not be settled: the limit is left out."""


def laurent(expression: Expr) -> Series:
    """An expression that is a finite sum of integer powers of y."""
    found: Series = {}
    for term in sympy.Add.make_args(sympy.expand(expression)):
        if term == 0:
            continue
        coefficient, rest = term.as_independent(y)
        power = rest.as_base_exp()[1] if rest != 1 else S.Zero
        if not power.is_Integer or (rest != 1 and rest.as_base_exp()[0] != y):
            raise Undecided(f"{rest} is not a power of {y}")
        found[int(power)] = found.get(int(power), S.Zero) + coefficient
    return {p: c for p, c in found.items() if c != 0}


def tidy(coefficient: Expr) -> Expr:
    """A form in which what cancels is 0, also between fractions in β and γ."""
    expanded = sympy.expand(coefficient)
    if not any(power.base.has(sympy.Add) for power in expanded.atoms(sympy.Pow)):
        return expanded  # no denominator is a sum
    if not expanded.is_Add:
        return expanded
    joined = sympy.together(expanded)
    if any(f.as_base_exp()[0].is_Add for f in sympy.Mul.make_args(sympy.denom(joined))):
        return sympy.expand(sympy.cancel(joined))
    return expanded


def times(a: Series, b: Series, order: int) -> Series:
    """The product below y^order."""
    terms: dict[int, list[Expr]] = {}
    for p, c in a.items():
        for r, e in b.items():
            if p + r < order:
                terms.setdefault(p + r, []).append(sympy.expand(c * e))
    found = {p: sympy.Add(*each) for p, each in terms.items()}
    return {p: c for p, c in found.items() if c != 0}


def compose(coefficients: list[Expr], small: Series, order: int) -> Series:
    """Σ_m coefficients[m]·small^m, for a series with positive powers only."""
    total: Series = {}
    for c in reversed(coefficients):  # Horner
        total = times(total, small, order)
        total[0] = sympy.expand(total.get(0, S.Zero) + c)
    return {p: c for p, c in total.items() if c != 0}


def taylor(function: Expr, at: Expr, small: Series, order: int) -> Series:
    """function(v) of v = at + small, by its Taylor series."""
    terms, derivative = [], function
    for m in range(order if small else 1):
        terms.append(derivative.subs(v, at) / factorial(m))
        derivative = sympy.diff(derivative, v)
    return compose(terms, small, order)


def erfc_series(w: Series, order: int) -> Series:
    """√π·e^(w²)·erfc(w) = Σ (−1)^m (2m−1)!!/2^m w^(−2m−1), for a w that grows."""
    lowest = min(w)
    head = sympy.factor(w[lowest])
    small = {p - lowest: c / head for p, c in w.items() if p != lowest}
    total: Series = {}
    m = 0
    while -lowest * (2 * m + 1) < order:
        power = 2 * m + 1
        binomials = [sympy.binomial(-power, k) for k in range(order if small else 1)]
        inverse = compose(binomials, small, order)  # (1 + small)^(−power)
        scale = (-1) ** m * factorial2(2 * m - 1) / S(2) ** m / head**power
        for p, c in times({-lowest * power: scale}, inverse, order).items():
            total[p] = sympy.expand(total.get(p, S.Zero) + c)
        m += 1
    return {p: c for p, c in total.items() if c != 0}
