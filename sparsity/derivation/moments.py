"""Moments E|f(s)|^p of a score s ~ N(β, γ²), exactly.

The exponential polynomials that |f| is made of (`pieces`) are integrated against the density of s,
piece by piece:

    Piece, … ─> moment ─> Moment, a sum of terms P(β, γ)·e^Q·erf(L)
"""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
from dataclasses import dataclass

import sympy
from sympy import Expr, S, binomial, erf, erfc, exp, pi, sqrt

from sparsity.derivation.pieces import Piece, exponential_polynomial
from sparsity.errors import NoClosedForm
from sparsity.kernels.symbols import beta, gamma

_t = sympy.Symbol("t", real=True)
_density = exp(-(_t**2) / 2)


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
        """Return Σ e^Q (A + B·erf(L)), with erfc where A = −B.

        1 − erf(L) cancels for large L where it is evaluated in floating point; erfc(L) does not.
        """
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
        antiderivative = sympy.integrate(_t**k * _density, _t)
    else:
        polynomial, c = _antiderivative(k - 2)
        antiderivative = -(_t ** (k - 1)) * _density
        antiderivative += (k - 1) * (polynomial * _density + c * erf(_t / sqrt(2)))
    if sympy.expand(sympy.diff(antiderivative, _t) - _t**k * _density) != 0:
        raise NoClosedForm("integration", f"antiderivative of t^{k}·e^(−t²/2) not proven")
    antiderivative = sympy.expand(antiderivative)
    polynomial, c = antiderivative.coeff(_density), antiderivative.coeff(erf(_t / sqrt(2)))
    if sympy.expand(antiderivative - polynomial * _density - c * erf(_t / sqrt(2))) != 0:
        raise NoClosedForm("integration", f"unexpected antiderivative {antiderivative}")
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
    collected: dict[tuple[Expr, Expr | None], list[Expr]] = {}

    # Terms of one (Q, L) are collected before they are added: what cancels between neighbouring
    # pieces, the boundary terms at a kink without a jump, must be exactly 0.
    def add(coefficient: Expr, exponent: Expr, argument: Expr | None) -> None:
        if argument is not None and erf(argument).is_Mul:  # erf(−L) = −erf(L), as SymPy writes it
            coefficient, argument = -coefficient, sympy.expand(-argument)
        collected.setdefault((sympy.expand(exponent), argument), []).append(coefficient)

    for piece in pieces:
        for (b, a, k), c in exponential_polynomial(piece.expression**p).items():
            if not b.is_nonpositive:  # v > 0 for γ < 1/√(2b) only
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
            for m in range(k + 1):  # the power of u in the binomial expansion
                weight = c * binomial(k, m) * (beta + gamma * middle) ** (k - m)
                weight *= (gamma / sqrt(v)) ** m / sqrt(2 * pi * v)
                boundary, erf_weight = _antiderivative(m)
                for side, u in ends:
                    if u is None:  # e^(−u²/2) vanishes there, side·erf is 1
                        add(weight * erf_weight, shift, None)
                        continue
                    add(side * weight * erf_weight, shift, sympy.expand(u / sqrt(2)))
                    add(side * weight * boundary.subs(_t, u), shift - u**2 / 2, None)
    totals = {key: sympy.expand(sympy.Add(*summands)) for key, summands in collected.items()}
    terms = (Term(c, exponent, argument) for (exponent, argument), c in totals.items() if c != 0)
    return Moment(tuple(sorted(terms, key=_order)))


def _order(term: Term) -> tuple:
    """Sort terms that stay at γ → 0 first, boundary terms last, erf after its plain partner."""
    argument = term.erf_argument
    lowest = -sympy.degree(sympy.denom(sympy.together(term.exponent)), gamma)
    return (-lowest, str(term.exponent), argument is not None, str(argument))
