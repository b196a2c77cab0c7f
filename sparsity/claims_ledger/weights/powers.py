"""Judge of the claim on polynomial attention: the degree that leaves O(1) of n keys."""

from __future__ import annotations

import math

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import gammaln

from sparsity.claims_ledger.judging import Judged, Routes, core, instead, letter
from sparsity.kernels.symbols import beta
from sparsity.kernels.zoo import power

_DERIVED = (2, 4, 6)  # degrees
_EVALUATED = (2, 4, 8, 16, 32)
_BITS = (5, 10, 20, 40, 80, 160)  # log₂ n of the limit form
_ROWS = (6, 12)  # of the exact law
_FEW = 2.0  # keys


def printed(p: int) -> sympy.Expr:
    """S² = Γ((p+1)/2)²/(√π Γ(p+½))."""
    half = sympy.Rational(p + 1, 2)
    return sympy.gamma(half) ** 2 / (sympy.sqrt(sympy.pi) * sympy.gamma(p + sympy.Rational(1, 2)))


def _log_S2(p: float) -> float:
    return float(2 * gammaln((p + 1) / 2) - gammaln(p + 0.5) - math.log(math.pi) / 2)


def _degree(bits: float) -> float:
    """The real p at which n·S² = 1."""
    return float(brentq(lambda p: _log_S2(p) + bits * math.log(2), 0.0, 2 * bits))  # type: ignore[arg-type]


def _smallest_degree(routes: Routes, bits: int) -> int:
    """The smallest even degree up to 8·bits that leaves `_FEW` keys of 2^bits; they fall with p."""
    degree = 3 * bits + bits % 2
    while degree < 8 * bits and _keys(routes, degree, bits) > _FEW:
        degree += 2
    while degree > 2 and _keys(routes, degree - 2, bits) <= _FEW:
        degree -= 2
    return degree


def _keys(routes: Routes, degree: int, bits: int) -> float:
    return float(routes.n_eff(power(degree), 2.0**bits, beta=0.0, gamma=1.0))


def _row(routes: Routes, bits: int) -> dict[str, float]:
    """Keys of 2^bits at p = log₂ n, by the limit form and by the exact law."""
    return {
        "log2_n": bits,
        "degree": bits,
        "n_S2": math.exp(bits * math.log(2) + _log_S2(bits)),
        "n_eff": _keys(routes, bits, bits),
        "degree_for_two_keys": _smallest_degree(routes, bits),
    }


def focus(routes: Routes, seed: int) -> Judged:
    """The derived S, the degree of the limit form, and the degree of rows of n."""
    derived = {p: routes.derive(power(p)).S.subs(beta, 0) for p in _DERIVED}
    log_S = np.array([float(routes.log_S(power(p), beta=0.0, gamma=1.0)) for p in _EVALUATED])
    limit = np.array([_log_S2(p) / 2 for p in _EVALUATED])
    degrees = {bits: _degree(bits) for bits in _BITS}
    excess = [p - bits for bits, p in degrees.items()]
    rows = [_row(routes, bits) for bits in _ROWS]
    ratios = [row["degree_for_two_keys"] / row["log2_n"] for row in rows]
    longest = 1e12
    left = {p: longest * math.exp(2 * x) for p, x in zip(_EVALUATED, log_S, strict=True)}
    findings = [
        core(
            "at β = 0 the derived S² is Γ((p+1)/2)²/(√π Γ(p+½)) for every γ, p = 2, 4, 6",
            all(sympy.simplify(S**2 - printed(p)) == 0 for p, S in derived.items()),
        ),
        core(
            "quadrature of the definition gives the same for p up to 32, and S falls with p as "
            f"2^(−p/2): {math.exp(log_S[-1]):.3g} at p = 32",
            np.allclose(log_S, limit, rtol=0, atol=1e-12)
            and abs(log_S[-1] - (0.5 - _EVALUATED[-1]) / 2 * math.log(2)) < 0.01,
        ),
        letter(
            "a degree that does not depend on n is enough: n·S² is below 100 keys of n = 10¹² for "
            "p = 4, 8, 16 and 32",
            all(left[p] < 100 for p in (4, 8, 16, 32)),
        ),
        instead(
            "in the limit form n·S² = 1 at p = log₂ n + ½ + O(1/log₂ n), so that p/log₂ n → 1: "
            + ", ".join(f"{degrees[b] / b:.3f}" for b in _BITS)
            + f" at log₂ n = {', '.join(map(str, _BITS))}",
            all(abs(x - 0.5) < 1 / b for x, b in zip(excess, _BITS, strict=True)),
        ),
        instead(
            "rows of n scores need more, as they do not reach the scores that the limit form is "
            "made of: at p = log₂ n the exact law leaves "
            + ", ".join(f"{row['n_eff']:.2f}" for row in rows)
            + " keys at log₂ n = "
            + ", ".join(str(row["log2_n"]) for row in rows)
            + " (n·S²: "
            + ", ".join(f"{row['n_S2']:.2f}" for row in rows)
            + ")",
            all(row["n_eff"] > 1.5 * row["n_S2"] for row in rows),
        ),
        instead(
            "two keys are left at p = "
            + ", ".join(f"{ratio:.2f}" for ratio in ratios)
            + " log₂ n there, above the p = 2 ln n = 1.39 log₂ n where a row condenses",
            all(ratio > 2 * math.log(2) for ratio in ratios),
        ),
    ]
    numbers = {
        "limit_form": [{"log2_n": b, "degree": p, "ratio": p / b} for b, p in degrees.items()],
        "rows": rows,
        "keys_of_1e12": [{"degree": p, "n_S2": keys} for p, keys in left.items()],
    }
    return findings, numbers
