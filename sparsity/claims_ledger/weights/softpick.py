"""Judge of the claim on softpick's mass: derived, printed and drawn."""

from __future__ import annotations

import numpy as np
import sympy
from sympy import Abs, Expr, Rational, erf, exp, sqrt

from sparsity.claims_ledger.judging import Judged, Routes, core, instead
from sparsity.kernels import score_kernel
from sparsity.kernels.symbols import beta, gamma, s
from sparsity.kernels.zoo import softpick

_GAMMAS = (0.25, 1.0, 2.0)
_DRAWS = 2**20
_WITHIN = 5.0  # standard errors


def _normal(x: Expr) -> Expr:
    """Φ(x)."""
    return (1 + erf(x / sqrt(2))) / 2


def kept_share() -> Expr:
    """The share of the mass that softpick keeps at β = 0, as printed."""
    grown = exp(gamma**2 / 2)
    return (grown * _normal(gamma) - Rational(1, 2)) / (grown * (2 * _normal(gamma) - 1))


def _drawn(spread: float, seed: int) -> tuple[float, float]:
    """The share of many independent scores, and its standard error."""
    rng = np.random.default_rng(seed)
    weight = np.expm1(spread * rng.standard_normal(_DRAWS))
    given, taken = np.maximum(weight, 0.0), np.abs(weight)
    share = given.mean() / taken.mean()
    return float(share), float((given - share * taken).std() / taken.mean() / _DRAWS**0.5)


def kept(routes: Routes, seed: int) -> Judged:
    """The share of the mass by two derived means, by the printed formula and by draws."""
    denominator = score_kernel("softpick's denominator", Abs(exp(s) - 1))
    means = [routes.derive(kernel).first_moment for kernel in (softpick, denominator)]
    given, taken = (sympy.expand(mean.subs(beta, 0)) for mean in means)
    above, below = (part for part in sympy.fraction(kept_share()))
    printed = {g: float(kept_share().subs(gamma, Rational(g)).evalf(30)) for g in _GAMMAS}
    derived = {g: float((given / taken).subs(gamma, Rational(g)).evalf(30)) for g in _GAMMAS}
    seeds = np.random.SeedSequence([seed, 41]).generate_state(len(_GAMMAS))
    rows = []
    for (g, share), key in zip(derived.items(), seeds, strict=True):
        found, error = _drawn(g, int(key))
        rows.append({"gamma": g, "share": share, "printed": printed[g], "drawn": found,
                     "stderr": error, "z": (found - share) / error})  # fmt: skip
    small, large = (float(kept_share().subs(gamma, x).evalf(30)) for x in (Rational(1, 10**6), 40))
    findings = [
        core(
            "at β = 0 the derived share E max(e^s − 1, 0)/E|e^s − 1| is the printed one",
            sympy.simplify(sympy.expand(given * below - taken * above)) == 0,
        ),
        core(
            "it is below 1: "
            + ", ".join(f"{x:.4f}" for x in derived.values())
            + " at γ = 1/4, 1, 2",
            all(0 < x < 1 for x in derived.values()),
        ),
        core(
            f"{_DRAWS} sampled scores keep the same share, within {_WITHIN:.0f} standard errors of "
            f"{max(row['stderr'] for row in rows):.1g} or less",
            all(abs(row["z"]) < _WITHIN for row in rows),
        ),
        instead(
            "it rises from ½, where the scores are narrow, to 1, where they are wide",
            abs(small - 0.5) < 1e-5
            and abs(large - 1) < 1e-9
            and derived[0.25] < derived[1.0] < derived[2.0],
        ),
    ]
    return findings, {"shares": rows}
