"""Moments E|f(s)|^p of a score s ~ N(β, γ²), exactly.

|f| is split at its kinks into sums Σ c·s^k·e^(as + bs²), one per interval, and these exponential
polynomials are integrated against the density of s:

    f ─> split: Abs, Max, Piecewise … resolved between their zeros ─> Piece, … ─> moment ─> Moment
"""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import sympy
from sympy import (
    Abs,
    Expr,
    Heaviside,
    Max,
    Min,
    Piecewise,
    S,
    binomial,
    erf,
    erfc,
    exp,
    oo,
    pi,
    sign,
    sqrt,
)
from sympy.core.relational import Relational

from sparsity.errors import NoClosedForm
from sparsity.kernels.symbols import beta, gamma, s

SWITCHES = (Abs, sign, Heaviside, Max, Min, Piecewise)  # functions that have kinks
_SPLITTING, _EXPANDING = "splitting |f| at its kinks", "expanding f in terms s^k·e^(as + bs²)"
_MAX_DEGREE = 32  # of an expansion, so that no input can stall it
_MAX_PIECES = 64
_t = sympy.Symbol("t", real=True)
_density = exp(-(_t**2) / 2)

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

    for power in expression.atoms(sympy.Pow):
        if power.exp.is_Integer and power.base.is_Add and abs(int(power.exp)) > _MAX_DEGREE:
            raise NoClosedForm(_EXPANDING, f"{power} has a degree above {_MAX_DEGREE}")
    hyperbolic = expression.atoms(sympy.sinh, sympy.cosh)
    plain = expression.xreplace({h: h.rewrite(sympy.exp) for h in hyperbolic})
    found: ExpPoly = {}
    for term in sympy.Add.make_args(sympy.expand(plain)):
        coefficient, curve, rate, degree = S.One, S.Zero, S.Zero, 0
        for factor in sympy.Mul.make_args(term):
            base, exponent = factor.as_base_exp()
            if not factor.has(s):
                coefficient *= factor
            elif base == s and exponent.is_Integer and 0 <= exponent <= _MAX_DEGREE:
                degree += int(exponent)
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
        found[key] = sympy.expand(found.get(key, S.Zero) + coefficient)
    return {key: c for key, c in found.items() if c != 0}


def split(f: Expr) -> tuple[Piece, ...]:
    """Return |f| as smooth expressions on consecutive intervals of the real line.

    Abs, Max, Min, sign, Heaviside and Piecewise are resolved one at a time, innermost first:
    where the quantity they switch on changes sign, the interval is cut.

    Args:
        f: an expression of the score s.

    Raises:
        NoClosedForm: a kink is the zero of something that cannot be solved for exactly.
    """
    pending = [Piece(-oo, oo, sympy.nsimplify(f, rational=True))]
    done: list[Piece] = []
    while pending:
        if len(pending) + len(done) > _MAX_PIECES:
            raise NoClosedForm(_SPLITTING, f"f has more than {_MAX_PIECES} pieces")
        piece = pending.pop()
        switch = _innermost_switch(piece.expression)
        if switch is None:
            done.extend(_absolute(piece))
            continue
        for low, high in _cut(piece.low, piece.high, switching_quantities(switch)):
            resolved = piece.expression.xreplace({switch: _resolve(switch, low, high)})
            pending.append(Piece(low, high, resolved))
    done.sort(key=lambda piece: float(piece.low))
    return tuple(done)


def _absolute(piece: Piece) -> list[Piece]:
    """Cut a piece where f changes sign, and take ±f."""
    found = []
    for low, high in _cut(piece.low, piece.high, [piece.expression]):
        negative = sign_at(piece.expression, low, high) < 0
        found.append(Piece(low, high, -piece.expression if negative else piece.expression))
    return found


def _innermost_switch(expression: Expr) -> Expr | None:
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
    """Return a rational number inside the interval."""
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
    """Return all real zeros in the interval, exactly, and perhaps some outside it."""
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
    if (
        all(degree % 2 == 0 for *_, degree in terms)
        and len({sympy.sign(c) for c in terms.values()}) == 1
    ):
        return [S.Zero] if all(degree for *_, degree in terms) else []
    raise NoClosedForm(
        _SPLITTING, f"the zeros of {quantity} on ({low}, {high}) cannot be solved for"
    )


def _real_roots(polynomial: Expr) -> list[Expr]:
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


@dataclass(frozen=True)
class Term:
    """One term P(β, γ)·e^Q·erf(L) of a moment; L is None where there is no erf."""

    coefficient: Expr
    exponent: Expr
    erf_argument: Expr | None


@dataclass(frozen=True)
class Moment:
    """E|f|^p as a sum of terms with distinct (Q, L)."""

    terms: tuple[Term, ...]

    def expression(self) -> Expr:
        """Return Σ e^Q (A + B·erf(L)), with erfc where A = −B: no removable singularity."""
        total = S.Zero
        for exponent in dict.fromkeys(term.exponent for term in self.terms):
            group = [term for term in self.terms if term.exponent == exponent]
            plain = sum((x.coefficient for x in group if x.erf_argument is None), S.Zero)
            inner = S.Zero
            for x in (x for x in group if x.erf_argument is not None):
                if plain == x.coefficient:
                    inner, plain = inner + sympy.factor(plain) * (1 + erf(x.erf_argument)), S.Zero
                elif plain == -x.coefficient:
                    inner, plain = inner + sympy.factor(plain) * erfc(x.erf_argument), S.Zero
                else:
                    inner += sympy.factor(x.coefficient) * erf(x.erf_argument)
            whole = exponent.is_polynomial(beta, gamma)
            total += (inner + sympy.factor(plain)) * exp(
                exponent if whole else sympy.factor(exponent)
            )
        return total


@functools.lru_cache(maxsize=256)
def _antiderivative(k: int) -> tuple[Expr, Expr]:
    """Return R(t) and c with ∫ t^k e^(−t²/2) dt = R(t) e^(−t²/2) + c·erf(t/√2), proven.

    k = 0 and 1 are integrated by SymPy, the rest by parts (SymPy's own integrals of higher k
    agree but take minutes); each is differentiated back before it is used.
    """
    if k < 2:
        found = sympy.integrate(_t**k * _density, _t)
    else:
        polynomial, c = _antiderivative(k - 2)
        found = -(_t ** (k - 1)) * _density
        found += (k - 1) * (polynomial * _density + c * erf(_t / sqrt(2)))
    if sympy.expand(sympy.diff(found, _t) - _t**k * _density) != 0:
        raise NoClosedForm("integration", f"antiderivative of t^{k}·e^(−t²/2) not proven")
    found = sympy.expand(found)
    polynomial, c = found.coeff(_density), found.coeff(erf(_t / sqrt(2)))
    if sympy.expand(found - polynomial * _density - c * erf(_t / sqrt(2))) != 0:
        raise NoClosedForm("integration", f"unexpected antiderivative {found}")
    return polynomial, c


def moment(pieces: tuple[Piece, ...], p: int) -> Moment:
    """Return E|f(β + γt)|^p over t ~ N(0, 1).

    On each piece |f|^p = Σ c·s^k·e^(as + bs²). With s = β + γt, v = 1 − 2bγ², t₀ = γ(a + 2bβ)/v and
    t = t₀ + u/√v (completing the square)
        E s^k e^(as + bs²) = e^(aβ + bβ² + vt₀²/2) E (β + γt₀ + γu/√v)^k / √v,
    expanded in powers of u and integrated between the piece's edges.

    Args:
        pieces: |f| on consecutive intervals, from `split`.
        p: 1 or 2.

    Raises:
        NoClosedForm: a piece is not of that form, or grows like e^(bs²) with b > 0.
    """
    found: dict[tuple[Expr, Expr | None], list[Expr]] = {}

    def add(coefficient: Expr, exponent: Expr, argument: Expr | None) -> None:
        if argument is not None and erf(argument).is_Mul:  # erf(−L) = −erf(L), as SymPy writes it
            coefficient, argument = -coefficient, sympy.expand(-argument)
        found.setdefault((sympy.expand(exponent), argument), []).append(coefficient)

    for piece in pieces:
        for (b, a, k), c in exponential_polynomial(piece.expression**p).items():
            if not b.is_nonpositive:
                raise NoClosedForm("integration", f"e^({b}·s²) has a moment for small γ only")
            v = 1 - 2 * b * gamma**2
            middle = gamma * (a + 2 * b * beta) / v
            shift = a * beta + b * beta**2 + v * middle**2 / 2
            shift = sympy.cancel(shift) if b else shift
            ends = [  # side, u; None for u = ±∞
                (side, sympy.expand(((edge - beta) / gamma - middle) * sqrt(v)))
                if edge.is_finite
                else (side, None)
                for edge, side in ((piece.high, 1), (piece.low, -1))
            ]
            for m in range(k + 1):
                weight = c * binomial(k, m) * (beta + gamma * middle) ** (k - m)
                weight *= (gamma / sqrt(v)) ** m / sqrt(2 * pi * v)
                boundary, erf_weight = _antiderivative(m)
                for side, u in ends:
                    if u is None:  # e^(−u²/2) vanishes there, side·erf is 1
                        add(weight * erf_weight, shift, None)
                        continue
                    add(side * weight * erf_weight, shift, sympy.expand(u / sqrt(2)))
                    add(side * weight * boundary.subs(_t, u), shift - u**2 / 2, None)
    totals = {key: sympy.expand(sympy.Add(*each)) for key, each in found.items()}
    terms = (Term(c, exponent, argument) for (exponent, argument), c in totals.items() if c != 0)
    return Moment(tuple(sorted(terms, key=_order)))


def _order(term: Term) -> tuple:
    """Sort terms that stay at γ → 0 first, boundary terms last, erf after its plain partner."""
    argument = term.erf_argument
    lowest = -sympy.degree(sympy.denom(sympy.together(term.exponent)), gamma)
    return (-lowest, str(term.exponent), argument is not None, str(argument))
