"""Claims about linear attention, with their judges: nonnegative features, the dimension, decay."""

from __future__ import annotations

import functools
import math

import numpy as np
import sympy

from sparsity import kernels, metric
from sparsity.claims_ledger.article_scores import su_claim
from sparsity.claims_ledger.findings import Judged, core, instead, letter, table_rows
from sparsity.claims_ledger.judging import (
    Claim,
    Routes,
    same_function,
    sampling,
    seeds_of_claim,
    z_tests,
)
from sparsity.kernels import queries
from sparsity.kernels.symbols import d, decay, n, ratio
from sparsity.kernels.zoo import taylor
from sparsity.sampling import estimators

_DIMS = np.array([1, 2, 4, 16, 64, 256, 1024, 4096])
_RATIOS = (0.1, 0.5, 1.0, 2.0, 10.0)  # r = σ̃/μ̃, on both sides of the S = 1/√2 at r = 1
_SLACK = 1e-13  # of log S: the rounding of closed forms that should meet a bound exactly


@functools.cache
def norm_bounds() -> bool:
    """Prove Σq² ≤ (Σq)² ≤ dΣq² for q ≥ 0 in every dimension d, by induction; return whether it is.

    With T = Σq, W = Σq² over d entries and x ≥ 0 a further one, both hold with equality at d = 1,
    and the gaps grow: (T² − W) by 2Tx ≥ 0, and dW − T² into its multiple by (d+1)/d > 0 plus
    (T − dx)²/d ≥ 0.
    """
    T, W, x = sympy.symbols("T W x", nonnegative=True)
    upper = ((T + x) ** 2 - (W + x**2)) - (T**2 - W)
    lower = ((d + 1) * (W + x**2) - (T + x) ** 2) - (d + 1) / d * (d * W - T**2)
    steps = (upper - 2 * T * x, lower - (T - d * x) ** 2 / d)
    return all(sympy.simplify(sympy.expand(step)) == 0 for step in steps)


def nonnegative(routes: Routes, seed: int) -> Judged:
    """Judge the bound S ≥ 1/√(1+r²), who attains it, and what real features have."""
    grid = {"ratio": np.array(_RATIOS)[:, None], "dim": _DIMS}
    bound = -0.5 * np.log1p(np.square(_RATIOS))[:, None]
    gap = np.stack(  # of ln S above that of the bound: [queries, ratios, dims]
        [routes.log_S("nonnegative", query=name, **grid) - bound for name in queries.NAMES]
    )
    one_hot = gap[queries.NAMES.index("one-hot")]
    S = routes.derive("nonnegative").S
    # SymPy has no limit through a symbolic sum over d entries. For a fixed query both sums, Σq̃ and
    # Σq̃², are positive constants.
    S = S.xreplace({total: sympy.Dummy(positive=True) for total in S.atoms(sympy.Sum)})
    drawn = (("one-hot", 16, 1.0), ("uniform", 32, 1.0), ("half-normal", 32, 1.5))
    seeds = seeds_of_claim(seed, 5, len(drawn))
    cells = []
    for (name, dim, r), key in zip(drawn, seeds, strict=True):
        estimate = estimators.features(
            kernels.exp,  # k̃ = e^k is log-normal, with σ̃/μ̃ = √(e^(spread²) − 1)
            queries.named(name).vector(dim),
            0.0,
            math.sqrt(math.log1p(r * r)),
            sampling(2e-3, key),
        )
        theory = float(routes.log_S("nonnegative", ratio=r, dim=dim, query=name))
        cells.append(({"query": name, "dim": dim, "ratio": r}, theory, estimate))
    agree, tested = z_tests(cells)
    findings = [
        core(
            "the derived S tends to 0 as r = σ̃/μ̃ → ∞ and to 1 as r → 0, for any fixed query",
            sympy.limit(S, ratio, sympy.oo) == 0 and sympy.limit(S, ratio, 0, "+") == 1,
        ),
        core(
            f"S ≥ 1/√(1+r²) in all {gap.size} cells of query family × r × d, "
            "so that a small S needs a large r",
            gap.min() >= -_SLACK,
        ),
        core(
            "‖q̃‖₂ ≤ ‖q̃‖₁ for every q̃ ≥ 0 and every d (proven): the bound is general", norm_bounds()
        ),
        core("real features e^k, whole vectors, give the S of the formula", agree),
        instead(
            "the one-hot query attains the bound, in every dimension",
            np.abs(one_hot).max() <= _SLACK,
        ),
    ]
    # S = 1/√(1 + r²) solved for r, the least noise that any query needs for that S.
    needed = [{"S": x, "ratio_at_least": math.sqrt(1 / x**2 - 1)} for x in (0.5, 0.1, 0.01)]
    return findings, {"ratio_needed": needed, "sampling": tested}


def dimension(routes: Routes, seed: int) -> Judged:
    """Judge the norm ratio of many queries, and what d does to S."""
    rng = np.random.default_rng([seed, 6])
    dims, draws = (2, 16, 64, 1024), 500
    rows, inside = [], True
    for dim in dims:
        # Powers of exponentials: at ¼ the entries are nearly equal, at 16 one of them outweighs the
        # others, so that the ratios come near both ends of [1/√d, 1].
        spread = rng.exponential(size=(draws, dim)) ** rng.choice([0.25, 1, 4, 16], (draws, 1))
        special = np.stack([query.vector(dim) for query in queries.ALL])
        rho = routes.norm_ratio(np.concatenate([special, spread]))
        low, high = float(rho.min()), float(rho.max())
        inside &= low >= dim**-0.5 * (1 - 1e-12) and high <= 1 + 1e-12
        rows.append({"dim": dim, "smallest": low, "largest": high, "sqrt_d": math.sqrt(dim)})
    largest = np.array([row["largest"] for row in rows])
    # The largest ‖q̃‖₁/‖q̃‖₂ of each dimension.
    inverse = np.array([1 / row["smallest"] for row in rows])
    roots = np.sqrt(dims)
    series = {
        name: routes.log_S("nonnegative", ratio=1.0, dim=_DIMS, query=name)
        for name in queries.NAMES
    }
    dense = [series[name] for name in queries.NAMES if name != "one-hot"]
    findings = [
        core(
            f"the largest ‖q̃‖₂/‖q̃‖₁ over {draws} random and 3 special q̃ ≥ 0 is √d, "
            "at d = 2, 16, 64, 1024",
            np.allclose(largest, roots, rtol=1e-9),
        ),
        core(
            "a larger d makes a dense query (uniform, half-normal) sparser",
            all(np.all(np.diff(values) < 0) for values in dense),
        ),
        instead(f"‖q̃‖₂/‖q̃‖₁ lies in [1/√d, 1] for all {len(dims) * (draws + 3)} queries", inside),
        instead("1/√d ≤ ‖q̃‖₂/‖q̃‖₁ ≤ 1 for every q̃ ≥ 0 and every d (proven)", norm_bounds()),
        instead(
            "its maximum is 1, at the one-hot query, whatever d",
            np.allclose(largest, 1, rtol=1e-12),
        ),
        instead(
            "the ratio whose maximum is √d is ‖q̃‖₁/‖q̃‖₂", np.allclose(inverse, roots, rtol=1e-12)
        ),
        instead(
            "a larger d makes a dense query less sparse: S rises with d to 1",
            all(np.all(np.diff(values) > 0) and values[-1] > -1e-3 for values in dense),
        ),
        instead(
            "S of the one-hot query does not depend on d: 1/√(1+r²)",
            np.ptp(series["one-hot"]) <= _SLACK,
        ),
    ]
    table = table_rows(dim=_DIMS, **{name: np.exp(series[name]) for name in queries.NAMES})
    return findings, {"norm_ratio": rows, "S_at_ratio_1": table}


def softmax_gap(routes: Routes, seed: int) -> Judged:
    """Compare Taylor features with softmax at γ = 2, and i.i.d. features at every d."""
    spread, degrees, head = 2.0, (2, 4, 8, 16, 32), 64  # 64: the width of a usual head
    softmax = float(routes.log_S("exp", gamma=spread))
    log_S = np.array([routes.polynomial_log_S(taylor(p), spread) for p in degrees])
    # The polynomial rule is exact; quadrature, which shares nothing with it, checks the first few.
    checked = np.array([routes.log_S(taylor(p), beta=0.0, gamma=spread) for p in degrees[:3]])
    r = 1.0
    dims = np.concatenate([_DIMS, [10**6]])
    # With r = 1 no query and no d brings S under that of one feature, 1/√2; softmax is at e^(−2),
    # which is 0.14.
    iid = np.stack(
        [routes.log_S("nonnegative", ratio=r, dim=dims, query=name) for name in queries.NAMES]
    )
    excess = np.expm1(log_S - softmax)
    findings = [
        core(
            "there are features whose S tends to softmax's as d → ∞: Taylor features at γ = 2 come "
            f"within {excess[-1]:.8f} of it (relatively) at p = 32",
            np.all(np.diff(log_S) < 0) and abs(excess[-1]) < 1e-6,
        ),
        core("at every finite dimension tried a gap remains", np.all(excess > 0)),
        core(
            "adaptive quadrature of the definition gives the same S for p = 2, 4, 8",
            np.allclose(checked, log_S[:3], rtol=0, atol=1e-12),
        ),
        letter(
            "d → ∞ closes the gap for i.i.d. nonnegative features as well (r = 1, d up to 10⁶)",
            np.any(iid[:, -1] <= softmax + 0.01),
        ),
        instead(
            "with i.i.d. features S ≥ 1/√(1+r²) for every query and every d, the sparsity of a "
            "single feature",
            iid.min() >= -0.5 * math.log1p(r * r) - _SLACK,
        ),
    ]
    # Polynomials of degree ≤ p in d variables have C(d + p, p) coefficients.
    features = [math.comb(head + p, p) for p in degrees]
    table = table_rows(
        degree=degrees, features_at_64=features, S=map(math.exp, log_S), excess=excess
    )
    numbers = {
        "gamma": spread,
        "softmax": math.exp(softmax),
        "taylor": table,
        "iid_smallest_S": np.exp(iid.min()),
    }
    return findings, numbers


def decay_to_zero(routes: Routes, seed: int) -> Judged:
    """Judge the limit n → ∞ at any λ < 1, derived; its rate; and real rows of λ^(n−j)."""
    # SymPy's limits need λ < 1 and a real n. Both are written so that it knows: λ = e^(−τ) with
    # τ > 0, and m > 0 for the integer n. The case λ = 1 is apart in the derivation.
    tau, m = sympy.symbols("tau m", positive=True)
    apart = {sympy.Eq(decay, 1): sympy.false}
    derived = sympy.sympify(routes.derive("decayed").S.xreplace(apart))
    square = sympy.simplify(derived.subs({n: m, decay: sympy.exp(-tau)}) ** sympy.Integer(2))
    window = sympy.limit(m * square, m, sympy.oo)
    wanted = (1 + sympy.exp(-tau)) / (1 - sympy.exp(-tau))
    decays = np.array([0.1, 0.5, 0.9, 0.99, 0.999, 1 - 1e-6])[:, None]
    lengths = np.array([1e10, 1e11, 1e12])
    log_S = routes.log_S("decayed", decay=decays, length=lengths)
    # At these lengths even 1 − 10⁻⁶, whose window is two million tokens, has its slope to 1e−3.
    slopes = np.diff(log_S, axis=1) / np.diff(np.log(lengths))
    n_S2 = np.exp(2 * log_S[:, -1]) * lengths[-1]
    flat = routes.log_S("decayed", decay=1.0, length=lengths)
    size = 4096
    rows = [float(metric.S(x ** np.arange(size - 1, -1, -1.0))) for x in decays[:5, 0]]
    by_formula = np.exp(routes.log_S("decayed", decay=decays[:5, 0], length=size))
    findings = [
        core(
            "the derived S tends to 0 as n → ∞ for every λ < 1",
            sympy.limit(square, m, sympy.oo) == 0
            and same_function(
                sympy.sqrt(square).subs(tau, -sympy.log(sympy.Rational(9, 10))),
                lambda length: routes.log_S("decayed", decay=0.9, length=length),
                m,
                (2.0, 10.0, 100.0),
            ),
        ),
        core(
            "ln S falls with slope −1/2 against ln n, for λ from 0.1 to 1 − 10⁻⁶",
            np.allclose(slopes, -0.5, rtol=0, atol=1e-3),
        ),
        core(
            f"real rows λ^(n−j) of n = {size} have the S of the formula",
            np.allclose(rows, by_formula, rtol=1e-12, atol=0),
        ),
        instead(
            "n·S² → (1+λ)/(1−λ), the effective window (derived and evaluated)",
            sympy.simplify(window - wanted) == 0
            and np.allclose(n_S2, ((1 + decays) / (1 - decays))[:, 0], rtol=1e-3),
        ),
        instead("at λ = 1, S = 1 for every n", np.all(flat == 0)),
    ]
    table = table_rows(decay=decays[:5, 0], S_at_n_4096=rows, window=n_S2[:5])
    return findings, {"rows": table, "slopes": slopes.ravel()}


CLAIMS: tuple[Claim, ...] = (
    su_claim(
        key="nonnegative",
        statement="Linear attention with nonnegative features can be sparse only at a low "
        "signal-to-noise ratio μ̃/σ̃.",
        formula="S = 1/√(1 + (r‖q̃‖₂/‖q̃‖₁)²), r = σ̃/μ̃",
        proof="(Σq̃)² − Σq̃² grows by 2q̃ᵢΣq̃ ≥ 0 with each further entry, so ‖q̃‖₂ ≤ ‖q̃‖₁ for every d "
        "and S ≥ 1/√(1+r²): S ≤ s needs r ≥ √(1/s² − 1).",
        judge=nonnegative,
        labels={"ratio_needed": "Noise that S takes", "ratio_at_least": "σ̃/μ̃ at least"},
    ),
    su_claim(
        key="dimension",
        statement="To make it sparser, increase ‖q̃‖₂/‖q̃‖₁, whose maximum is √d: hence increase "
        "the dimension d.",
        formula="max over q̃ ≥ 0 of ‖q̃‖₂/‖q̃‖₁ = √d",
        proof="Σq̃² ≤ (Σq̃)² ≤ dΣq̃², by induction over d: the two gaps grow by 2q̃ᵢΣq̃ ≥ 0 and by "
        "(Σq̃ − dq̃ᵢ)²/d ≥ 0. So 1/√d ≤ ‖q̃‖₂/‖q̃‖₁ ≤ 1; the ratio whose maximum is √d is its inverse.",
        judge=dimension,
        labels={
            "norm_ratio": "‖q̃‖₂/‖q̃‖₁ of queries",
            "sqrt_d": "√d",
            "S_at_ratio_1": "S at σ̃/μ̃ = 1",
            "uniform": "uniform query",
            "one-hot": "one-hot query",
            "half-normal": "half-normal query",
        },
    ),
    su_claim(
        key="softmax-gap",
        statement="Only d → ∞ closes the gap between linear attention and softmax.",
        formula="a = φ(q)·φ(k), d features; Taylor features of even degree p: "
        "a = Σ_(r≤p) s^r/r! → e^s",
        proof="f_p − f_p′ = s^p/p!, so f_p = s^p/p! > 0 wherever f_p′ = 0: f_p > 0 for even p, and "
        "E|f_p| = E f_p: polynomial moments, exact by Gauss–Hermite quadrature.",
        judge=softmax_gap,
        labels={
            "softmax": "S of softmax",
            "taylor": "Taylor features of even degree p",
            "degree": "degree p",
            "features_at_64": "features at d = 64",
            "excess": "S over softmax’s, less 1",
            "iid_smallest_S": "smallest S of i.i.d. features",
        },
        rough=("excess",),
    ),
    su_claim(
        key="decay",
        statement="With exponential decay, any λ < 1 gives S → 0 as the row grows.",
        formula="S = √[(1−λⁿ)(1+λ) / (n(1−λ)(1+λⁿ))]",
        proof="λⁿ → 0, so n·S² → (1+λ)/(1−λ), a finite window, and S falls like n^(−1/2).",
        judge=decay_to_zero,
        labels={
            "rows": "Rows of λ^(n−j)",
            "S_at_n_4096": "S at n = 4096",
            "window": "window n·S²",
            "slopes": "slopes of ln S against ln n",
        },
    ),
)
