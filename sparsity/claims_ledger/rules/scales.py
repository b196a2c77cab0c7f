"""Claims about an output scale, equal decades and two uses of ln n, with their judges."""

from __future__ import annotations

import math

import numpy as np

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.rows.row import Row
from sparsity.rows.steps import LengthBias, ScalableSoftmax, ScaleInvariant

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
    steps = (ScalableSoftmax(),)  # 0.43 is the default
    with_it = [float(routes.n_eff(Row("exp", gamma=1.0, steps=steps), n)) for n in lengths]
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
        key="unit-scaling",
        source="Blake et al. (2023), Unit scaling; its fit for attention's output",
        statement="The output of attention over independent values has the scale n^(−2/(γ²+4)).",
        formula="√(E Y₂) against n^(−2/(γ²+4))",
        proof="Independent values of unit variance leave Σp² of variance in a row's output, so its "
        "scale is √(E Y₂); in long rows that is e^(γ²/2)/√n.",
        judge=output_scale,
        labels={"scales": "Scale of a row's output", "fit": "n^(−2/(γ²+4))", "scale": "√(E Y₂)"},
    ),
    Claim(
        key="scale-invariant",
        source="Anson et al. (2025), Scale-invariant attention, arXiv 2505.17083",
        statement="Each decade of distances holds the same attention.",
        formula="E e^(c s + 1 − c²) = √e/(t/τ + 1), c² = 2 ln(t/τ + 1) + 1",
        proof="E e^(c s) = e^(c²/2) for s ~ N(0, 1). The sum of 1/(t/τ + 1) over a decade tends to "
        "τ·ln 10 as t/τ grows.",
        judge=flat_decades,
        labels={"decades": "Distances, in tokens", "share": "Share of the mean weight"},
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
        labels={"sum": "sum of a row's weights"},
    ),
)
