"""Claims about kernels of a Gaussian score, with their judges: isotropy, exp, relu², identity."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import sympy

from sparsity import kernels
from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed, table_rows
from sparsity.claims_ledger.judging import (
    Claim,
    Routes,
    same_function,
    sampling,
    seeds_of_claim,
    z_tests,
)
from sparsity.kernels.symbols import beta, gamma
from sparsity.results import Estimate
from sparsity.rows.row import Row
from sparsity.sampling.samplers import keys_at

su_claim = partial(Claim, source="Su Jianlin (2023-12-12), kexue.fm/archives/9889")

# Of each estimate with whole keys. `isotropy` asks that an error of ½ % would show, ten of these:
# 4.2 are beyond chance in one of four cells, and 3.1 more make sure that they are seen.
_REL_ERROR = 5e-4
# Kernel, β, γ, d and σ: one and many dimensions, and σ on both sides of 1, which must cancel. At
# d = 128 with the queries of the cross-check, so that a sampler is compiled once for both.
_KEYS = (
    (kernels.exp, 0.4, 0.9, 128, 2.0),
    (kernels.relu2, -1.0, 1.0, 1, 0.5),
    (kernels.relu2, -0.5, 0.8, 16, 1.0),
    (kernels.identity, 0.5, 1.2, 128, 0.5),
)
_z = sympy.Symbol("z", real=True)
_POINTS = (-3.0, -0.7, 0.4, 2.0)  # of z, where derivation and evaluation are compared
# Of z = β/γ: quarters from −40, where log S of relu² is about −400, to 40, and on to 10⁶, where its
# 1 − S is 2/z² = 2·10⁻¹², small but still seen to fall from point to point.
_GRID = np.concatenate([np.arange(-160, 161) / 4, np.geomspace(50, 1e6, 40)])


def isotropy(routes: Routes, seed: int) -> Judged:
    """Compare whole keys in several dimensions with a scalar score at the same β and γ."""
    seeds = seeds_of_claim(seed, 1, len(_KEYS))

    def cell(i: int) -> tuple[dict[str, Any], float, Estimate]:
        kernel, bias, spread, dim, sigma = _KEYS[i]
        key = seeds[i]
        # Fewer queries than dimensions, where there are several, so that μ has a part across them.
        query, mean = keys_at(bias, spread, dim, key, queries=max(1, dim // 2))
        estimate = routes.full_keys(
            kernel, query / sigma, mean * sigma, sampling(_REL_ERROR, key), spread=sigma
        )
        # The part of μ orthogonal to the queries. S must not depend on it, so it must not be zero,
        # and the record shows how large it was.
        across = mean - query.T @ (query @ mean) / spread**2
        labels = {
            "kernel": kernel.name,
            "dim": dim,
            "beta": bias,
            "gamma": spread,
            "sigma": sigma,
            "mean_across_queries": np.linalg.norm(across * sigma),
        }
        return labels, float(routes.log_S(kernel, beta=bias, gamma=spread)), estimate

    with ThreadPoolExecutor(2) as pool:  # one compiles while another samples
        cells = list(pool.map(cell, range(len(_KEYS))))
    agree, tested = z_tests(cells)
    findings = [
        core(
            "whole keys in d = 1, 16, 128 dimensions give the S of a scalar score at the same β "
            f"and γ, in {len(cells)} cells that would each detect an error of "
            f"{100 * tested['smallest_detectable']:.2g} %",
            agree and tested["smallest_detectable"] <= 5e-3,
        )
    ]
    return findings, tested


def exponential(routes: Routes, seed: int) -> Judged:
    """Compare the limit law with rows of n = 1024 weights, by the exact law and by sampling."""
    n, spreads = 1024, (1.0, 3.0, 5.0)
    S = routes.derive("exp").S
    limit = {g: float(np.exp(routes.log_S("exp", gamma=g))) for g in spreads}
    exact = {g: float(routes.n_eff("exp", n, gamma=g)) for g in spreads}
    # S of rows of n by the exact law, √(E n_eff/n).
    S_rms = {g: math.sqrt(exact[g] / n) for g in spreads}
    seeds = seeds_of_claim(seed, 2, len(spreads))
    cells = []
    for g, key in zip(spreads, seeds, strict=True):
        drawn = routes.rows(Row("exp", gamma=g), n, sampling(3e-3, key))
        cells.append(({"n": n, "gamma": g}, math.log(exact[g]), drawn))
    agree, tested = z_tests(cells)
    ladder = np.sqrt(2 * np.array([1e1, 1e2, 1e3, 1e4]))  # γ at which ln S = −γ²/2 is −10 … −10⁴
    long = math.sqrt(float(routes.n_eff("exp", 1e12, gamma=2.0)) / 1e12)
    findings = [
        core(
            "the derived S tends to 0 as γ → ∞, whatever β",
            sympy.limit(S, gamma, sympy.oo) == 0
            and not S.has(beta)
            and same_function(S, lambda g: routes.log_S("exp", gamma=g), gamma, (0.5, 2.0, 8.0)),
        ),
        core(
            "ln S falls below any bound: −10, −100, −1000, −10000 at γ² = 20, 200, 2000, 20000",
            np.allclose(routes.log_S("exp", gamma=ladder), -(ladder**2) / 2, rtol=1e-12, atol=0),
        ),
        letter(
            f"rows of n = {n} have the S of the formula, to 5 %, at γ = 1, 3 and 5",
            all(abs(S_rms[g] / limit[g] - 1) < 0.05 for g in spreads),
        ),
        instead(
            f"at length n, S ≥ 1/√n ({1 / math.sqrt(n):.5f} at n = {n})",
            all(value >= n**-0.5 for value in S_rms.values()),
        ),
        instead(
            f"the exact law at n = {n} (in brackets: the formula) gives S = "
            + listed(f"{S_rms[g]:.5f} ({limit[g]:.7f})" for g in spreads)
            + f" at γ = 1, 3, 5, and rows drawn at random agree with it "
            f"(to {100 * tested['smallest_detectable']:.2g} % of n·S²)",
            agree,
        ),
        instead(
            "sufficiently long rows follow the formula: at γ = 2, n = 10¹² to 0.1 %",
            abs(long / float(np.exp(routes.log_S("exp", gamma=2.0))) - 1) < 1e-3,
        ),
    ]
    table = table_rows(
        gamma=spreads, formula=limit.values(), exact_S_rms=S_rms.values(), n_eff=exact.values()
    )
    return findings, {"n": n, "floor": n**-0.5, "rows": table, "sampling": tested}


def _in_z(S: sympy.Expr) -> sympy.Expr:
    """Return a derived S as a function of z = β/γ; γ is gone if it depends on z alone."""
    in_z: Any = sympy.factor(S.subs(beta, _z * gamma))  # `simplify` takes six times as long
    return in_z


def squared_relu(routes: Routes, seed: int) -> Judged:
    """Judge the limits, the value at β = 0 and the monotonicity in z, derived and evaluated."""
    x = sympy.Symbol("x", positive=True)
    relu2 = routes.derive("relu2")
    cube = routes.derive("relu3").first_moment
    relu = routes.derive("relu").first_moment
    S = _in_z(relu2.S)
    log_S = routes.log_S("relu2", beta=_GRID, gamma=1.0)
    other = routes.log_S("relu2", beta=_GRID * 3, gamma=3.0)  # the same z at another spread
    floor = -math.log(6) / 2
    # −ln of 2(2π)^(−1/4) e^(−z²/4)/(√24 √|z|) at z = −40, from Mills' m_p ~ p!·φ(z)/|z|^(p+1).
    asymptote = 40**2 / 4 + math.log(math.sqrt(24 * 40) / 2) + math.log(2 * math.pi) / 4
    at_minus_40 = float(routes.log_S("relu2", beta=-40.0, gamma=1.0))
    wide = float(routes.log_S("relu2", beta=-1.0, gamma=1e4))
    # These two are the proof's dm_p/dβ = p·m_(p−1). They make d ln S/dβ a multiple of m₁m₄ − m₂m₃,
    # which is not negative as ln m_p is convex in p.
    slopes = [
        sympy.diff(relu2.first_moment, beta) - 2 * relu,
        sympy.diff(relu2.second_moment, beta) - 4 * cube,
    ]
    findings = [
        core(
            "S, derived and evaluated alike, depends on z = β/γ alone",
            not S.has(gamma)
            and np.allclose(log_S, other, rtol=1e-12, atol=1e-13)
            and same_function(S, lambda z: routes.log_S("relu2", beta=z, gamma=1.0), _z, _POINTS),
        ),
        core(
            "the derived S tends to 0 as z → −∞, so that some β < 0 is arbitrarily sparse",
            sympy.limit(S.subs(_z, -x), x, sympy.oo) == 0,
        ),
        core(
            "at β = 0 the derived S is 1/√6 for every γ",
            sympy.simplify(S.subs(_z, 0) - 1 / sympy.sqrt(6)) == 0,
        ),
        core(
            "dm₂/dβ = 2m₁ and dm₄/dβ = 4m₃ (derived), so that S never falls as z grows",
            all(sympy.simplify(sympy.expand(slope)) == 0 for slope in slopes),
        ),
        core(
            f"S increases in z at {len(_GRID)} points from −40 to 10⁶, so that β ≥ 0 never goes "
            "below 1/√6",
            np.all(np.diff(log_S) > 0) and np.all(log_S[_GRID >= 0] >= floor - 1e-13),
        ),
        instead(
            "a negative β alone does not suffice: as γ → ∞, S returns to 1/√6",
            abs(wide - floor) < 1e-3,
        ),
        instead(
            "S ~ 2(2π)^(−1/4) e^(−z²/4)/(√24 √|z|) as z → −∞ (0.5 % at z = −40)",
            abs(at_minus_40 + asymptote) < 5e-3,
        ),
    ]
    shown = (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0)
    values = np.exp(routes.log_S("relu2", beta=np.array(shown), gamma=1.0))
    numbers = {
        "S_of_z": table_rows(z=shown, S=values),
        "one_over_sqrt_6": math.exp(floor),
        "smallest_step_of_log_S": np.diff(log_S).min(),
    }
    return findings, numbers


def identity(routes: Routes, seed: int) -> Judged:
    """Judge the evenness, the value at β = 0 and the sign of dS/dz."""
    derived = routes.derive("identity")
    S = sympy.simplify(_in_z(derived.S))
    m1, m2 = (
        moment.subs({beta: _z, gamma: 1})
        for moment in (derived.first_moment, derived.second_moment)
    )
    # dS/dz has the sign of N = m₂m₁′ − m₁m₂′/2. SymPy does not decide the sign of N, which has an
    # erf, but it does that of N′ once the positive factor z²e^(−z²/2) is divided off; N(0) = 0.
    numerator = m2 * sympy.diff(m1, _z) - m1 * sympy.diff(m2, _z) / 2
    growth = sympy.simplify(sympy.diff(numerator, _z) / (_z**2 * sympy.exp(-(_z**2) / 2)))
    floor = math.log(2 / math.pi) / 2
    log_S = routes.log_S("identity", beta=_GRID, gamma=1.0)
    mirrored = routes.log_S("identity", beta=-_GRID, gamma=1.0)
    # S less the expansion that is claimed, up to z⁵.
    quartic = sympy.series(S, _z, 0, 6).removeO() - sympy.sqrt(2 / sympy.pi) * (1 + _z**4 / 12)
    findings = [
        core(
            "the derived S is even in β, and so are its values",
            sympy.simplify(S - S.subs(_z, -_z)) == 0
            and np.array_equal(log_S, mirrored)
            and same_function(
                S, lambda z: routes.log_S("identity", beta=z, gamma=1.0), _z, _POINTS
            ),
        ),
        core(
            "at β = 0 the derived S is √(2/π) for every γ",
            not S.has(gamma) and sympy.simplify(S.subs(_z, 0) - sympy.sqrt(2 / sympy.pi)) == 0,
        ),
        core(
            "dS/dz has the sign of a function that is 0 at z = 0 and grows like c·z²e^(−z²/2), "
            "c > 0 (derived): β = 0 is the minimum",
            sympy.simplify(numerator.subs(_z, 0)) == 0 and growth.is_positive is True,
        ),
        core(
            f"no value at {len(_GRID)} points from z = −40 to 10⁶ is below √(2/π)",
            log_S.min() >= floor - 1e-13,
        ),
        instead(
            "near β = 0 the floor is flat to third order: S = √(2/π)(1 + z⁴/12 + O(z⁶))",
            sympy.simplify(quartic) == 0,
        ),
    ]
    numbers = {
        "floor": math.exp(floor),
        "smallest_S": np.exp(log_S.min()),
        "at_z": _GRID[log_S.argmin()],
    }
    return findings, numbers


CLAIMS: tuple[Claim, ...] = (
    su_claim(
        key="isotropy",
        statement="With keys k ~ N(μ, σ²I), S depends on q, μ, σ and d only through the bias "
        "β = q·μ and the spread γ = σ‖q‖.",
        formula="S = E|f(β+γε)| / √E f(β+γε)², ε ~ N(0, 1)",
        proof="q·k is a linear function of a Gaussian vector, so it is N(q·μ, σ²‖q‖²).",
        judge=isotropy,
        labels={
            "sigma": "spread σ of the keys",
            "mean_across_queries": "part of the keys’ mean across the query",
        },
    ),
    su_claim(
        key="exp",
        statement="Softmax attention can be arbitrarily sparse: its S tends to 0 as γ grows.",
        formula="S = exp(−γ²/2)",
        proof="The formula is the limit n → ∞ at fixed γ. A row of n weights has "
        "‖a‖₁ ≥ ‖a‖₂, hence S ≥ 1/√n, which exp(−γ²/2) passes when γ² > ln n.",
        judge=exponential,
        labels={
            "floor": "floor of rows, 1/√n",
            "rows": "Limit law and exact law",
            "formula": "limit law",
            "exact_S_rms": "exact law, √(n_eff/n)",
        },
    ),
    su_claim(
        key="relu2",
        statement="Squared-ReLU attention can be sparse only when the bias β is negative.",
        formula="S = m₂/√m₄, m_p = E max(β+γε, 0)^p, a function of z = β/γ",
        proof="dm_p/dβ = p·m_(p−1), so d ln S/dβ = 2(m₁m₄ − m₂m₃)/(m₂m₄) ≥ 0 because ln m_p is "
        "convex in p (Lyapunov): S rises with z, from 0 through 1/√6 at z = 0 to 1.",
        judge=squared_relu,
        labels={
            "S_of_z": "S against β/γ",
            "z": "β/γ",
            "one_over_sqrt_6": "1/√6",
            "smallest_step_of_log_S": "smallest step of log S on a grid of β/γ",
        },
    ),
    su_claim(
        key="identity",
        statement="Linear attention without activation cannot be sparse: S is even in β and never "
        "below √(2/π).",
        formula="S = [√(2/π) γ e^(−z²/2) + β erf(z/√2)] / √(β²+γ²), z = β/γ",
        proof="With m₁(z), m₂(z) in units of γ, dS/dz has the sign of N = m₂m₁′ − m₁m₂′/2; "
        "N(0) = 0 and N′ = √(2/π) z² e^(−z²/2) ≥ 0, so S falls to z = 0 and rises after it.",
        judge=identity,
        labels={"floor": "floor of S", "smallest_S": "smallest S found", "at_z": "at β/γ"},
    ),
)
