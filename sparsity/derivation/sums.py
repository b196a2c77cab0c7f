"""Kernels that are no function of a score: S from finite sums over features, or over positions.

Linear in random features, a = Σ q̃ᵢk̃ᵢ, it follows from the mean and covariance of k̃ alone; a fixed
function of the position j = 1…n is summed over the row.
"""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Callable

import sympy
from sympy import Eq, Expr, Idx, KroneckerDelta, Piecewise, S, Sum, oo, sqrt

from sparsity.derivation.derivation import Case, Derivation, Limit
from sparsity.errors import NoClosedForm
from sparsity.kernels import Kernel
from sparsity.kernels.symbols import Sigma, d, decay, i, j, k, mu, n, q, ratio

_j = Idx("j")
_mu = sympy.Symbol("mu", positive=True)  # the common mean μ̃ of i.i.d. features
_STEP = "sum over positions"
_u = sympy.Symbol("u", positive=True)  # λⁿ
_tau = sympy.Symbol("tau", positive=True)  # −ln λ

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
        Sum(at(i) * mu[i], (i, 1, d)), Sum(at(i) * at(_j) * Sigma[i, _j], (i, 1, d), (_j, 1, d))
    )

    def independent(vector: Callable[[Idx], Expr]) -> Moments:
        """Return moments for i.i.d. features: μ̃ᵢ = μ, Σ̃ᵢⱼ = (rμ)² δᵢⱼ; the query q̃ᵢ = vector(i)."""
        chosen = {q[i]: vector(i), q[_j]: vector(_j)}
        first = at(i).xreplace(chosen)
        inner = _over(first * at(_j).xreplace(chosen) * KroneckerDelta(i, _j), _j)
        return _moments(_mu * _over(first, i), (ratio * _mu) ** 2 * _over(sympy.expand(inner), i))

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
    terms = sympy.Add.make_args(sympy.series(function, x, 0, 3).removeO())
    powers = sorted(terms, key=lambda term: sympy.degree(term, x))
    leading = powers[0] if value == 0 else sympy.Add(*powers[:2])
    return value.xreplace(back), leading.xreplace(back)


def derive_positions(kernel: Kernel) -> Derivation:
    """Derive S of a row a_1…a_n of known weights: E|a| = (1/n) Σ|a_j|, E a² = (1/n) Σ a_j².

    Raises:
        NoClosedForm: the sums are not geometric.
    """
    weight = kernel.weight
    if not weight.is_nonnegative:
        raise NoClosedForm(_STEP, f"the sign of {weight} is not known")
    first, second = _mean(weight), _mean(weight**2)
    # S² is simplified, not S: as a rational function of λ and u = λⁿ it has a normal form.
    square = _signed(sympy.factor(sympy.cancel(_in_u(first**2 / second)))).subs(_u, decay**n)
    flat = weight.subs(decay, 1)
    at_one = sympy.summation(flat, (j, 1, n)) / sqrt(n * sympy.summation(flat**2, (j, 1, n)))
    return Derivation(
        kernel=kernel,
        first_moment=_with_one(first, sympy.summation(flat, (j, 1, n)) / n),
        second_moment=_with_one(second, sympy.summation(flat**2, (j, 1, n)) / n),
        S=_with_one(_root(square), at_one),
        assumptions=("a row of n tokens, 0 < λ ≤ 1",),
        limits=_limits(square, at_one),
    )


def _mean(weight: Expr) -> Expr:
    """Return (1/n) Σ_j of a geometric weight, for λ ≠ 1."""
    # A weight is geometric in j if its logarithm is linear in j.
    logarithm = sympy.expand_log(sympy.log(weight), force=True)
    if not logarithm.is_polynomial(j) or sympy.degree(logarithm, j) > 1:
        raise NoClosedForm(_STEP, f"{weight} is not geometric in j")
    total = sympy.summation(sympy.expand_power_exp(weight), (j, 1, n))
    if total.has(Sum):
        raise NoClosedForm(_STEP, f"{total} has no closed form")
    apart = {c: sympy.false for c in total.atoms(Eq) if c.has(decay)}  # these mean λ = 1
    return _signed(sympy.factor(sympy.cancel(_in_u(total.xreplace(apart) / n)))).subs(_u, decay**n)


def _in_u(expression: Expr) -> Expr:
    """Write λ^(an + b) as u^a·λ^b, so that what is left is a rational function."""
    opened = sympy.expand_power_exp(expression)
    powers = {
        p: _u ** (p.exp / n) for p in opened.atoms(sympy.Pow) if p.base == decay and p.exp.has(n)
    }
    return opened.xreplace(powers)


def _signed(fraction: Expr) -> Expr:
    """Write each factor of a positive fraction so that it is positive on 0 < λ < 1.

    That is (1−u)/(1−λ) rather than (u−1)/(λ−1).
    """
    # No factor changes sign on 0 < λ < 1, where u = λⁿ: one sample (λ = ½, n = 3) tells it.
    sample = {decay: S.Half, _u: S.One / 8, n: 3}
    result, sign = S.One, S.One
    for factor in sympy.Mul.make_args(fraction):
        base, exponent = factor.as_base_exp()
        if exponent.is_Integer and base.subs(sample).is_negative:
            sign *= S.NegativeOne**exponent
            factor = sympy.expand(-base) ** exponent
        result *= factor
    return sign * result


def _root(square: Expr) -> Expr:
    """Return √ of a positive fraction, kept whole: SymPy does not know λ < 1 and would split it."""
    return sympy.Pow(square, S.Half, evaluate=False)


def _with_one(generic: Expr, at_one: Expr) -> Expr:
    """Return the geometric form with its value at λ = 1, where it is 0/0."""
    return Piecewise((sympy.simplify(at_one), Eq(decay, 1)), (generic, True))


def _limits(square: Expr, at_one: Expr) -> tuple[Limit, ...]:
    """Return the limits for n → ∞ and λ → 0, 1, with λ = e^(−τ) so that SymPy knows 0 < λ < 1."""
    below = decay < 1
    limits = [Limit(n, oo, Eq(decay, 1), sympy.limit(at_one, n, oo), sympy.simplify(at_one))]
    in_tau = square.subs(decay, sympy.exp(-_tau))
    # With λ < 1 the row sees a window of about 1/(1 − λ) tokens, and n·S² tends to its size.
    window = sympy.limit(n * in_tau, n, oo)
    if window.is_finite is not False and window != 0:
        window = _signed(sympy.factor(sympy.cancel(window.subs(_tau, -sympy.log(decay)))))
        limits.append(Limit(n, oo, below, S.Zero, _root(window / n)))
        limits.append(Limit(n, oo, below, window, window, "n·S²"))
    whole = sympy.series(in_tau, _tau, 0, 3).removeO()  # there is no pole: S² ≤ 1
    value = whole.subs(_tau, 0)
    correction = sympy.factor(whole - value).subs(_tau, 1 - decay)  # τ = 1 − λ + O((1−λ)²)
    limits.append(Limit(decay, S.One, sympy.true, sqrt(value), sqrt(value) + correction / 2))
    last = sympy.limit(in_tau, _tau, oo)
    limits.append(Limit(decay, S.Zero, sympy.true, sqrt(last), sqrt(last)))
    return tuple(limits)
