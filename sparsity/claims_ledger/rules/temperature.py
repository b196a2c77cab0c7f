"""Claims about the temperatures that models ship with, with their judges: what keeps n_eff."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.optimize import brentq

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.rows.row import Row
from sparsity.rows.steps import FloorLog, Temperature

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
        labels={
            "rule": "1 + 0.1·ln r",
            "factors": "Factor that keeps n_eff, by γ",
            "slopes": "Slope at r = 128, by γ",
            "n_eff": "n_eff at γ = 3",
        },
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
        labels={
            "n_eff": "n_eff at γ = 3, by r",
            "spread left": "Spread that would keep n_eff, by r",
        },
    ),
)
