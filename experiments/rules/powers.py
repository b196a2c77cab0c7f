"""Claims about powers of scores and about bounded scores, with their judges."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import sympy
from scipy.optimize import brentq
from scipy.special import gammaln

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed, table_rows
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.kernels import Kernel, score_kernel
from sparsity.kernels.symbols import beta, relu, s, sigmoid, softplus
from sparsity.kernels.zoo import power
from sparsity.rows.row import Row
from sparsity.rows.score_laws import Mixture, Uniform

_DERIVED = (2, 4, 6)  # degrees, derived by SymPy
_EVALUATED = (2, 4, 8, 16, 32)  # degrees, by quadrature
_BITS = (5, 10, 20, 40, 80, 160)  # log₂ n of the limit form, a formula that costs nothing
_ROWS = (6, 12)  # log₂ n of the exact law, which is asked for many degrees
_FEW = 2.0  # keys


def _log_S2(p: float) -> float:
    """Return ln S² at β = 0, by the formula of the claim for any real degree p."""
    return float(2 * gammaln((p + 1) / 2) - gammaln(p + 0.5) - math.log(math.pi) / 2)


def _degree(bits: float) -> float:
    """Return the real p at which n·S² = 1 for n = 2^bits."""
    return float(brentq(lambda p: _log_S2(p) + bits * math.log(2), 0.0, 2 * bits))  # type: ignore[arg-type]


def _smallest_degree(routes: Routes, bits: int) -> int:
    """Return the smallest even degree up to 8·bits that leaves `_FEW` keys of 2^bits.

    Keys fall with the degree, so that one walks up or down to the first that leaves few. The walk
    starts at 3 bits, near the answer; a planted law that never leaves few stops at the cap.
    """
    degree = 3 * bits + bits % 2
    while degree < 8 * bits and _keys(routes, degree, bits) > _FEW:
        degree += 2
    while degree > 2 and _keys(routes, degree - 2, bits) <= _FEW:
        degree -= 2
    return degree


def _keys(routes: Routes, degree: int, bits: int) -> float:
    return float(routes.n_eff(power(degree), 2.0**bits, beta=0.0, gamma=1.0))


def focus(routes: Routes, seed: int) -> Judged:
    """Judge the derived S, the degree of the limit form, and the degree of rows of n."""
    derived = {p: routes.derive(power(p)).S.subs(beta, 0) for p in _DERIVED}
    half = sympy.Rational(1, 2)
    stated = {
        p: sympy.gamma(p * half + half) ** 2 / (sympy.sqrt(sympy.pi) * sympy.gamma(p + half))
        for p in _DERIVED
    }
    log_S = np.array([float(routes.log_S(power(p), beta=0.0, gamma=1.0)) for p in _EVALUATED])
    limit = np.array([_log_S2(p) / 2 for p in _EVALUATED])
    degrees = {bits: _degree(bits) for bits in _BITS}  # real p, at which n·S² = 1
    excess = [p - bits for bits, p in degrees.items()]
    rows = [  # at p = log₂ n, by limit form and exact law
        {
            "log2_n": bits,
            "degree": bits,
            "n_S2": math.exp(bits * math.log(2) + _log_S2(bits)),
            "n_eff": _keys(routes, bits, bits),
            "degree_for_two_keys": _smallest_degree(routes, bits),
        }
        for bits in _ROWS
    ]
    keys = [row["n_eff"] for row in rows]
    ratios = [row["degree_for_two_keys"] / row["log2_n"] for row in rows]
    longest = 1e12  # keys n, in the limit form
    left = {p: longest * math.exp(2 * x) for p, x in zip(_EVALUATED, log_S, strict=True)}
    findings = [
        core(
            "at β = 0 the derived S² is Γ((p+1)/2)²/(√π Γ(p+½)) for every γ, p = 2, 4, 6",
            all(sympy.simplify(S**2 - stated[p]) == 0 for p, S in derived.items()),
        ),
        core(
            "quadrature of the definition gives the same for p up to 32, and S falls with p as "
            f"2^(−p/2): {math.exp(log_S[-1]):.3g} at p = 32",
            np.allclose(log_S, limit, rtol=0, atol=1e-12)
            # S² ~ √2·2^(−p) by the duplication formula.
            and abs(log_S[-1] - (0.5 - _EVALUATED[-1]) / 2 * math.log(2)) < 0.01,
        ),
        letter(
            "a degree that does not depend on n is enough: n·S² is below 100 keys of n = 10¹² for "
            "p = 4, 8, 16 and 32",
            all(left[p] < 100 for p in (4, 8, 16, 32)),
        ),
        instead(
            "in the limit form n·S² = 1 at p = log₂ n + ½ + O(1/log₂ n), so that p/log₂ n → 1: "
            + listed(f"{degrees[b] / b:.3f}" for b in _BITS)
            + f" at log₂ n = {listed(_BITS)}",
            all(abs(x - 0.5) < 1 / b for x, b in zip(excess, _BITS, strict=True)),
        ),
        instead(
            "rows of n scores need more, as they do not reach the scores that the limit form is "
            f"made of: at p = log₂ n the exact law leaves {listed(keys, '.2f')} keys at log₂ n = "
            f"{listed(_ROWS)} (n·S²: {listed((row['n_S2'] for row in rows), '.2f')})",
            all(row["n_eff"] > 1.5 * row["n_S2"] for row in rows),
        ),
        instead(
            f"two keys are left at p = {listed(ratios, '.2f')} log₂ n there, above the p = 2 ln n "
            "= 1.39 log₂ n where a row condenses",
            all(ratio > 2 * math.log(2) for ratio in ratios),
        ),
    ]
    numbers = {
        "limit_form": [{"log2_n": b, "degree": p, "ratio": p / b} for b, p in degrees.items()],
        "rows": rows,
        "keys_of_1e12": table_rows(degree=left, n_S2=left.values()),
    }
    return findings, numbers


_BOUNDS = (1, 4)  # c, of the scores c·tanh(s)
_BETAS, _GAMMAS = (-4.0, -1.0, 0.0, 2.0), (0.1, 1.0, 10.0, 1000.0)
_LENGTHS = np.array([16.0, 1024.0, 2.0**20, 2.0**40])


def _of_bounded(name: str, function: Any, c: int) -> Kernel:
    """Return the weight f(c·tanh(s)): the kernel f of a score that is bounded by c."""
    return score_kernel(f"{name} of {c} tanh(s)", function(c * sympy.tanh(s)))


def two_valued(name: str, function: Any, c: int, share: float) -> Row:
    """Return the weight f of scores that are +c with a probability, `share`, else −c."""
    law = Mixture(((share, c, 0.0), (1 - share, -c, 0.0)))
    beta, gamma = c * (2 * share - 1), 2 * c * math.sqrt(share * (1 - share))
    return Row(score_kernel(name, function(s)), beta=beta, gamma=gamma, scores=law)


def _proven() -> bool:
    """Prove E f² ≤ (m+M)x − mM for x = E f, and that x² ≥ floor·((m+M)x − mM); return if it is.

    The first is the mean of (f − m)(M − f) ≥ 0, the second (x − 2mM/(m+M))² ≥ 0. Together they are
    S² = x²/E f² ≥ floor.
    """
    f, x, m, M = sympy.symbols("f x m M", positive=True)
    says = (f - m) * (M - f) - ((m + M) * f - m * M - f**2)
    floor, at = 4 * m * M / (m + M) ** 2, 2 * m * M / (m + M)
    gap = x**2 - floor * ((m + M) * x - m * M) - (x - at) ** 2
    return sympy.expand(says) == 0 and sympy.simplify(gap) == 0


def _floors(routes: Routes) -> tuple[list[dict[str, Any]], int]:
    """Return a table of floors and of the smallest S² found, and how many points were asked.

    Its rows are kernels and bounds: the floor 4mM/(m+M)², the smallest S² over a grid of β and γ,
    and S² of two-valued scores, which attain the floor.
    """
    kernels = {"exp": sympy.exp, "sigmoid": sigmoid, "softplus": softplus}
    beta, gamma = np.array(_BETAS)[:, None], np.array(_GAMMAS)
    table, cells = [], 0
    for (name, function), c in itertools.product(kernels.items(), _BOUNDS):
        kernel = _of_bounded(name, function, c)
        # The least and the largest weight, as all three functions rise.
        m, M = (float(function(sympy.Integer(x)).evalf(30)) for x in (-c, c))
        S2 = np.exp(2 * routes.log_S(kernel, beta=beta, gamma=gamma))
        two = math.exp(2 * float(routes.log_S(two_valued(name, function, c, m / (m + M)))))
        floor = 4 * m * M / (m + M) ** 2
        row = {"kernel": name, "c": c, "floor": floor, "smallest_S2": float(S2.min())}
        table.append(row | {"two_valued_S2": two})
        cells += S2.size
    return table, cells


def dispersed(routes: Routes, seed: int) -> Judged:
    """Judge the floor under S over a grid of laws, who attains it, and rows of n."""
    table, cells = _floors(routes)
    # Scores that are uniform on [−2, 2] have the standard deviation 2/√3. Of long rows S² = m₁²/m₂.
    uniform = Row("exp", gamma=2 / math.sqrt(3), scores=Uniform())
    kept = routes.n_eff(uniform, _LENGTHS) / _LENGTHS
    m1, m2 = (sympy.integrate(sympy.exp(p * s) / 4, (s, -2, 2)) for p in (1, 2))
    limit = float((m1**2 / m2).evalf(30))
    # Twice the spread √(2 ln n) at which a row condenses: its largest scores hold all the mass.
    focused = [
        float(routes.n_eff("exp", n, gamma=2 * math.sqrt(2 * math.log(n)))) for n in _LENGTHS
    ]
    # The counter-example: where m = 0 the floor is 0.
    cut = _of_bounded("squared ReLU", lambda x: relu(x) ** 2, 2)
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
            f"{listed(kept, '.4f')} at n = 16, 2¹⁰, 2²⁰, 2⁴⁰, never below 1/cosh² 2 = 0.0707",
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
            f"{listed(focused, '.2f')} keys at those n",
            max(focused) < 4,
        ),
        instead(
            "the kernel must not vanish on [−c, c]: max(2·tanh(s), 0)² has no floor, S² = "
            f"{small:.2g} at β = −4, γ = 1",
            small < 1e-3,
        ),
    ]
    rows = table_rows(n=_LENGTHS, share=kept, exp=focused)
    return findings, {"floors": table, "rows": rows}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="powers",
        source="Kacham et al. (2023), PolySketchFormer, arXiv 2310.01655",
        statement="Polynomial attention of a high even degree p can replace softmax: it focuses "
        "as sharply.",
        formula="S² = Γ((p+1)/2)²/(√π Γ(p+½)) at β = 0; n·S² = O(1) at p ≈ log₂ n",
        proof="E|s|^p = γ^p 2^(p/2) Γ((p+1)/2)/√π, and the duplication formula gives "
        "S² ~ √2·2^(−p). E s^(2p) is due to |s| ≈ γ√(2p), and the largest of n scores is about "
        "γ√(2 ln n): with p > ln n the limit form counts scores that a row does not have. The "
        "largest scores of a row differ by factors 1 + x/(2 ln n), x of order 1, so that their "
        "weights differ by e^x from p = 2 ln n = 1.39 log₂ n on, and O(1) of them hold the mass.",
        judge=focus,
    ),
    Claim(
        key="bounded-scores",
        source="Veličković et al. (2024), softmax is not enough, arXiv 2410.01104",
        statement="Softmax over bounded scores cannot stay sharp as the row grows: every weight is "
        "Θ(1/n).",
        formula="m ≤ f ≤ M: p_j ≤ M/(mn) and S² ≥ 4mM/(m+M)²; for e^s with |s| ≤ c, 1/cosh² c",
        proof="(f − m)(M − f) ≥ 0 gives E f² ≤ (m+M)E f − mM, so S² ≥ x²/((m+M)x − mM) with "
        "x = E f, least at x = 2mM/(m+M). No law of the scores enters, and none needs to be "
        "independent.",
        judge=dispersed,
    ),
)
