"""|f| as exponential polynomials Σ c·s^k·e^(as + bs²) on consecutive intervals of the score.

    f ─> split: Abs, Max, Min, Piecewise … resolved between their zeros ─> Piece, …

A kink that cannot be placed exactly is refused: a moment over a piece with a rounded edge would
look like a closed form, and not be one.
"""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
from dataclasses import dataclass

import sympy
from sympy import Abs, Expr, Heaviside, Max, Min, Piecewise, S, oo, sign
from sympy.core.relational import Relational

from sparsity.errors import NoClosedForm
from sparsity.kernels.symbols import s

SWITCHES = (Abs, sign, Heaviside, Max, Min, Piecewise)  # functions that have kinks
_SPLITTING, _EXPANDING = "splitting |f| at its kinks", "expanding f in terms s^k·e^(as + bs²)"
# Both refuse what a user may type and SymPy would expand for very long. Of the kernels that ship,
# none has more than 2 pieces, or a square of a degree above 8.
_MAX_DEGREE = 32
_MAX_PIECES = 64

# (curve b, rate a, degree k) -> coefficient c
ExpPoly = dict[tuple[Expr, Expr, int], Expr]


@dataclass(frozen=True)
class Piece:
    """One interval of the score on which |f| is a single smooth expression."""

    low: Expr
    high: Expr
    expression: Expr


def exponential_polynomial(expression: Expr) -> ExpPoly:
    """Return the terms of Σ c·s^k·e^(as + bs²) by (b, a, k); all are real, and k ≥ 0 is whole.

    Raises:
        NoClosedForm: the expression is not of that form, or too large to expand.
    """

    def refuse(what: Expr) -> NoClosedForm:
        return NoClosedForm(_EXPANDING, f"{what} is not a product of powers of s and exponentials")

    # Refused before `expand`, which would write out all terms of (1 + s)^1000 first.
    for power in expression.atoms(sympy.Pow):
        if power.exp.is_Integer and power.base.is_Add and abs(int(power.exp)) > _MAX_DEGREE:
            raise NoClosedForm(_EXPANDING, f"{power} has a degree above {_MAX_DEGREE}")
    hyperbolic = expression.atoms(sympy.sinh, sympy.cosh)
    plain = expression.xreplace({h: h.rewrite(sympy.exp) for h in hyperbolic})
    terms: ExpPoly = {}
    for term in sympy.Add.make_args(sympy.expand(plain)):
        coefficient, curve, rate, degree = S.One, S.Zero, S.Zero, 0
        for factor in sympy.Mul.make_args(term):
            base, exponent = factor.as_base_exp()
            if not factor.has(s):
                coefficient *= factor
            elif base == s and exponent.is_Integer and 0 <= exponent <= _MAX_DEGREE:
                degree += int(exponent)
            # a^(p₀ + p₁s + p₂s²) for any constant a > 0, such as 2^s, is an exponential in ln a.
            elif not base.has(s) and base.is_positive and exponent.is_polynomial(s):
                quadratic = sympy.Poly(exponent, s)
                if quadratic.degree() > 2:
                    raise refuse(factor)
                coefficient *= base ** quadratic.nth(0)
                rate += quadratic.nth(1) * sympy.log(base)
                curve += quadratic.nth(2) * sympy.log(base)
            else:
                raise refuse(factor)
        if not (coefficient.is_real and rate.is_real and curve.is_real):
            raise refuse(term)
        key = (sympy.expand(curve), sympy.expand(rate), degree)
        terms[key] = sympy.expand(terms.get(key, S.Zero) + coefficient)
    return {key: c for key, c in terms.items() if c != 0}


def split(f: Expr) -> tuple[Piece, ...]:
    """Return |f| as smooth expressions on consecutive intervals of the real line.

    Abs, Max, Min, sign, Heaviside and Piecewise are resolved one at a time, innermost first:
    where the quantity they switch on changes sign, the interval is cut.

    Args:
        f: an expression of the score s.

    Raises:
        NoClosedForm: a kink is the zero of something that cannot be solved for exactly.
    """
    # Floats become rationals: with 0.1 as a float, coefficients that cancel would not be 0.
    pending = [Piece(-oo, oo, sympy.nsimplify(f, rational=True))]
    done: list[Piece] = []
    while pending:
        if len(pending) + len(done) > _MAX_PIECES:
            raise NoClosedForm(_SPLITTING, f"f has more than {_MAX_PIECES} pieces")
        piece = pending.pop()
        switch = _innermost_switch(piece.expression)
        if switch is None:
            for low, high in _cut(piece.low, piece.high, [piece.expression]):
                negative = sign_at(piece.expression, low, high) < 0
                done.append(Piece(low, high, -piece.expression if negative else piece.expression))
            continue
        for low, high in _cut(piece.low, piece.high, switching_quantities(switch)):
            resolved = piece.expression.xreplace({switch: _resolve(switch, low, high)})
            pending.append(Piece(low, high, resolved))
    done.sort(key=lambda piece: float(piece.low))
    return tuple(done)


def _innermost_switch(expression: Expr) -> Expr | None:
    """Return a switch that has none inside: what it switches on is smooth there, and solvable."""
    for atom in sorted(expression.atoms(*SWITCHES), key=sympy.default_sort_key):
        if not any(argument.atoms(*SWITCHES) for argument in atom.args):
            return atom
    return None


def switching_quantities(switch: Expr) -> list[Expr]:
    """Return the quantities whose signs decide what the switch is."""
    if isinstance(switch, Piecewise):
        return [r.lhs - r.rhs for r in switch.atoms(Relational)]
    if isinstance(switch, (Max, Min)):
        return [a - b for m, a in enumerate(switch.args) for b in switch.args[:m]]
    return [switch.args[0]]


def _resolve(switch: Expr, low: Expr, high: Expr) -> Expr:
    """Return what the switch is on an interval where nothing that it switches on changes sign."""
    if isinstance(switch, Piecewise):
        truth = {r: _holds(r, low, high) for r in switch.atoms(Relational)}
        return switch.xreplace(truth)
    if isinstance(switch, (Max, Min)):
        best = switch.args[0]
        for other in switch.args[1:]:
            above = sign_at(other - best, low, high) > 0
            best = other if above == isinstance(switch, Max) else best
        return best
    positive = sign_at(switch.args[0], low, high)
    if isinstance(switch, Abs):
        return switch.args[0] if positive >= 0 else -switch.args[0]
    return S(positive) if isinstance(switch, sign) else S(int(positive > 0))


def _holds(relation: Relational, low: Expr, high: Expr) -> sympy.logic.boolalg.BooleanAtom:
    value = sign_at(relation.lhs - relation.rhs, low, high)
    return S(bool(relation.func(S(value), S.Zero)))


def _sample(low: Expr, high: Expr) -> Expr:
    """Return a rational number inside the interval.

    Rational, so that the sign there is one of an exact expression. On the whole line it is not 0,
    where much vanishes without changing sign.
    """
    if not low.is_finite and not high.is_finite:
        return sympy.Rational(1, 3)
    if not low.is_finite:
        return sympy.floor(high) - 1
    if not high.is_finite:
        return sympy.ceiling(low) + 1
    return sympy.nsimplify(((low + high) / 2).evalf(30), rational=True)


def sign_at(quantity: Expr, low: Expr, high: Expr) -> int:
    """Return the sign of a quantity that does not change sign on the interval."""
    if sympy.expand(quantity) == 0:
        return 0
    value = quantity.subs(s, _sample(low, high)).evalf(30)
    if not value.is_Number or not value.is_finite:
        raise NoClosedForm(_SPLITTING, f"{quantity} has no real value inside ({low}, {high})")
    return int(sympy.sign(value))


def _cut(low: Expr, high: Expr, quantities: list[Expr]) -> list[tuple[Expr, Expr]]:
    """Cut the interval at every zero of the quantities."""
    inside = {
        zero for quantity in quantities for zero in zeros(quantity, low, high) if low < zero < high
    }
    edges = [low, *sorted(inside), high]
    return list(itertools.pairwise(edges))


def zeros(quantity: Expr, low: Expr, high: Expr) -> list[Expr]:
    """Return all real zeros in the interval, exactly, and perhaps some outside it.

    In the order in which they are tried: a single term; a common exponential times a polynomial;
    exponentials of commensurable rates without powers of s, a polynomial in e^(s·unit/common);
    terms of one sign, which have no zero. Others, such as s = e^(−s), are refused.
    """
    terms = exponential_polynomial(quantity)
    curves, rates = {curve for curve, _, _ in terms}, {rate for _, rate, _ in terms}
    if len(terms) <= 1:
        return [S.Zero] if any(degree for *_, degree in terms) else []
    if len(curves) == len(rates) == 1:
        polynomial = sum(c * s**degree for (*_, degree), c in terms.items())
        return _real_roots(polynomial)
    if len(curves) == 1 and all(degree == 0 for *_, degree in terms):
        unit = min((abs(rate) for rate in rates if rate != 0), key=lambda r: r.evalf())
        ratios = {rate: sympy.nsimplify(rate / unit) for rate in rates}
        if all(r.is_Rational for r in ratios.values()):
            common = sympy.ilcm(1, *(r.q for r in ratios.values()))
            lowest = min(r * common for r in ratios.values())
            polynomial = sum(
                c * s ** (ratios[a] * common - lowest) for (_, a, _), c in terms.items()
            )
            roots = [r for r in _real_roots(polynomial) if r.is_positive]
            return [sympy.log(root) * common / unit for root in roots]
    if low >= 0 or high <= 0:  # every s^k has one sign there: compare the signs of the terms
        side = 1 if low >= 0 else -1
        signs = {sympy.sign(c) * side**degree for (*_, degree), c in terms.items()}
        if signs in ({S.One}, {S.NegativeOne}):
            return []
    # Even powers with coefficients of one sign: all terms have that sign on either side of 0.
    if (
        all(degree % 2 == 0 for *_, degree in terms)
        and len({sympy.sign(c) for c in terms.values()}) == 1
    ):
        return [S.Zero] if all(degree for *_, degree in terms) else []
    raise NoClosedForm(
        _SPLITTING, f"the zeros of {quantity} on ({low}, {high}) cannot be solved for"
    )


def _real_roots(polynomial: Expr) -> list[Expr]:
    """Return the real roots of a polynomial in s, each once.

    Degrees 1 and 2 are solved here: their coefficients may hold logarithms and roots, which
    `sympy.real_roots` refuses.
    """
    parts = sympy.Poly(polynomial, s)
    if parts.degree() == 1:
        return [sympy.expand(-parts.nth(0) / parts.nth(1))]
    if parts.degree() == 2:
        half = -parts.nth(1) / (2 * parts.nth(2))
        square = sympy.expand(half**2 - parts.nth(0) / parts.nth(2))
        if square.is_negative:
            return []
        if square.is_nonnegative:
            roots = [half - sympy.sqrt(square), half + sympy.sqrt(square)]
            return list(dict.fromkeys(map(sympy.expand, roots)))
    try:
        return list(dict.fromkeys(sympy.real_roots(parts)))
    except (NotImplementedError, sympy.PolynomialError) as error:
        raise NoClosedForm(_SPLITTING, f"the real roots of {polynomial}: {error}") from None
