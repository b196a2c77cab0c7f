"""Judge of the claim on bounded scores: a floor under S that no law of the scores can pass."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import sympy

from sparsity.claims_ledger.judging import Judged, Routes, core, instead
from sparsity.kernels import Kernel, score_kernel
from sparsity.kernels.functions import relu, sigmoid, softplus
from sparsity.kernels.symbols import s
from sparsity.rows.row import Row
from sparsity.rows.scores import Mixture, Uniform

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
