"""Judges of the claims about powers of scores and about bounded scores."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import gammaln

from sparsity.claims_ledger.judging import Judged, Routes, core, instead, letter
from sparsity.kernels import Kernel, score_kernel
from sparsity.kernels.functions import relu, sigmoid, softplus
from sparsity.kernels.symbols import beta, s
from sparsity.kernels.zoo import power
from sparsity.rows.row import Row
from sparsity.rows.scores import Mixture, Uniform

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


_BOUNDS = (1, 4)  # c, of the scores c·tanh(s)
_BETAS, _GAMMAS = (-4.0, -1.0, 0.0, 2.0), (0.1, 1.0, 10.0, 1000.0)
_LENGTHS = np.array([16.0, 1024.0, 2.0**20, 2.0**40])


def of_bounded(name: str, function: Any, c: int) -> Kernel:
    """The weight f(c·tanh(s)): the kernel f of a score that is bounded by c."""
    return score_kernel(f"{name} of {c} tanh(s)", function(c * sympy.tanh(s)))


def even(c: float) -> Row:
    """Softmax over scores that are uniform on [−c, c]."""
    return Row("exp", gamma=c / math.sqrt(3), scores=Uniform())


def two_valued(name: str, function: Any, c: int, share: float) -> Row:
    """The weight f of scores that are +c with a probability, else −c."""
    law = Mixture(((share, c, 0.0), (1 - share, -c, 0.0)))
    beta, gamma = c * (2 * share - 1), 2 * c * math.sqrt(share * (1 - share))
    return Row(score_kernel(name, function(s)), beta=beta, gamma=gamma, scores=law)


def limit_of_even(c: int) -> float:
    """S² of softmax over them in long rows, E e^s and E e^(2s) integrated by SymPy."""
    m1, m2 = (sympy.integrate(sympy.exp(p * s) / (2 * c), (s, -c, c)) for p in (1, 2))
    return float((m1**2 / m2).evalf(30))


def ends(function: Any, c: int) -> tuple[float, float]:
    """The least and the largest weight, m and M, of a rising f."""
    m, M = (float(function(sympy.Integer(x)).evalf(30)) for x in (-c, c))
    return m, M


def _proven() -> bool:
    """E f² ≤ (m+M)x − mM for x = E f, and x² less the floor times that is a square."""
    f, x, m, M = sympy.symbols("f x m M", positive=True)
    says = (f - m) * (M - f) - ((m + M) * f - m * M - f**2)
    floor, at = 4 * m * M / (m + M) ** 2, 2 * m * M / (m + M)
    gap = x**2 - floor * ((m + M) * x - m * M) - (x - at) ** 2
    return sympy.expand(says) == 0 and sympy.simplify(gap) == 0


def _floors(routes: Routes) -> tuple[list[dict[str, Any]], int]:
    """The floor, the smallest S² over the grid, S² of two-valued scores; and the points asked."""
    kernels = {"exp": sympy.exp, "sigmoid": sigmoid, "softplus": softplus}
    beta, gamma = np.array(_BETAS)[:, None], np.array(_GAMMAS)
    table, cells = [], 0
    for (name, function), c in itertools.product(kernels.items(), _BOUNDS):
        kernel, (m, M) = of_bounded(name, function, c), ends(function, c)
        S2 = np.exp(2 * routes.log_S(kernel, beta=beta, gamma=gamma))
        two = math.exp(2 * float(routes.log_S(two_valued(name, function, c, m / (m + M)))))
        floor = 4 * m * M / (m + M) ** 2
        row = {"kernel": name, "c": c, "floor": floor, "smallest_S2": float(S2.min())}
        table.append(row | {"two_valued_S2": two})
        cells += S2.size
    return table, cells


def dispersed(routes: Routes, seed: int) -> Judged:
    """The floor under S over a grid of laws, who attains it, and rows of n."""
    table, cells = _floors(routes)
    kept, limit = routes.n_eff(even(2), _LENGTHS) / _LENGTHS, limit_of_even(2)
    focused = [
        float(routes.n_eff("exp", n, gamma=2 * math.sqrt(2 * math.log(n)))) for n in _LENGTHS
    ]
    cut = of_bounded("squared ReLU", lambda x: relu(x) ** 2, 2)
    small = math.exp(2 * float(routes.log_S(cut, beta=-4.0, gamma=1.0)))
    findings = [
        core("S² ≥ 4mM/(m+M)² for every law of weights in [m, M] (proven)", _proven()),
        core(
            f"for exp, sigmoid and softplus of c·tanh(s), c = 1 and 4, S² is above it at {cells} "
            "points of β and γ, by quadrature",
            all(row["smallest_S2"] >= row["floor"] * (1 - 1e-12) for row in table),
        ),
        core(
            "the exact law of softmax rows whose scores are uniform on [−2, 2] has n_eff/n = "
            + ", ".join(f"{x:.4f}" for x in kept)
            + " at n = 16, 2¹⁰, 2²⁰, 2⁴⁰, never below 1/cosh² 2 = 0.0707",
            np.all(kept >= math.cosh(2) ** -2),
        ),
        core(
            f"and tends to S² = tanh(2)/2 = {limit:.4f}, integrated by SymPy",
            abs(kept[-1] / limit - 1) < 1e-9,
        ),
        instead(
            "the floor is attained by scores that take the two values ±c, +c with probability "
            "m/(m+M)",
            all(abs(row["two_valued_S2"] / row["floor"] - 1) < 1e-12 for row in table),
        ),
        instead(
            "scores that may grow like √ln n do focus: exp at γ = 2√(2 ln n) attends to "
            + ", ".join(f"{x:.2f}" for x in focused)
            + " keys at those n",
            max(focused) < 4,
        ),
        instead(
            "the kernel must not vanish on [−c, c]: max(2·tanh(s), 0)² has no floor, S² = "
            f"{small:.2g} at β = −4, γ = 1",
            small < 1e-3,
        ),
    ]
    rows = [{"n": n, "share": x, "exp": y} for n, x, y in zip(_LENGTHS, kept, focused, strict=True)]
    return findings, {"floors": table, "rows": rows}
