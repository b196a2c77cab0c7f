"""Kernels linear in random features, a = Σ q̃ᵢk̃ᵢ: S from the mean and covariance of k̃ alone."""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable

import sympy
from sympy import Expr, Idx, KroneckerDelta, Sum, oo, sqrt

from sparsity.derivation.derivation import Case, Derivation, Limit
from sparsity.errors import NoClosedForm
from sparsity.kernels import Kernel
from sparsity.kernels.symbols import Sigma, d, i, k, mu, q, ratio

_j = Idx("j")
_mean = sympy.Symbol("mu", positive=True)  # the common mean μ̃ of i.i.d. features

Moments = tuple[Expr, Expr, Expr]  # E|a|, variance of a, S


def derive_features(kernel: Kernel) -> Derivation:
    """Derive S of a = Σᵢ cᵢk̃ᵢ ≥ 0 by linearity of E: exact, nothing assumed of the law of k̃.

    With E k̃ᵢ = μ̃ᵢ and E k̃ᵢk̃ⱼ = Σ̃ᵢⱼ + μ̃ᵢμ̃ⱼ,
        E a = Σ cᵢμ̃ᵢ,   E a² = (E a)² + ΣΣ cᵢcⱼΣ̃ᵢⱼ.

    Returns:
        The derivation for i.i.d. features, in r = σ̃/μ̃ and the sums of q̃; its cases hold the
        general μ̃, Σ̃ and the query families.

    Raises:
        NoClosedForm: the weight is not a nonnegative sum over features, linear in k̃.
    """
    coefficient = _coefficient(kernel.weight)

    def at(index: Idx) -> Expr:
        return coefficient.xreplace({i: index, q[i]: q[index]})

    general = _moments(
        Sum(at(i) * mu[i], (i, 1, d)),
        Sum(at(i) * at(_j) * Sigma[i, _j], (i, 1, d), (_j, 1, d)),
    )

    def independent(vector: Callable[[Idx], Expr]) -> Moments:
        """Return moments for i.i.d. features: μ̃ᵢ = μ, Σ̃ᵢⱼ = (rμ)² δᵢⱼ; the query q̃ᵢ = vector(i)."""
        chosen = {q[i]: vector(i), q[_j]: vector(_j)}
        first = at(i).xreplace(chosen)
        inner = _over(first * at(_j).xreplace(chosen) * KroneckerDelta(i, _j), _j)
        return _moments(
            _mean * _over(first, i), (ratio * _mean) ** 2 * _over(sympy.expand(inner), i)
        )

    m1, variance, S = independent(lambda index: q[index])
    uniform = independent(lambda index: sympy.S.One)
    one_hot = independent(lambda index: KroneckerDelta(index, 1))
    cases = tuple(
        Case(name, assumption, first, first**2 + spread, value)
        for name, assumption, (first, spread, value) in (
            ("any features", "mean μ̃ and covariance Σ̃ of k̃", general),
            ("uniform query", "q̃ᵢ = 1, i.i.d. features", uniform),
            ("one-hot query", "q̃ᵢ = δᵢ₁, i.i.d. features", one_hot),
        )
    )
    limits = (
        Limit(ratio, sympy.S.Zero, sympy.true, *_leading(S, ratio)),
        Limit(ratio, oo, sympy.true, *_leading(S, ratio, at_infinity=True)),
        Limit(d, oo, "uniform query", *_leading(uniform[2], d, at_infinity=True)),
        Limit(d, oo, "one-hot query", *_leading(one_hot[2], d, at_infinity=True)),
    )
    return Derivation(
        kernel=kernel,
        first_moment=m1,
        second_moment=m1**2 + variance,
        S=S,
        assumptions=("features k̃ᵢ ≥ 0 independent and identically distributed, r = σ̃/μ̃",),
        limits=limits,
        cases=cases,
    )


def _coefficient(weight: Expr) -> Expr:
    """Return the cᵢ of a weight Σᵢ cᵢk̃ᵢ ≥ 0."""
    step = "expectation over features"
    if not isinstance(weight, Sum) or weight.limits != ((i, 1, d),):
        raise NoClosedForm(step, f"{weight} is not a sum over the features i = 1…d")
    summand = weight.function
    coefficient = sympy.expand(summand).coeff(k[i])
    if sympy.expand(summand - coefficient * k[i]) != 0 or coefficient.has(k):
        raise NoClosedForm(step, f"{summand} is not linear in k[i]")
    if not summand.is_nonnegative:
        raise NoClosedForm(step, f"{summand} may be negative, so E|a| is not E a")
    return coefficient


def _moments(first: Expr, variance: Expr) -> Moments:
    """Return E a, Var a and S = E a/√((E a)² + Var a) = 1/√(1 + Var a/(E a)²)."""
    return first, variance, 1 / sqrt(1 + variance / first**2)


def _over(summand: Expr, index: Idx) -> Expr:
    """Sum over an index from 1 to d, evaluated where it can be; its δ conditions hold there."""
    summed = Sum(summand, (index, 1, d)).doit()
    for piecewise in summed.atoms(sympy.Piecewise):
        summed = summed.xreplace({piecewise: piecewise.args[0][0]})
    return summed


def _leading(S: Expr, variable: Expr, at_infinity: bool = False) -> tuple[Expr, Expr]:
    """Return the limit of S, and S to the first order that is not constant, from its series."""
    x = sympy.Dummy("x", positive=True)
    # Sums over the query do not depend on the variable: as plain positive symbols they let SymPy
    # expand what is then an algebraic function.
    marked = {total: sympy.Dummy(positive=True) for total in S.atoms(Sum)}
    function = S.xreplace(marked).subs(variable, 1 / x if at_infinity else x)
    back = {x: 1 / variable if at_infinity else variable}
    back |= {dummy: total for total, dummy in marked.items()}
    value = sympy.limit(function, x, 0, "+")
    if not function.has(x):
        return function.xreplace(back), function.xreplace(back)
    found = sympy.Add.make_args(sympy.series(function, x, 0, 3).removeO())
    powers = sorted(found, key=lambda term: sympy.degree(term, x))
    leading = powers[0] if value == 0 else sympy.Add(*powers[:2])
    return value.xreplace(back), leading.xreplace(back)
