"""Claims about factors that go with the length, with their judges: what keeps n_eff, and ln n.

First the temperatures that models ship with; then an output scale, equal decades of distance, and
two uses of ln n.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.rows.row import Row
from sparsity.rows.steps import FloorLog, LengthBias, ScalableSoftmax, ScaleInvariant, Temperature

TRAINED = 8192  # tokens n₀, from which Llama 4's rule counts
_RATIOS = (4, 16, 32, 64, 128)  # r, of the context to n₀
_SPREADS = (1.5, 2.0, 3.0, 4.0, 5.0)  # γ
_WITHIN = 0.015  # of the factor: a change of 1.5 % in γ = 3 moves n_eff by a ninth
_LENGTHS = (2**13, 2**15, 2**17, 2**20, 10**7)  # under Llama 4's rule


def asked_factor(routes: Any, gamma: float, ratio: float, trained: int = TRAINED) -> float:
    """Return the c at which rows of n₀·r scores of spread cγ have the n_eff of rows of n₀ at γ."""
    wanted = math.log(float(routes.n_eff("exp", trained, gamma=gamma)))

    # n_eff falls as c rises: c = 1 leaves too many tokens, as the row is longer, and c = 3 too few
    # at all spreads that are asked for.
    def gap(c: float) -> float:
        return math.log(float(routes.n_eff("exp", ratio * trained, gamma=c * gamma))) - wanted

    found: Any = brentq(gap, 1.0, 3.0, xtol=1e-8)
    return float(found)


def n_eff_under(routes: Any, step: Temperature | None, gamma: float, length: float) -> float:
    """Return n_eff of softmax rows of Gaussian scores under a temperature."""
    steps = () if step is None else (step,)
    return float(routes.n_eff(Row("exp", gamma=gamma, steps=steps), length))


def why_a_tenth(routes: Routes, seed: int) -> Judged:
    """Compare 1 + 0.1·ln r with the factor that keeps n_eff, at several spreads."""
    factors = {g: [asked_factor(routes, g, r) for r in _RATIOS] for g in _SPREADS}
    rule = [1 + 0.1 * math.log(r) for r in _RATIOS]
    # A rule 1 + a·ln r has one slope a: that which is exact at the longest ratio.
    slopes = {g: (found[-1] - 1) / math.log(_RATIOS[-1]) for g, found in factors.items()}
    off = max(abs(c / asked - 1) for c, asked in zip(rule, factors[3.0], strict=True))
    plain = [n_eff_under(routes, None, 3.0, n) for n in _LENGTHS]
    llama4 = FloorLog(0.1, TRAINED, 1)
    shipped = [n_eff_under(routes, llama4, 3.0, n) for n in _LENGTHS]
    # ⌊n/8192⌋ jumps from 0 to 1 between these two lengths, and the factor by 0.1·ln 2 = 0.07.
    before, at = (n_eff_under(routes, llama4, 3.0, n) for n in (TRAINED - 1, TRAINED))
    findings = [
        core(
            "for Gaussian scores of γ = 3 at 8192 tokens the factor that keeps n_eff at r times "
            f"the length is 1 + 0.1·ln r within {off:.1%}, r = 4 … 128",
            off < _WITHIN,
        ),
        core(
            f"under the rule n_eff stays between {min(shipped):.0f} and {max(shipped):.0f} from "
            f"8192 to 10⁷ tokens; without it it goes from {plain[0]:.0f} to {plain[-1]:.0f}",
            max(shipped) < 1.5 * min(shipped) and plain[-1] > 50 * plain[0],
        ),
        letter(
            "the slope is 0.1 whatever the spread of the scores",
            max(slopes.values()) - min(slopes.values()) < 0.01,
        ),
        letter("the factor grows smoothly with the position", abs(at / before - 1) < 0.01),
        instead(
            "the slope that keeps n_eff falls with the spread: "
            + listed(f"{s:.3f} at γ = {g:g}" for g, s in slopes.items()),
            np.all(np.diff([*slopes.values()]) < 0),
        ),
        instead(
            f"the floor makes a sawtooth: n_eff = {before:.1f} at 8191 tokens, {at:.1f} at 8192",
            at < 0.8 * before,
        ),
    ]
    numbers = {
        "ratios": _RATIOS,
        "rule": rule,
        "factors": {f"{g:g}": found for g, found in factors.items()},
        "slopes": {f"{g:g}": s for g, s in slopes.items()},
        "lengths": _LENGTHS,
        "n_eff": {"none": plain, "rule": shipped},
    }
    return findings, numbers


def yarn_square(routes: Routes, seed: int) -> Judged:
    """Compare the square of YaRN's factor, which scores get, with the factor that keeps n_eff."""
    start = n_eff_under(routes, None, 3.0, TRAINED)
    squared = {r: n_eff_under(routes, Temperature.yarn(r), 3.0, r * TRAINED) for r in _RATIOS}
    # What interpolated positions would have to leave of the spread for the square to be right.
    asked = {r: asked_factor(routes, 3.0, r) for r in _RATIOS}
    spreads = {r: asked[r] / Temperature.yarn(r).factor(1) for r in _RATIOS}
    findings = [
        core(
            f"with (1 + 0.1·ln r)² on the scores n_eff of γ = 3 stays within a third of its "
            f"{start:.0f}: it is " + listed(f"{x:.1f} at r = {r}" for r, x in squared.items()),
            all(abs(x / start - 1) < 1 / 3 for x in squared.values()),
        ),
        instead(
            "the square keeps n_eff if interpolation takes so much of the spread: to "
            + listed(f"{x:.2f} at r = {r}" for r, x in spreads.items()),
            all(x < 1 for x in spreads.values()),
        ),
    ]
    numbers = {
        "ratios": _RATIOS,
        "n_eff": {str(r): x for r, x in squared.items()},
        "spread left": {str(r): x for r, x in spreads.items()},
    }
    return findings, numbers


# γ and n: a spread as at initialisation and one as in trained heads, in short and in long rows.
_PLACES = ((1.0, 128), (1.0, 8192), (3.0, 128), (3.0, 8192))


def output_scale(routes: Routes, seed: int) -> Judged:
    """Compare the fit n^(−2/(γ²+4)) with √(E Y₂), the scale of a row's output.

    Independent values of unit variance leave the variance Σp² in what the row reads out.
    """
    rows = []
    for gamma, n in _PLACES:
        true = math.sqrt(float(routes.mean("exp", n, of="participation", gamma=gamma)))
        rows.append({"gamma": gamma, "n": n, "fit": n ** (-2 / (gamma**2 + 4)), "scale": true})
    off = [abs(row["fit"] / row["scale"] - 1) for row in rows]
    short = [x for x, row in zip(off, rows, strict=True) if row["n"] == 128]
    findings = [
        core(f"at 128 tokens the fit is within {max(short):.0%} of √(E Y₂)", max(short) < 0.15),
        letter("it is within 15 % at 8192 tokens as well", max(off) < 0.15),
        instead(
            "in long rows √(E Y₂) falls like n^(−½) at any spread, and the fit does not: at γ = 1 "
            f"and 8192 tokens it is {rows[1]['fit'] / rows[1]['scale']:.2f} times the scale",
            rows[1]["fit"] > 1.3 * rows[1]["scale"],
        ),
    ]
    return findings, {"scales": rows}


def flat_decades(routes: Routes, seed: int) -> Judged:
    """Judge what each decade of distances holds under scale-invariant attention on the average."""
    n, tau = 10**6, 10.0  # tau is the rule's distance; the decades go from it to the row's end
    row = Row("exp", beta=0.0, gamma=1.0, steps=(ScaleInvariant(tau),))
    beta, gamma, _ = row.positions(n)
    t = np.arange(n)[::-1]  # the distance of each token: the query's own is the last of the row
    mean = np.exp(beta + gamma**2 / 2)  # E e^s: the annealed weight, which the claim is about
    decades = [(10.0**k, 10.0 ** (k + 1)) for k in range(1, 6)]
    mass = [float(mean[(t >= low) & (t < high)].sum() / mean.sum()) for low, high in decades]
    far = mass[1:]
    findings = [
        core(
            "of scores N(0, 1) the mean weight at the distance t is √e/(t/τ + 1)",
            np.allclose(mean, math.sqrt(math.e) / (t / tau + 1), rtol=1e-12),
        ),
        core(
            "the decades beyond 10τ hold the same share of the annealed mass, within "
            f"{max(far) / min(far) - 1:.1%}",
            max(far) / min(far) < 1.05,
        ),
        letter("so does every decade from τ on", max(mass) / min(mass) < 1.05),
        # ∫dt/(t/τ + 1) from τ to 10τ is τ·ln(11/2), not τ·ln 10.
        instead(
            f"the first decade from τ on holds {mass[0] / far[-1]:.2f} of a later one",
            mass[0] < 0.9 * far[-1],
        ),
    ]
    return findings, {"decades": decades, "share": mass}


def ssmax_at_the_start(routes: Routes, seed: int) -> Judged:
    """Judge SSMax with s = 0.43 on scores of unit spread, as at initialisation."""
    lengths = (2**10, 2**13, 2**17)
    rule = ScalableSoftmax()  # 0.43 is the default
    with_it = [n_eff_under(routes, rule, 1.0, n) for n in lengths]
    share = [x / n for x, n in zip(with_it, lengths, strict=True)]
    findings = [
        core(
            "with s·ln n on scores of γ = 1, n_eff stays within a factor of 2 from 1024 to 131072 "
            f"tokens: {listed(with_it, '.0f')}",
            max(with_it) < 2 * min(with_it),
        ),
        instead(
            f"the share of the row that is attended to falls all the same: {listed(share, '.2g')}",
            np.all(np.diff(share) < 0),
        ),
    ]
    return findings, {"lengths": lengths, "n_eff": with_it}


def sigmoid_bias(routes: Routes, seed: int) -> Judged:
    """Judge the sum of a row's weights under the bias −ln n, and how many tokens hold it."""
    lengths = (2**8, 2**12, 2**16)
    total, n_eff = [], []
    # The sum is n·E σ(s − ln n), by a Gauss–Hermite rule of its own: σ(s − ln n) is nearly e^s/n.
    nodes, rule = np.polynomial.hermite_e.hermegauss(80)
    for n in lengths:
        row = Row("sigmoid", beta=0.0, gamma=1.0, steps=(LengthBias(-1.0),))
        beta, gamma, _ = row.positions(n)
        # β of a token is −ln n by the step; all tokens are alike, so that the first one serves.
        weights = 1 / (1 + np.exp(-beta[:1] - gamma[:1] * nodes))
        total.append(float(n * (rule @ weights) / rule.sum()))
        n_eff.append(float(routes.n_eff(row, n)))
    share = [x / n for x, n in zip(n_eff, lengths, strict=True)]
    findings = [
        core(
            "the weights of a row sum to E e^s = √e on the average, within 5 %, at 256 tokens and "
            f"more: {listed(total, '.3f')}",
            all(abs(x / math.sqrt(math.e) - 1) < 0.05 for x in total),
        ),
        instead(
            "it does not make the row sharper: n_eff/n tends to softmax's e^(−γ²), "
            f"{listed(share, '.3f')}",
            abs(share[-1] - math.exp(-1)) < 0.01,
        ),
    ]
    return findings, {"lengths": lengths, "sum": total, "n_eff": n_eff}


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="why-a-tenth",
        source="Llama 4 (2025), attn_scale = 0.1; Mistral 3, llama_4_scaling_beta",
        statement="A temperature of 1 + 0.1·ln r keeps attention as sharp over a context r times "
        "as long.",
        formula="n_eff(n₀r, cγ) = n_eff(n₀, γ) at c = 1 + 0.1·ln r",
        proof="n_eff of n Gaussian scores falls as the spread grows and rises with n; the factor "
        "that keeps it solves one equation of the exact law. No published derivation of 0.1 was "
        "found; 2.9 is the median spread of SmolLM2's heads at 2048 tokens.",
        judge=why_a_tenth,
    ),
    Claim(
        key="yarn-square",
        source="Peng et al. (2023), YaRN, arXiv 2309.00071",
        statement="The factor 1 + 0.1·ln r on queries and on keys keeps attention as it was.",
        formula="scores times (1 + 0.1·ln r)²",
        proof="What stands on q and on k stands squared on the score. For independent scores the "
        "factor that keeps n_eff is about 1 + 0.1·ln r at γ = 3, and its square is too much, "
        "unless interpolation has narrowed the scores.",
        judge=yarn_square,
    ),
    Claim(
        key="unit-scaling",
        source="Blake et al. (2023), Unit scaling; its fit for attention's output",
        statement="The output of attention over independent values has the scale n^(−2/(γ²+4)).",
        formula="√(E Y₂) against n^(−2/(γ²+4))",
        proof="Independent values of unit variance leave Σp² of variance in a row's output, so its "
        "scale is √(E Y₂); in long rows that is e^(γ²/2)/√n.",
        judge=output_scale,
    ),
    Claim(
        key="scale-invariant",
        source="Anson et al. (2025), Scale-invariant attention, arXiv 2505.17083",
        statement="Each decade of distances holds the same attention.",
        formula="E e^(c s + 1 − c²) = √e/(t/τ + 1), c² = 2 ln(t/τ + 1) + 1",
        proof="E e^(c s) = e^(c²/2) for s ~ N(0, 1). The sum of 1/(t/τ + 1) over a decade tends to "
        "τ·ln 10 as t/τ grows.",
        judge=flat_decades,
    ),
    Claim(
        key="ssmax-start",
        source="Nakanishi (2025), Scalable-Softmax, arXiv 2501.19399",
        statement="Scores times s·ln n keep attention from fading as the context grows.",
        formula="γ = 0.43·ln n",
        proof="n_eff of n Gaussian scores of spread s·ln n, by the exact law.",
        judge=ssmax_at_the_start,
    ),
    Claim(
        key="sigmoid-bias",
        source="Ramapuram et al. (2024), Sigmoid self-attention, arXiv 2409.04431",
        statement="With the bias −ln n the weights of sigmoid attention keep the sum of softmax's.",
        formula="n·E σ(s − ln n) → E e^s",
        proof="σ(s − ln n) ~ e^s/n where e^s is small beside n.",
        judge=sigmoid_bias,
    ),
)
