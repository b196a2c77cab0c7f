"""Kernels of a Gaussian score: moments, S and its limits."""

# SymPy annotates most results as Basic; what they are here is known, not inferred.
# pyright: reportArgumentType=false, reportCallIssue=false, reportReturnType=false
# pyright: reportIndexIssue=false, reportOperatorIssue=false, reportAttributeAccessIssue=false

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace

import sympy
from sympy import Expr, oo, sqrt

from sparsity.derivation.asymptotics import Approach, Undecided, ratio_asymptotics, y
from sparsity.derivation.derivation import Derivation, Limit, z
from sparsity.derivation.moments import Moment, moment
from sparsity.derivation.pieces import split
from sparsity.errors import NoClosedForm
from sparsity.kernels import Kernel
from sparsity.kernels.symbols import beta, gamma, s

# Stein's lemma, with ∂p_j/∂k_j = p_j(1 − p_j)·q; `experiments/rules/outputs.py` judges it.
_OUTPUT = (
    "Rows of n keys k ~ N(0, I) that are their own values read out (1 − E Σp²)·q on the average, "
    "with the variance E Σp² in each direction across q, at every n."
)


def derive_scores(kernel: Kernel) -> Derivation:
    """Derive S = E|f(s)| / √(E f(s)²) for s ~ N(β, γ²), with its limits.

    Raises:
        NoClosedForm: |f| is not an exponential polynomial on each of finitely many intervals.
    """
    derivation, m1, m2, kinks = _moments(kernel)
    limits = _limits(m1, m2, derivation.S, kinks, derivation.reduced is not None)
    return replace(derivation, limits=tuple(limits))


def without_limits(kernel: Kernel) -> Derivation:
    """Derive the same without the limits, which take most of the time.

    Raises:
        NoClosedForm: as `derive_scores`.
    """
    return _moments(kernel)[0]


@functools.lru_cache(maxsize=64)
def _moments(kernel: Kernel) -> tuple[Derivation, Moment, Moment, list[Expr]]:
    """Return the derivation without limits, its moments, and the kinks of the weight."""
    pieces = split(kernel.weight)
    m1, m2 = moment(pieces, 1), moment(pieces, 2)
    if not m2.terms:
        raise NoClosedForm("the ratio m₁/√m₂", "f vanishes almost everywhere")
    S = _ratio(m1.expression(), m2.expression())
    reduced = S.subs({beta: z, gamma: 1}) if _homogeneous(m1) and _homogeneous(m2) else None
    derivation = Derivation(
        kernel=kernel,
        first_moment=m1.expression(),
        second_moment=m2.expression(),
        S=S,
        assumptions=("score s ~ N(β, γ²), γ > 0",),
        reduced=reduced if S.has(beta) else None,
        note=_OUTPUT if kernel.weight == sympy.exp(s) else "",
    )
    return derivation, m1, m2, [p.low for p in pieces[1:]]


def _ratio(first: Expr, second: Expr) -> Expr:
    """Return m₁/√m₂, with the exponents joined where the moments are single exponentials.

    For e^s SymPy leaves e^(β + γ²/2)·e^(−β − γ²) as it is; joined it is e^(−γ²/2), without β.
    """
    factors = sympy.Mul.make_args(first / sqrt(second))
    exponents = [x.args[0] for x in factors if isinstance(x, sympy.exp)]
    rest = [x for x in factors if not isinstance(x, sympy.exp)]
    return sympy.Mul(*rest) * sympy.exp(sympy.expand(sympy.Add(*exponents)))


def _homogeneous(m: Moment) -> bool:
    """Return whether m(zγ, γ) is a power of γ times a function of z: S then depends on z alone."""
    powers = set()
    for term in m.terms:
        scaled = sympy.expand(term.coefficient.subs(beta, z * gamma))
        inner = [term.exponent, term.erf_argument or sympy.S.Zero]
        if any(sympy.expand(x.subs(beta, z * gamma)).has(gamma) for x in inner):
            return False
        powers |= {part.as_independent(gamma)[1] for part in sympy.Add.make_args(scaled)}
    return len(powers) == 1


def _limits(
    m1: Moment, m2: Moment, S: Expr, kinks: list[Expr], homogeneous: bool
) -> Iterator[Limit]:
    """Yield every limit that can be derived; one that cannot is left out, not guessed."""
    for regimes in _regimes(kinks, homogeneous):
        limits: list[Limit] = []
        for regime in regimes:
            if not S.has(regime.variable):
                continue
            try:
                value, leading = ratio_asymptotics(m1, m2, regime)
            except Undecided:
                continue
            condition = regime.condition
            same = [old for old in limits if old.leading == leading]
            if same:  # β < 0 and β > 0 agree: say it once
                limits.remove(same[0])
                condition = sympy.Or(same[0].condition, condition).simplify()
            limits.append(Limit(regime.variable, regime.point, condition, value, leading))
        yield from limits


def _regimes(kinks: list[Expr], homogeneous: bool) -> Iterator[list[Approach]]:
    """Yield γ → 0 for β between and at the kinks, γ → ∞, β → ±∞, and β → 0 where only z matters."""
    # For γ → 0 the score is β, and f is what its piece there is: a case for each interval between
    # two kinks, and one at each kink, where half of the scores lie on either side.
    narrow = []
    edges = [-oo, *kinks, oo]
    for low, high in itertools.pairwise(edges):
        bounds = [beta > low] * low.is_finite + [beta < high] * high.is_finite
        narrow.append(
            Approach(gamma, sympy.S.Zero, sympy.And(*bounds), {gamma: y}, gamma, low, high)
        )
        if high.is_finite:
            at = {gamma: y, beta: high}
            narrow.append(Approach(gamma, sympy.S.Zero, sympy.Eq(beta, high), at, gamma))
    yield narrow
    yield [Approach(gamma, oo, sympy.true, {gamma: 1 / y}, 1 / gamma)]
    yield [Approach(beta, oo, sympy.true, {beta: 1 / y}, 1 / beta)]
    yield [Approach(beta, -oo, sympy.true, {beta: -1 / y}, -1 / beta)]
    if homogeneous:
        yield [Approach(beta, sympy.S.Zero, sympy.true, {beta: y}, beta)]
