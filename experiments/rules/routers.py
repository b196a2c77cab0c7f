"""Claims about attention that reads few keys, with their judges: blocks, and past attention."""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy.special import ndtr, ndtri

from sparsity.claims_ledger.findings import CHANCE_BELOW_1E5, Judged, core, instead, letter, listed
from sparsity.claims_ledger.judging import Claim, Routes
from sparsity.rows.row import Row
from sparsity.sampling import Sampling

_LENGTH, _READ, _GAMMA = 4096, 512, 2.0  # an eighth of the keys is read
_REL_ERROR = 5e-3  # of the mass that is read: what is compared differs by a twentieth and more
_HALVINGS = (64, 32, 16)  # keys of a block
_WITHIN = (0.0, 0.3, 0.6)  # correlation c of the scores of a block
# Dimension, keys of a block, margin Δ and meant keys: chances of a wrong block from 0.29 to 0.44,
# which 200 000 pairs of blocks resolve to a thousandth.
_SINGLE = ((64, 128, 0.3, 1), (64, 32, 0.3, 1), (128, 64, 0.5, 1), (64, 64, 0.2, 4))
_DRAWS, _AT_ONCE = 200_000, 20_000  # pairs of blocks, and how many lie in memory at a time
_KEPT, _OF = 256, 1280  # keys, a fifth
_MEDIAN = 2.9  # spread of SmolLM2's heads at 2048 tokens


def snr(dim: int, size: int, margin: float, relevant: int) -> float:
    """Return the paper's SNR, Δ_eff √(d/(2B)), of unit keys and queries.

    Args:
        dim: d of a key; the score of a key that is not meant has the variance 1/d.
        size: the number of keys B of a block.
        margin: Δ, by which the score of a key that is meant is higher.
        relevant: how many of those stand in one block, so that Δ_eff is that many Δ.
    """
    # The difference of the means of two blocks has the variance 2/(dB): hence the 2.
    return relevant * margin * math.sqrt(dim / (2 * size))


def correlation_of_blocks(within: float, size: int) -> float:
    """Return the correlation of a score with the mean score of its block of so many keys."""
    return math.sqrt(within + (1 - within) / size)


def _wrong_block_first(dim: int, size: int, margin: float, relevant: int, seed: int) -> float:
    """Return how often a block without a meant key has the larger mean, by drawing scores."""
    rng, wrong = np.random.default_rng([seed, dim, size, relevant]), 0
    for _ in range(_DRAWS // _AT_ONCE):
        right, other = rng.standard_normal((2, _AT_ONCE, size)) / math.sqrt(dim)
        right[:, :relevant] += margin
        wrong += int((other.mean(1) > right.mean(1)).sum())
    return wrong / _DRAWS


@functools.lru_cache(maxsize=16)  # two claims ask for the same
def _of_blocks(routes: Routes, size: int, within: float) -> float:
    """Return the mass of the blocks that are read, sampled, at a correlation c within blocks."""
    kernel = f"block-router:{_READ // size},{size}"
    row = Row(kernel, gamma=_GAMMA, within=within)
    sampling = Sampling(_REL_ERROR, seed=0, dtype=np.float32)
    return float(routes.rows(row, _LENGTH, sampling, "abs_sum").value)


def signal_to_noise(routes: Routes, seed: int) -> Judged:
    """Judge FlashMoBA's SNR for one key that is meant, and for the mass that blocks hold."""
    z, rows = [], []
    for dim, size, margin, relevant in _SINGLE:
        expected = float(ndtr(-snr(dim, size, margin, relevant)))
        found = _wrong_block_first(dim, size, margin, relevant, seed)
        z.append((found - expected) / math.sqrt(expected * (1 - expected) / _DRAWS))
        row = {"dim": dim, "size": size, "relevant": relevant}
        rows.append(row | {"law": expected, "drawn": found})
    alone = [_of_blocks(routes, size, 0.0) for size in _HALVINGS]
    alike = _of_blocks(routes, 64, 0.3)
    # It is also the standard deviation of the mean of B scores of variance 1. As noise beside one
    # meant key the SNR is divided by it.
    lower = correlation_of_blocks(0.3, 64) / correlation_of_blocks(0.0, 64)
    findings = [
        core(
            "of independent scores a block without the meant key has the larger mean with the "
            f"chance Φ(−SNR): largest |z| of {len(z)} settings {max(map(abs, z)):.1f}",
            max(map(abs, z)) < CHANCE_BELOW_1E5,
        ),
        core(
            "of independent scores smaller blocks read more of the mass with as many keys: "
            + listed(f"{x:.3f} at B = {b}" for b, x in zip(_HALVINGS, alone, strict=True)),
            np.all(np.diff(alone) > 0),
        ),
        core(
            f"keys that are alike in a block raise it as well: {alike:.3f} at B = 64 and c = 0.3, "
            f"{alone[0]:.3f} at c = 0",
            alike > alone[0],
        ),
        letter(
            "what lowers the SNR lowers the mass that is read: c = 0.3 divides the SNR of a single "
            f"key by {lower:.1f}",
            alike < alone[0],
        ),
        instead(
            "for one meant key the likeness of a block's scores is noise, for the mass it is "
            "signal: the mass goes by ρ = √(c + (1 − c)/B), a score's correlation with its block",
            alike > alone[0] and lower > 1,
        ),
    ]
    numbers = {"single": rows, "sizes": _HALVINGS, "alone": alone, "alike": alike}
    return findings, numbers


def halving_blocks(routes: Routes, seed: int) -> Judged:
    """Judge what halving the blocks is worth, at the same number of keys read."""
    # As many keys are read at each size, so that only the choice differs.
    masses = {c: [_of_blocks(routes, size, c) for size in _HALVINGS] for c in _WITHIN}
    gains = {c: found[1] / found[0] - 1 for c, found in masses.items()}
    findings = [
        core(
            "blocks of 32 read more of the mass than blocks of 64, and blocks of 16 more again, "
            f"at c = {listed(_WITHIN, 'g')}",
            all(np.all(np.diff(found) > 0) for found in masses.values()),
        ),
        letter(
            "the gain is the same whatever the keys, within a twentieth of the mass",
            max(gains.values()) - min(gains.values()) < 0.05,
        ),
        instead(
            "the gain of 64 to 32 falls as the scores of a block are alike: "
            + listed(f"{x:.1%} at c = {c:g}" for c, x in gains.items()),
            np.all(np.diff([*gains.values()]) < 0),
        ),
        instead(
            "likeness is worth more than size: blocks of 64 at c = 0.3 read "
            f"{masses[0.3][0]:.3f}, blocks of 16 at c = 0 read {masses[0.0][2]:.3f}",
            masses[0.3][0] > masses[0.0][2],
        ),
    ]
    numbers = {"sizes": _HALVINGS, "mass": {f"{c:g}": x for c, x in masses.items()}}
    return findings, numbers


def eviction_by_past_attention(routes: Routes, seed: int) -> Judged:
    """Judge the keys kept by past attention, a proxy of correlation ρ with the score now."""
    share = _KEPT / _OF
    # A router keeps the keys of the largest proxy scores, here those of the past, which have the
    # correlation ρ with the scores now. The best keys are those of ρ = 1.
    best = float(routes.mean("exp", _OF, of=f"top_k_mass:{_KEPT}", gamma=_MEDIAN))
    row = {"of": "abs_sum", "gamma": _MEDIAN}
    kept = {rho: float(routes.mean(f"router:{_KEPT}", _OF, **row, rho=rho)) for rho in (0.5, 0.9)}
    # In long rows the mass kept is Φ(ργ + Φ⁻¹(q)): solved for the ρ at which it is 95 %.
    asked = {g: float((ndtri(0.95) - ndtri(share)) / g) for g in (2.0, 3.0, 4.0)}
    findings = [
        core(
            f"at γ = {_MEDIAN} a fifth of {_OF} keys, the best, hold {best:.3f} of the mass",
            best > 0.95,
        ),
        core(
            "the fifth that a past of ρ = 0.9 with the score now keeps holds "
            f"{kept[0.9]:.3f} of it",
            kept[0.9] > 0.9,
        ),
        letter(
            "so does any past: " + listed(f"{x:.3f} at ρ = {r:g}" for r, x in kept.items()),
            min(kept.values()) > 0.9,
        ),
        instead(
            "in long rows 95 % in a fifth of the keys asks for "
            + listed(f"ρ = {r:.2f} at γ = {g:g}" for g, r in asked.items())
            + ": no past will do where the scores are not wide",
            asked[2.0] > 1 > asked[3.0] > asked[4.0],
        ),
    ]
    numbers = {
        "best": best,
        "kept": {f"{r:g}": x for r, x in kept.items()},
        "asked": {f"{g:g}": x for g, x in asked.items()},
    }
    return findings, numbers


CLAIMS: tuple[Claim, ...] = (
    Claim(
        key="flashmoba-snr",
        source="Xiao et al. (2025), Optimizing Mixture of Block Attention, arXiv 2511.11571",
        statement="How well a router finds the right block by its mean key is set by a "
        "signal-to-noise ratio, which smaller blocks and keys that cluster both raise.",
        formula="SNR = Δ_eff √(d/(2B))",
        proof="The mean of B independent scores of variance 1/d has the variance 1/(dB), and that "
        "of a block with m meant keys is mΔ/B higher. The captured mass goes by the correlation of "
        "a score with the mean of its block, ρ² = c + (1 − c)/B, and tends to Φ(ργ + Φ⁻¹(q)).",
        judge=signal_to_noise,
    ),
    Claim(
        key="halving-blocks",
        source="Xiao et al. (2025), Optimizing Mixture of Block Attention, arXiv 2511.11571",
        statement="Halving the blocks, and reading twice as many of them, helps.",
        formula="captured mass at B and B/2",
        proof="ρ² = c + (1 − c)/B grows as B falls, at any c < 1, and the captured mass with it; "
        "but it is never below c, so that size matters little from B = (1 − c)/c on.",
        judge=halving_blocks,
    ),
    Claim(
        key="past-attention",
        source="Zhang et al. (2023), H2O, arXiv 2306.14048",
        statement="A fifth of the keys, those of the largest accumulated attention, keeps what "
        "attention needs.",
        formula="Φ(ργ + Φ⁻¹(0.2))",
        proof="Accumulated attention is a proxy of the score now. Where a key's scores at "
        "different queries have the correlation c, the mean of many has ρ = √c with the next one.",
        judge=eviction_by_past_attention,
    ),
)
