"""Claims about thresholds that skip tiles of keys ("skip softmax"), with their judges."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.optimize import brentq

from sparsity.claims_ledger.findings import Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes

_TILE = 128  # keys, as the kernels have them
_LENGTHS = (4096, 131_072)
_SPREADS = (2.0, 3.0, 4.0)  # of the logits; heads of SmolLM2 have about 3
_SHARES = (0.3, 0.5, 0.7, 0.9)  # of the tiles that are skipped
_LIKE = 0.1  # of an exponent: what a fit over two lengths would not notice
_MEASURABLE = 0.01  # of the weight


@functools.lru_cache(maxsize=256)
def _threshold(routes: Routes, length: int, share: float, gamma: float) -> float:
    """Return the ln λ that skips a share of the tiles."""

    def excess(t: float) -> float:
        of = f"tiles_below:{t!r},{_TILE}"
        return float(routes.mean("exp", length, of=of, gamma=gamma)) - share

    return float(brentq(excess, -2.4 * gamma - 2, -1e-3, xtol=1e-6))  # pyright: ignore


def _exponent(routes: Routes, share: float, gamma: float) -> float:
    """Return −d ln λ/d ln n between the two lengths."""
    low, high = (_threshold(routes, n, share, gamma) for n in _LENGTHS)
    return (low - high) / math.log(_LENGTHS[1] / _LENGTHS[0])


def inverse_length(routes: Routes, seed: int) -> Judged:
    """Judge λ ∝ 1/n at a share of tiles."""
    found = {g: _exponent(routes, 0.5, g) for g in _SPREADS}
    shown = listed(f"{x:.2f} at γ = {g:g}" for g, x in found.items())
    findings = [
        core(
            f"the threshold falls like n^−c, and at γ = 4 c is 1 within {_LIKE:g}",
            abs(found[4.0] - 1) < _LIKE,
        ),
        letter(f"c is 1 at every spread: {shown}", all(abs(x - 1) < _LIKE for x in found.values())),
        instead(
            "c is about γ/√(2 ln n): it rises with the spread, and is 1 near γ = √(2 ln n) alone, "
            "where few keys begin to hold the weight",
            np.all(np.diff([*found.values()]) > 0),
        ),
    ]
    return findings, {"exponents": {f"{g:g}": x for g, x in found.items()}}


def _residual(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Return the slope of a line through points, and how far it is off at most."""
    slope, start = np.polyfit(x, y, 1)
    return float(slope), float(np.abs(slope * x + start - y).max())


def exponential_in_share(routes: Routes, seed: int) -> Judged:
    """Judge ln λ = ln a + bS − ln n as a fit over shares."""
    shares = np.array(_SHARES)
    odds = np.log(shares / (1 - shares))
    logs = {g: np.array([_threshold(routes, 4096, s, g) for s in _SHARES]) for g in _SPREADS}
    of_share = {g: _residual(shares, y) for g, y in logs.items()}
    of_odds = {g: _residual(odds, y) for g, y in logs.items()}
    off = listed(f"{of_share[g][1]:.2f} at γ = {g:g}" for g in _SPREADS)
    slopes = [of_share[g][0] for g in _SPREADS]
    findings = [
        core(
            f"ln λ is linear in S from 0.3 to 0.9 within a quarter: off by {off}",
            max(x for _, x in of_share.values()) < 0.25,
        ),
        letter(
            "b is of the calibration, not of the head: "
            + listed(f"{b:.1f} at γ = {g:g}" for b, g in zip(slopes, _SPREADS, strict=True)),
            max(slopes) < 1.1 * min(slopes),
        ),
        instead(
            "ln λ goes by Φ⁻¹(S^(1/B)), and b by γ; a power of S/(1 − S) is off by at most "
            f"{max(x for _, x in of_odds.values()):.2f}",
            all(of_odds[g][1] < 0.3 * of_share[g][1] for g in _SPREADS),
        ),
    ]
    return findings, {"off": {f"{g:g}": of_share[g][1] for g in _SPREADS}, "b": slopes}


def two_exponents(routes: Routes, seed: int) -> Judged:
    """Judge the two exponents of λ = 1 − exp(−a(S/(1 − S))^b/n^c) as free numbers."""
    shares = np.array(_SHARES)
    odds, pairs = np.log(shares / (1 - shares)), {}
    for g in _SPREADS:
        t = np.array([[_threshold(routes, n, s, g) for s in _SHARES] for n in _LENGTHS])
        y = np.log(-np.log1p(-np.exp(t)))
        b = float(np.mean([np.polyfit(odds, row, 1)[0] for row in y]))
        c = float(np.mean(y[0] - y[1])) / math.log(_LENGTHS[1] / _LENGTHS[0])
        pairs[g] = b, c
    shown = listed(f"{b:.2f} and {c:.2f} at γ = {g:g}" for g, (b, c) in pairs.items())
    over = [(b / g, c / g) for g, (b, c) in pairs.items()]
    findings = [
        core(f"neither is 1 at every spread: b and c are {shown}", pairs[2.0][1] < 0.9),
        letter(
            "they are two numbers: one does not tell the other",
            np.ptp([b / c for b, c in pairs.values()]) > 0.2,
        ),
        instead(
            "both are the spread of the logits in disguise, within a tenth proportional to γ",
            all(max(x) < 1.1 * min(x) for x in zip(*over, strict=True)),
        ),
    ]
    return findings, {"pairs": {f"{g:g}": x for g, x in pairs.items()}}


def half_for_nothing(routes: Routes, seed: int) -> Judged:
    """Judge the weight that goes with half of the tiles."""
    lost = {}
    for g in _SPREADS:
        of = f"tiles_mass_below:{_threshold(routes, 4096, 0.5, g)!r},{_TILE}"
        lost[g] = float(routes.mean("exp", 4096, of=of, gamma=g))
    shown = listed(f"{x:.3f} at γ = {g:g}" for g, x in lost.items())
    findings = [
        core(
            f"half of the tiles, of independent keys, hold less than {_MEASURABLE:g} of the "
            f"weight: {shown}",
            max(lost.values()) < _MEASURABLE,
        ),
        instead(
            "what is lost falls with the spread, and half of the tiles is no measure of it",
            np.all(np.diff([*lost.values()]) < 0),
        ),
    ]
    return findings, {"lost": {f"{g:g}": x for g, x in lost.items()}}


_BLASST = "Yuan et al. (2025), BLASST, arXiv 2512.12087"
CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="threshold-inverse-length",
        source=f"{_BLASST}; Model Optimizer, threshold = scale_factor / sequence_length",
        statement="At a share of skipped tiles the threshold λ is inversely proportional to the "
        "length of the context.",
        formula="λ = a/n",
        proof="In long rows ln λ = γ(Φ⁻¹(S^(1/B)) − E max_n), E max_n the mean of the largest of n "
        "normals, which grows by 1/√(2 ln n) for each unit of ln n.",
        judge=inverse_length,
    ),
    Claim(
        key="threshold-exponential",
        source="NVIDIA Model Optimizer, CalibrationConfig: scale_factor = a·exp(b·target_sparsity)",
        statement="The threshold is an exponential of the share of tiles to skip.",
        formula="λ = a e^(bS)/n",
        proof="ln λ is γΦ⁻¹(S^(1/B)) but for a constant: nearly straight in the middle of S, with "
        "a slope that is proportional to γ, and without bound at its ends.",
        judge=exponential_in_share,
    ),
    Claim(
        key="threshold-two-exponents",
        source="NVIDIA Model Optimizer, pull request 1541: t = 1 − exp(−a (S/(1−S))^b / L^c)",
        statement="The threshold has two exponents to fit, of the odds of the share and of the "
        "length.",
        formula="λ = 1 − exp(−a (S/(1 − S))^b/n^c)",
        proof="By the limit of long rows both derivatives of ln λ are γ times a number of S, B and "
        "n alone.",
        judge=two_exponents,
    ),
    Claim(
        key="half-of-the-tiles",
        source=f"{_BLASST}, and engines that offer a target sparsity of 0.5",
        statement="Half of the tiles can be skipped at no measurable loss, read as weight.",
        formula="Σ_skipped p at S = 0.5",
        proof="Of independent keys a tile below the threshold holds what its B keys do, which "
        "counts until γ is so large that few keys hold it all. Keys that are alike in a tile "
        "lose less: (γ, n, B, c) = (3, 4096, 64, 0.3) loses 0.05, and 0.14 at c = 0. What a "
        "model loses of its accuracy is another question.",
        judge=half_for_nothing,
    ),
)
